//! Digests of whole source files.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    sync::atomic::{AtomicBool, Ordering},
};

use rayon::{ThreadPoolBuilder, prelude::*};
use sha2::{Digest as _, Sha256};
use wpack_checkpoint::SourceFile;

use wpack_loader::PageBuffer;

use crate::Error;

/// Bytes read at once.
const CHUNK: usize = 4 << 20;
/// Most files hashed at once.
const MAX_THREADS: usize = 16;

/// The SHA-256 of each source file, one file a thread.
pub(crate) fn hash(
    sources: &[SourceFile],
    threads: usize,
    interrupt: &AtomicBool,
) -> Result<Vec<[u8; 32]>, Error> {
    let all = || {
        sources
            .par_iter()
            .map(|source| hash_one(source, interrupt))
            .collect()
    };
    match ThreadPoolBuilder::new()
        .num_threads(threads.min(MAX_THREADS))
        .build()
    {
        Ok(pool) => pool.install(all),
        // No more threads to be had: one after the other.
        Err(_) => sources
            .iter()
            .map(|source| hash_one(source, interrupt))
            .collect(),
    }
}

fn hash_one(source: &SourceFile, interrupt: &AtomicBool) -> Result<[u8; 32], Error> {
    let io = |error| wpack_checkpoint::Error::Io {
        path: source.path.clone(),
        source: error,
    };
    let mut file = File::open(&source.path).map_err(io)?;
    let mut digest = Sha256::new();
    let mut buffer = PageBuffer::new(CHUNK);
    let mut total = 0u64;
    loop {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                digest.update(buffer.get(..read).unwrap_or_default());
                total = total.saturating_add(read as u64);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(io(error).into()),
        }
    }
    if total != source.size {
        return Err(Error::SourceChanged {
            path: source.path.clone(),
            expected: source.size,
            found: total,
        });
    }
    Ok(digest.finalize().into())
}
