//! A mapped binary whose bytes are moved into memory of the process while graphs read them.
//!
//! Weights that stream through a CPU from pages of 4 KB cost it a walk through the page table for each, and most file systems
//! keep files in such pages. Anonymous memory has huge ones. Reading a file into it before the first step would delay the first
//! token, so a binary is mapped first, and a thread moves it when there is more to do: piece by piece, below the same addresses.

use std::io;
use std::path::Path;
use std::sync::Weak;

use crate::context_handle::ContextInner;

/// A context's mapped binary. It does not keep the context.
#[derive(Clone, Debug)]
pub struct MappedBinary {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    context: Weak<ContextInner>,
    path: Box<Path>,
    len: usize,
}

impl MappedBinary {
    pub(crate) fn new(context: Weak<ContextInner>, path: &Path, len: usize) -> Self {
        Self { context, path: path.into(), len }
    }

    /// The file that was mapped.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Reads the file into anonymous memory, in huge pages where the system has them, and puts it in place of the mapping: what is
    /// at an address stays the same, and may be read meanwhile. Ends early when the context is freed. Returns the bytes that
    /// lie in memory now: whole huge pages of the file, on Linux; none elsewhere.
    ///
    /// # Errors
    /// The system's: no memory; a file that became shorter. The rest of the file stays mapped.
    pub fn move_to_memory(&self) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        {
            let mut moved = 0;
            while let Some(context) = self.context.upgrade() {
                let Some(file) = context.mapped_file() else { break };
                match file.move_piece(moved)? {
                    0 => break,
                    bytes => moved += bytes,
                }
            }
            Ok(moved)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(0)
    }
}
