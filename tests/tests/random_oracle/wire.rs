//! How frames get into a switch and come out of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use unixctl::client::{CallError, Connection};

/// The way of frames. What came out is asked for when the switch has settled.
pub trait Wire {
    /// A frame arrives on a port; an error is the switch's own words.
    fn send(&mut self, control: &mut Connection, port: &str, frame: &[u8])
    -> Result<(), CallError>;

    /// The frames that came out since the last time: by port, in their order at each.
    fn taken(&mut self) -> BTreeMap<&'static str, Vec<Vec<u8>>>;

    /// Ports are made anew.
    fn forget(&mut self);
}

/// Dummy ports: frames in by `netdev-dummy/receive`, out by `options:tx_pcap`.
#[derive(Debug)]
pub struct Dummies {
    dir: PathBuf,
    files: BTreeMap<&'static str, Tail>,
}

/// A file that is being written, read as far as it got.
#[derive(Debug)]
struct Tail {
    file: File,
    unread: Vec<u8>,
}

/// Bytes of a pcap file before the first packet, and of each packet's own header.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// Every port that a case may have.
pub const PORTS: [&str; 7] = ["p1", "p2", "p3", "p4", "p5", "p6", "p7"];

impl Dummies {
    /// Of the switch in `dir`.
    pub fn new(dir: &Path) -> Dummies {
        Dummies { dir: dir.to_owned(), files: BTreeMap::new() }
    }

    fn open(&mut self, port: &'static str) {
        if self.files.contains_key(port) {
            return;
        }
        let mut header = [0; FILE_HEADER];
        if let Ok(mut file) = File::open(self.dir.join(format!("{port}-tx.pcap")))
            && file.read_exact(&mut header).is_ok()
        {
            self.files.insert(port, Tail { file, unread: Vec::new() });
        }
    }
}

impl Wire for Dummies {
    fn send(
        &mut self,
        control: &mut Connection,
        port: &str,
        frame: &[u8],
    ) -> Result<(), CallError> {
        let frame = crate::case::hex(frame);
        control.call("netdev-dummy/receive", &[port, &frame]).map(|_| ())
    }

    fn taken(&mut self) -> BTreeMap<&'static str, Vec<Vec<u8>>> {
        let mut out = BTreeMap::new();
        for port in PORTS {
            self.open(port);
            let frames = self.files.get_mut(port).map(Tail::packets).unwrap_or_default();
            if !frames.is_empty() {
                out.insert(port, frames);
            }
        }
        out
    }

    fn forget(&mut self) {
        self.files.clear();
        for port in PORTS {
            // It may not be there.
            let _ = std::fs::remove_file(self.dir.join(format!("{port}-tx.pcap")));
        }
    }
}

impl Tail {
    fn packets(&mut self) -> Vec<Vec<u8>> {
        // What cannot be read now is missed in the comparison.
        let _ = self.file.read_to_end(&mut self.unread);
        let mut out = Vec::new();
        let mut rest = self.unread.as_slice();
        while let Some((header, after)) = rest.split_at_checked(PACKET_HEADER) {
            let length = header.get(8..12).and_then(|l| l.try_into().ok()).map(u32::from_ne_bytes);
            let Some((frame, after)) = length.and_then(|l| after.split_at_checked(l as usize))
            else {
                break;
            };
            out.push(frame.to_vec());
            rest = after;
        }
        self.unread = rest.to_vec();
        out
    }
}
