// SPDX-License-Identifier: Apache-2.0
//! The egress of an interface: packet sockets of processes that capture.
//!
//! The functions work in the network namespace of the calling thread.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek};

/// The interfaces whose outgoing frames packet sockets of other processes receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    /// Indexes of interfaces; 0 stands for all.
    at: BTreeSet<u32>,
}

impl Captures {
    /// Returns captures at these interfaces; 0 stands for all.
    pub fn at(interfaces: impl IntoIterator<Item = u32>) -> Captures {
        Captures { at: interfaces.into_iter().collect() }
    }

    /// Returns true when a socket receives the frames of interface `index`.
    pub fn has(&self, index: u32) -> bool {
        self.at.contains(&0) || self.at.contains(&index)
    }
}

/// Reads captures again and again. To open the kernel's table takes longer than to read it.
#[derive(Debug)]
pub struct CaptureReader {
    table: File,
    text: String,
}

impl CaptureReader {
    /// Opens the table of packet sockets (packet(7)) of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// /proc is not mounted, or the kernel has no packet sockets.
    pub fn open() -> io::Result<CaptureReader> {
        let table = File::open("/proc/thread-self/net/packet")?;
        Ok(CaptureReader { table, text: String::new() })
    }

    /// Reads the packet sockets that receive the outgoing frames of one of `interfaces`. Only sockets
    /// of all protocols receive those. Sockets of this process do not count.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn read(&mut self, interfaces: &BTreeSet<u32>) -> io::Result<Captures> {
        self.table.rewind()?;
        self.text.clear();
        self.table.read_to_string(&mut self.text)?;
        let mut sockets: Vec<Socket> =
            self.text.lines().skip(1).filter_map(Socket::parse).collect();
        sockets.retain(|socket| socket.receives_from(interfaces));
        if !sockets.is_empty() {
            let own = own_sockets()?;
            sockets.retain(|socket| !own.contains(&socket.inode));
        }
        Ok(Captures { at: sockets.into_iter().map(|socket| socket.interface).collect() })
    }
}

/// A line of /proc/net/packet.
struct Socket {
    protocol: u16,
    interface: u32,
    is_bound: bool,
    inode: u64,
}

impl Socket {
    /// Parses the columns `sk RefCnt Type Proto Iface R Rmem User Inode` (net/packet/af_packet.c,
    /// `packet_seq_show`).
    fn parse(line: &str) -> Option<Socket> {
        let mut columns = line.split_ascii_whitespace().skip(3);
        Some(Socket {
            protocol: u16::from_str_radix(columns.next()?, 16).ok()?,
            interface: columns.next()?.parse().ok()?,
            is_bound: columns.next()? == "1",
            inode: columns.nth(2)?.parse().ok()?,
        })
    }

    /// Returns true when the socket receives the outgoing frames of one of `interfaces`.
    fn receives_from(&self, interfaces: &BTreeSet<u32>) -> bool {
        let is_there = self.interface == 0 || interfaces.contains(&self.interface);
        self.is_bound && self.protocol == libc::ETH_P_ALL as u16 && is_there
    }
}

/// Returns the inodes of this process's sockets.
fn own_sockets() -> io::Result<BTreeSet<u64>> {
    let mut own = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        // A descriptor may be closed meanwhile.
        let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path())) else { continue };
        let inode = target.to_str().and_then(|t| t.strip_prefix("socket:[")?.strip_suffix(']'));
        own.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_a_socket() {
        let line = "00000000f0f0f0f0 3      3    0003   7     1 0      0      41234 ";
        let socket = Socket::parse(line).expect("a whole line");
        assert_eq!((socket.protocol, socket.interface, socket.inode), (3, 7, 41234));
        assert!(socket.is_bound);
        let receives = |socket: Socket| socket.receives_from(&[7, 9].into());
        let with = |change: fn(&mut Socket)| {
            let mut socket = Socket::parse(line).expect("a whole line");
            change(&mut socket);
            receives(socket)
        };
        assert!(with(|_| {}) && with(|s| s.interface = 0));
        assert!(!with(|s| s.interface = 8) && !with(|s| s.is_bound = false));
        assert!(!with(|s| s.protocol = 0x0806), "it receives no outgoing frame");
        assert!(Socket::parse("sk       RefCnt Type Proto  Iface R Rmem   User   Inode").is_none());
    }

    #[test]
    fn a_socket_of_all_interfaces_is_at_each() {
        assert!(Captures::at([0]).has(7) && Captures::at([7]).has(7));
        assert!(!Captures::at([7]).has(8) && !Captures::default().has(8));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_skipped(line in ".{0,100}") {
            let _ = Socket::parse(&line);
        }
    }
}
