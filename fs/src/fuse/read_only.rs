//! Everything that would write: EROFS, without exception (P5). The mount is read-only for the kernel too, which stops
//! most of it earlier; these handlers are the second lock.

/// The handlers, to be expanded inside `impl fuser::Filesystem`.
macro_rules! refusals {
    () => {
        fn setattr(
            &self,
            _request: &Request,
            _number: INodeNo,
            _mode: Option<u32>,
            _uid: Option<u32>,
            _gid: Option<u32>,
            _size: Option<u64>,
            _atime: Option<fuser::TimeOrNow>,
            _mtime: Option<fuser::TimeOrNow>,
            _ctime: Option<SystemTime>,
            _handle: Option<FileHandle>,
            _crtime: Option<SystemTime>,
            _chgtime: Option<SystemTime>,
            _bkuptime: Option<SystemTime>,
            _flags: Option<fuser::BsdFileFlags>,
            reply: ReplyAttr,
        ) {
            reply.error(self.refuse_write());
        }

        fn mknod(
            &self,
            _request: &Request,
            _parent: INodeNo,
            _name: &OsStr,
            _mode: u32,
            _umask: u32,
            _rdev: u32,
            reply: ReplyEntry,
        ) {
            reply.error(self.refuse_write());
        }

        fn mkdir(
            &self,
            _request: &Request,
            _parent: INodeNo,
            _name: &OsStr,
            _mode: u32,
            _umask: u32,
            reply: ReplyEntry,
        ) {
            reply.error(self.refuse_write());
        }

        fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
            reply.error(self.refuse_write());
        }

        fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
            reply.error(self.refuse_write());
        }

        fn symlink(
            &self,
            _request: &Request,
            _parent: INodeNo,
            _name: &OsStr,
            _target: &std::path::Path,
            reply: ReplyEntry,
        ) {
            reply.error(self.refuse_write());
        }

        fn rename(
            &self,
            _request: &Request,
            _parent: INodeNo,
            _name: &OsStr,
            _new_parent: INodeNo,
            _new_name: &OsStr,
            _flags: fuser::RenameFlags,
            reply: ReplyEmpty,
        ) {
            reply.error(self.refuse_write());
        }

        fn link(
            &self,
            _request: &Request,
            _number: INodeNo,
            _new_parent: INodeNo,
            _new_name: &OsStr,
            reply: ReplyEntry,
        ) {
            reply.error(self.refuse_write());
        }

        fn write(
            &self,
            _request: &Request,
            _number: INodeNo,
            _handle: FileHandle,
            _offset: u64,
            _data: &[u8],
            _write_flags: fuser::WriteFlags,
            _flags: OpenFlags,
            _owner: Option<LockOwner>,
            reply: fuser::ReplyWrite,
        ) {
            reply.error(self.refuse_write());
        }

        fn setxattr(
            &self,
            _request: &Request,
            _number: INodeNo,
            _name: &OsStr,
            _value: &[u8],
            _flags: i32,
            _position: u32,
            reply: ReplyEmpty,
        ) {
            reply.error(self.refuse_write());
        }

        fn removexattr(&self, _request: &Request, _number: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
            reply.error(self.refuse_write());
        }

        fn create(
            &self,
            _request: &Request,
            _parent: INodeNo,
            _name: &OsStr,
            _mode: u32,
            _umask: u32,
            _flags: i32,
            reply: fuser::ReplyCreate,
        ) {
            reply.error(self.refuse_write());
        }

        fn fallocate(
            &self,
            _request: &Request,
            _number: INodeNo,
            _handle: FileHandle,
            _offset: u64,
            _len: u64,
            _mode: i32,
            reply: ReplyEmpty,
        ) {
            reply.error(self.refuse_write());
        }
    };
}

pub(super) use refusals;
