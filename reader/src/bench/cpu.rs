//! [`seconds`]: what this process has used of all processors so far, beside the time on the wall.
//!
//! Called by measurements whose figure is bounded by processors.

/// User and system time of all threads.
pub(super) fn seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec of this frame, which the call fills and does not keep.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } != 0 {
        return 0.0;
    }
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_never_falls() {
        let before = super::seconds();
        assert!(before > 0.0 && super::seconds() >= before);
    }
}
