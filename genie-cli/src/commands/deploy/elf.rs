//! The head of an ELF file: enough to know for which machine a program was built, and which loader it asks for.
//!
//! *Source*: System V ABI, ELF-64 header and program headers; machine numbers of `EM_X86_64`, `EM_AARCH64`, `EM_HEXAGON`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// What is looked at.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The machine, as `uname -m` prints it.
    pub machine: &'static str,
    /// The dynamic loader, of programs that need one.
    pub loader: Option<String>,
}

const HEADER_BYTES: usize = 64;
/// `p_type` of the loader's name.
const PT_INTERP: u32 = 3;

impl Head {
    /// Reads it from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let mut file = File::open(path).with_context(|| format!("cannot read `{shown}`"))?;
        Self::from(&mut file).with_context(|| format!("`{shown}` is no program or library for a 64-bit Linux"))
    }

    fn from(file: &mut (impl Read + Seek)) -> Result<Self> {
        let mut head = [0; HEADER_BYTES];
        file.read_exact(&mut head).context("shorter than an ELF header")?;
        ensure!(head.starts_with(b"\x7fELF"), "expected an ELF file, found bytes {:02x?}", &head[..4]);
        // 64 bits, little end first; Hexagon's are 32 bits and are recognised only.
        if u16_at(&head, 18) == 164 {
            return Ok(Self { machine: "hexagon", loader: None });
        }
        ensure!(head[4..6] == [2, 1], "expected class 2 and byte order 1, found {} and {}", head[4], head[5]);
        let machine = match u16_at(&head, 18) {
            62 => "x86_64",
            183 => "aarch64",
            other => bail!("expected machine 62 (x86_64) or 183 (aarch64), found {other}"),
        };
        Ok(Self { machine, loader: loader(file, &head)? })
    }
}

fn loader(file: &mut (impl Read + Seek), head: &[u8]) -> Result<Option<String>> {
    let (table, n_entries) = (u64_at(head, 32), u64::from(u16_at(head, 56)));
    for i in 0..n_entries {
        let mut entry = [0; 56];
        let at = table.checked_add(56 * i).context("program headers beyond the end of numbers")?;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut entry).context("program headers beyond the end of the file")?;
        if u32_at(&entry, 0) == PT_INTERP {
            let n_bytes = u64_at(&entry, 32);
            ensure!(n_bytes < 4096, "a loader's name of {n_bytes} bytes");
            file.seek(SeekFrom::Start(u64_at(&entry, 8)))?;
            let mut name = vec![0; n_bytes as usize];
            file.read_exact(&mut name).context("the loader's name is cut off")?;
            return Ok(Some(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()));
        }
    }
    Ok(None)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn this_program_is_for_this_machine() {
        let head = Head::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(head.machine, std::env::consts::ARCH);
        assert!(head.loader.unwrap().contains("ld-linux"), "a test binary is linked dynamically");
    }

    #[test]
    fn what_is_no_program_is_named() {
        let elf = |class: u8, machine: u16| {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
            bytes[18..20].copy_from_slice(&machine.to_le_bytes());
            bytes
        };
        let far_table = {
            let mut bytes = elf(2, 183);
            bytes[32] = 200;
            bytes[56] = 1;
            bytes
        };
        let cases = [
            (b"#!/bin/sh\n".to_vec(), "shorter than an ELF header"),
            (vec![b'x'; 80], "expected an ELF file, found bytes [78, 78, 78, 78]"),
            (elf(1, 3), "expected class 2"),
            (elf(2, 243), "found 243"),
            (far_table, "program headers beyond the end of the file"),
        ];
        for (bytes, expected) in cases {
            let error = Head::from(&mut Cursor::new(bytes)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(Head::from(&mut Cursor::new(elf(1, 164))).unwrap().machine, "hexagon");
        assert_eq!(Head::from(&mut Cursor::new(elf(2, 183))).unwrap(), Head { machine: "aarch64", loader: None });
    }
}
