//! Opens a target: one file, or the files of a directory in the order of their names.
//!
//! Owns what counts as a file of a directory, and the guess of how long a footer is, which is
//! learned from one file for the next. Called by [`super::Table::open`].

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::{Done, Handles, Inner, OpenOptions, Stage, TableFile};
use crate::cancel::CancelToken;
use crate::decode::parquet::{FileStructure, ParquetFile};
use crate::error::{ReadError, Result};
use crate::fetch::{Deadline, Fetcher};
use crate::mounts::{MountedFile, Opener, Target};
use crate::plan::RowMap;

/// A learned guess stays below this, so that one odd file does not make all others slow.
const TAIL_BYTES_GUESS_MAX: u64 = 4 << 20;

pub(super) fn open(
    target: &Target,
    options: OpenOptions,
    fetcher: Fetcher,
    cancel: Option<CancelToken>,
) -> Result<Inner> {
    let started = Instant::now();
    let deadline = Deadline::starting_now(options.deadline, cancel);
    let opener = options
        .opener
        .clone()
        .unwrap_or_else(|| Opener::pread(options.counts.clone()));
    let mut guess = options.tail_bytes_guess;
    let footers_hit = AtomicU64::new(0);
    let handles = Handles::default();
    let mut open_file = |target: &Target| {
        let (on_mounts, spread, opener) = (target.clone(), options.spread, opener.clone());
        let open_files = options.structures.kept_open().clone();
        let mounted = Arc::new(fetcher.call(&deadline, "opening", move || {
            MountedFile::open(&on_mounts, spread, opener, open_files)
        })?);
        let (structure, is_known) = structure_of(&mounted, &options, guess, &fetcher, &deadline)?;
        footers_hit.fetch_add(u64::from(is_known), Relaxed);
        let parquet = ParquetFile::new(mounted.path(), structure);
        guess = guess
            .max(parquet.tail_bytes().next_multiple_of(4096))
            .min(TAIL_BYTES_GUESS_MAX);
        Ok(TableFile { mounted, parquet })
    };
    let path = target.first_path();
    let files = match open_file(target) {
        Ok(file) => vec![file],
        Err(ReadError::NotAFile { .. }) if path.is_dir() => {
            let mut files: Vec<TableFile> = Vec::new();
            for name in names(target)? {
                deadline.check("opening files")?;
                files.push(open_file(&target.join(name))?);
                close(&files, handles.used(std::iter::once(files.len() - 1)));
            }
            files
        }
        Err(error) => return Err(error),
    };
    let Some(first) = files.first() else {
        return Err(ReadError::EmptyDirectory { path });
    };
    let schema = first.parquet.schema().clone();
    check_schemas(&files)?;
    let row_map = RowMap::new(files.iter().map(|file| file.parquet.row_count()))
        .ok_or_else(|| ReadError::corrupt(&path, "the files have more than 2^64 rows"))?;
    let inner = Inner {
        path,
        target: target.clone(),
        row_map,
        schema,
        options,
        fetcher,
        handles,
        done: Done::opened(footers_hit.into_inner()),
        files,
    };
    let spent_us = started.elapsed().as_micros() as u64;
    inner.done.times_us[Stage::Open as usize].store(spent_us, Relaxed);
    Ok(inner)
}

/// Closes these of the files.
pub(super) fn close(files: &[TableFile], numbers: Vec<usize>) {
    for number in numbers {
        files[number].mounted.close();
    }
}

fn check_schemas(files: &[TableFile]) -> Result<()> {
    for pair in files.windows(2) {
        let [before, file] = pair else { continue };
        if file.parquet.schema().fields() != before.parquet.schema().fields() {
            return Err(ReadError::SchemaDiffers {
                path: file.parquet.path().to_owned(),
                first: files[0].parquet.path().to_owned(),
            });
        }
    }
    Ok(())
}

/// Footer and offset index, and whether they were known.
fn structure_of(
    mounted: &Arc<MountedFile>,
    options: &OpenOptions,
    guess: u64,
    fetcher: &Fetcher,
    deadline: &Deadline,
) -> Result<(Arc<FileStructure>, bool)> {
    let known = mounted.version_key().and_then(|key| options.structures.file(key));
    let is_known = known.is_some();
    let structure = match known {
        Some(structure) => structure,
        None => load(mounted, options, guess, fetcher, deadline)?,
    };
    if options.verify {
        structure.verify();
    }
    Ok((structure, is_known))
}

/// Reads footer and offset index, and remembers them.
fn load(
    mounted: &Arc<MountedFile>,
    options: &OpenOptions,
    guess: u64,
    fetcher: &Fetcher,
    deadline: &Deadline,
) -> Result<Arc<FileStructure>> {
    let mut read = |range| fetcher.read(mounted, range, deadline);
    let cache = &options.structures;
    let sidecar = match (&options.sidecars, mounted.version_key()) {
        (Some(sidecars), Some(key)) => Some(sidecars.of(&key, mounted.len())),
        _ => None,
    };
    let structure = FileStructure::open(mounted.path(), mounted.len(), guess, cache, sidecar, &mut read);
    // First: what is half of one version and half of another is malformed, but not corrupt.
    mounted.check_unchanged()?;
    let structure = Arc::new(structure?);
    if let Some(key) = mounted.version_key() {
        cache.put_file(key, structure.clone());
    }
    Ok(structure)
}

/// Names of the files of a directory, sorted. Hidden files, and those that writers mark as not
/// being data (`_SUCCESS`), are left out.
fn names(target: &Target) -> Result<Vec<PathBuf>> {
    let path = target.first_path();
    let failed = |source| ReadError::Open {
        path: path.clone(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_')) {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            return Err(ReadError::Invalid(format!(
                "{}: holds a directory, '{}'; give a directory that holds files only",
                path.display(),
                name.display()
            )));
        }
        names.push(PathBuf::from(name));
    }
    names.sort();
    Ok(names)
}
