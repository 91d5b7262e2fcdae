// SPDX-License-Identifier: Apache-2.0
//! How frames get into a switch and come out of it.

use crate::player::Broken;
use slipswitch_tests::harness::dummy_bridge_line;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use unixctl::client::{CallError, Connection};

/// The ports of a switch and the way of frames to and from them.
pub trait Wire {
    /// The arguments of `ovs-vsctl` that make `br0` with the ports p1 to p4.
    fn bridge(&self) -> String {
        dummy_bridge_line("br0", 4)
    }

    /// A case's arguments of `ovs-vsctl` for such ports.
    fn arguments(&self, of_case: &str) -> String {
        of_case.to_owned()
    }

    /// Called after bridges were made again, with ports of these names among others.
    ///
    /// # Errors
    /// A port is missing.
    fn begin(&mut self, _control: &mut Connection, _arguments: &str) -> Result<(), Broken> {
        Ok(())
    }

    /// Sends a frame into a port, for the `round`th time. Returns the switch's own words about it.
    /// The output is read when the switch is idle.
    ///
    /// # Errors
    /// The switch does not answer.
    fn send(
        &mut self,
        control: &mut Connection,
        port: &'static str,
        frame: &[u8],
        round: usize,
    ) -> Result<String, Broken>;

    /// The frames that came out since the last time: by port, in their order at each.
    fn taken(&mut self) -> BTreeMap<&'static str, Vec<Vec<u8>>>;

    /// Called when ports are made again.
    fn forget(&mut self);

    /// Where packets ran, in a line.
    fn ran(&self) -> Option<Ran> {
        None
    }
}

/// Where packets that were sent again ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Packets that were sent again.
    pub again: u64,
    /// Of them, those that no packet thread got.
    pub in_bpf: u64,
    /// Of them, those whose flows are all at the fastest tier of their port.
    pub offloaded: u64,
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

/// Every port that a case may have: of br0, of br1, and the members of a bond of br0.
pub const PORTS: [&str; 8] = ["p1", "p2", "p3", "p4", "p5", "p6", "q1", "q2"];
/// Numbers of the members of a bond in OpenFlow.
pub const MEMBERS: [u32; 2] = [21, 22];

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
        port: &'static str,
        frame: &[u8],
        _round: usize,
    ) -> Result<String, Broken> {
        let frame = crate::case::hex(frame);
        match control.call("netdev-dummy/receive", &[port, &frame]) {
            Ok(_) => Ok(String::new()),
            Err(CallError::Refused(words)) => Ok(words),
            Err(e) => Err(e.into()),
        }
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
        // A read error shows as a missing frame in the comparison.
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
