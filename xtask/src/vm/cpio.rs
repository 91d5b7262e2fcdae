// SPDX-License-Identifier: Apache-2.0
//! Archives in cpio's "newc" format, which the kernel unpacks into its first file system
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;

/// An archive being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Archive {
        Archive::default()
    }

    /// Adds a directory. Its parent comes first.
    pub fn directory(&mut self, name: &str) {
        self.entry(name, S_IFDIR | 0o755, &[]);
    }

    /// Adds a file that may be executed.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, S_IFREG | 0o755, content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name, S_IFLNK | 0o777, target.as_bytes());
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("the format has 32 bits for a size");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        let links = 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor,
        // namesize, check
        let header = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names with the header, and contents, end at a multiple of 4 bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(bytes: &[u8], number: usize) -> u32 {
        let at = 6 + 8 * number;
        let text = std::str::from_utf8(&bytes[at..at + 8]).expect("digits");
        u32::from_str_radix(text, 16).expect("digits")
    }

    /// Names, modes and contents.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(&bytes[..6], b"070701");
            let name_size = field(bytes, 11) as usize;
            let size = field(bytes, 6) as usize;
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).expect("text");
            let start = (110 + name_size).next_multiple_of(4);
            entries.push((name, field(bytes, 1), bytes[start..start + size].to_vec()));
            bytes = &bytes[(start + size).next_multiple_of(4)..];
        }
        entries
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut archive = Archive::new();
        archive.directory("bin");
        archive.file("bin/x", b"12345");
        archive.link("bin/y", "x");
        let entries = read(&archive.finish());
        assert_eq!(
            entries,
            [
                ("bin".into(), 0o040_755, vec![]),
                ("bin/x".into(), 0o100_755, b"12345".to_vec()),
                ("bin/y".into(), 0o120_777, b"x".to_vec()),
                ("TRAILER!!!".into(), 0, vec![]),
            ]
        );
    }
}
