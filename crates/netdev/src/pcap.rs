// SPDX-License-Identifier: Apache-2.0
//! Packet capture files of the classic format (draft-ietf-opsawg-pcap), for dummy devices.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Magic number of a file with microsecond time stamps, written in host byte order.
const MAGIC: u32 = 0xa1b2_c3d4;
/// Maximum bytes of a frame in the file.
const SNAPLEN: u32 = 65_535 + 64;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;

/// Writes frames to a capture file. Every frame is in the file when the call returns.
#[derive(Debug)]
pub struct PcapWriter {
    file: File,
}

impl PcapWriter {
    /// Creates the file, or truncates an existing one, and writes the header.
    ///
    /// # Errors
    ///
    /// The file system's error.
    pub fn create(path: &Path) -> io::Result<PcapWriter> {
        let mut header = Vec::with_capacity(24);
        header.extend_from_slice(&MAGIC.to_ne_bytes());
        header.extend_from_slice(&2u16.to_ne_bytes()); // version 2.4
        header.extend_from_slice(&4u16.to_ne_bytes());
        header.extend_from_slice(&[0; 8]); // time zone, accuracy: always 0
        header.extend_from_slice(&SNAPLEN.to_ne_bytes());
        header.extend_from_slice(&ETHERNET.to_ne_bytes());
        let mut file = File::create(path)?;
        file.write_all(&header)?;
        Ok(PcapWriter { file })
    }

    /// Appends `frame` with the present wall time, in one write.
    ///
    /// # Errors
    ///
    /// The file system's error.
    pub fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.write_at(frame, now)
    }

    /// Appends `frame` with the time `since_epoch` after 1970-01-01 UTC.
    ///
    /// # Errors
    ///
    /// The file system's error.
    pub fn write_at(&mut self, frame: &[u8], since_epoch: Duration) -> io::Result<()> {
        let kept = frame.get(..SNAPLEN as usize).unwrap_or(frame);
        let length = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let seconds = u32::try_from(since_epoch.as_secs()).unwrap_or(u32::MAX);
        let mut record = Vec::with_capacity(16 + kept.len());
        record.extend_from_slice(&seconds.to_ne_bytes());
        record.extend_from_slice(&since_epoch.subsec_micros().to_ne_bytes());
        record.extend_from_slice(&length(kept.len()).to_ne_bytes());
        record.extend_from_slice(&length(frame.len()).to_ne_bytes());
        record.extend_from_slice(kept);
        self.file.write_all(&record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_header_and_records() -> io::Result<()> {
        let dir = testing::directory();
        let path = dir.path().join("x.pcap");
        let mut w = PcapWriter::create(&path)?;
        w.write_at(&[1, 2, 3], Duration::from_micros(5_000_007))?;
        w.write_at(&[], Duration::ZERO)?;
        let bytes = std::fs::read(&path)?;
        assert_eq!(bytes.len(), 24 + 16 + 3 + 16);
        assert_eq!(bytes[..4], MAGIC.to_ne_bytes());
        assert_eq!(bytes[20..24], 1u32.to_ne_bytes());
        assert_eq!(bytes[24..28], 5u32.to_ne_bytes());
        assert_eq!(bytes[28..32], 7u32.to_ne_bytes());
        assert_eq!(bytes[32..40], [3u32.to_ne_bytes(), 3u32.to_ne_bytes()].concat());
        assert_eq!(bytes[40..43], [1, 2, 3]);
        Ok(())
    }
}
