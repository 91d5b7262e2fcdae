// SPDX-License-Identifier: Apache-2.0
//! Messages about megaflows.

use crate::actions;
use crate::family::{Body, Families, Family, counters};
use crate::keys::{self, Encoded};
use crate::numbering::Numbering;
use datapath::{FlowStats, Megaflow, Ufid};
use netlink::attribute::array;
use netlink::message::{NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use netlink::{Error, Request, Socket};

/// `OVS_FLOW_CMD_*`
mod command {
    pub const NEW: u8 = 1;
    pub const DEL: u8 = 2;
    pub const GET: u8 = 3;
    pub const SET: u8 = 4;
}

/// `OVS_FLOW_ATTR_*`
mod attr {
    pub const KEY: u16 = 1;
    pub const ACTIONS: u16 = 2;
    pub const STATS: u16 = 3;
    pub const TCP_FLAGS: u16 = 4;
    pub const USED: u16 = 5;
    pub const MASK: u16 = 7;
    pub const UFID: u16 = 9;
    pub const UFID_FLAGS: u16 = 10;
}

/// Answers have neither key, mask nor actions (`OVS_UFID_F_OMIT_*`).
const STATISTICS_ONLY: u32 = 7;

/// A megaflow's statistics in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStats {
    /// Packets since the megaflow was installed.
    pub packets: u64,
    /// Bytes of these packets, with their Ethernet headers.
    pub bytes: u64,
    /// Milliseconds of `CLOCK_MONOTONIC` when the last packet came; 0 is never.
    pub used: u64,
    /// The low 8 of the TCP flags seen.
    pub tcp_flags: u8,
}

impl KernelStats {
    /// Returns the statistics on the switch's clock, which is `ahead` of `CLOCK_MONOTONIC` by these
    /// milliseconds.
    pub fn on_clock(self, ahead: i64) -> FlowStats {
        let used = match self.used {
            0 => clock::Millis(0),
            used => {
                let used = i64::try_from(used).unwrap_or(i64::MAX);
                clock::Millis(used.saturating_add(ahead).max(1))
            }
        };
        FlowStats {
            packets: self.packets,
            bytes: self.bytes,
            used,
            tcp_flags: self.tcp_flags.into(),
        }
    }
}

/// The messages of one datapath.
#[derive(Clone, Copy, Debug)]
pub struct FlowMessages<'a> {
    /// The families.
    pub families: &'a Families,
    /// The interface index of the datapath.
    pub datapath: i32,
}

impl FlowMessages<'_> {
    fn request(&self, command: u8, flags: u16) -> Request {
        self.families.request(Family::Flow, command, flags, self.datapath)
    }

    /// Returns the request that adds a megaflow.
    pub fn add(&self, ufid: Ufid, matching: &Encoded, actions: &[u8]) -> Request {
        self.request(command::NEW, NLM_F_CREATE | NLM_F_EXCL)
            .attribute(attr::UFID, &encode_ufid(ufid))
            .attribute(attr::KEY, &matching.key)
            .attribute(attr::MASK, &matching.mask)
            .attribute(attr::ACTIONS, actions)
    }

    /// Returns the request that replaces a megaflow's actions. The kernel checks them against key
    /// and mask.
    pub fn modify(&self, ufid: Ufid, matching: &Encoded, actions: &[u8]) -> Request {
        self.request(command::SET, 0)
            .attribute(attr::UFID, &encode_ufid(ufid))
            .attribute(attr::KEY, &matching.key)
            .attribute(attr::MASK, &matching.mask)
            .attribute(attr::ACTIONS, actions)
    }

    /// Removes a megaflow. Returns its last statistics.
    ///
    /// # Errors
    ///
    /// The kernel's error: `ENOENT` when it is not there.
    pub fn remove(&self, socket: &mut Socket, ufid: Ufid) -> Result<KernelStats, Error> {
        self.of_one(socket, self.request(command::DEL, NLM_F_ECHO), ufid)
    }

    /// Reads the statistics of a megaflow.
    ///
    /// # Errors
    ///
    /// The kernel's error: `ENOENT` when it is not there.
    pub fn stats(&self, socket: &mut Socket, ufid: Ufid) -> Result<KernelStats, Error> {
        self.of_one(socket, self.request(command::GET, 0), ufid)
    }

    fn of_one(
        &self,
        socket: &mut Socket,
        request: Request,
        ufid: Ufid,
    ) -> Result<KernelStats, Error> {
        let request = request
            .attribute(attr::UFID, &encode_ufid(ufid))
            .attribute(attr::UFID_FLAGS, &STATISTICS_ONLY.to_ne_bytes());
        let mut stats = KernelStats::default();
        socket.transact(request, |_, payload| {
            if let Some(body) = Body::decode(payload) {
                stats = decode_stats(&body);
            }
        })?;
        Ok(stats)
    }

    /// Calls `each` for the statistics of every megaflow that has an identity.
    ///
    /// # Errors
    ///
    /// The kernel's error; some megaflows may have been reported.
    pub fn sweep(
        &self,
        socket: &mut Socket,
        mut each: impl FnMut(Ufid, KernelStats),
    ) -> Result<(), Error> {
        let request = self
            .request(command::GET, 0)
            .attribute(attr::UFID_FLAGS, &STATISTICS_ONLY.to_ne_bytes());
        socket.dump(request, |_, payload| {
            let Some(body) = Body::decode(payload) else { return };
            if let Some(ufid) = body.attribute(attr::UFID).and_then(decode_ufid) {
                each(ufid, decode_stats(&body));
            }
        })?;
        Ok(())
    }

    /// Calls `each` for every megaflow: `Err` with its identity where this crate does not make such
    /// a megaflow; `Err(None)` where it has no identity.
    ///
    /// # Errors
    ///
    /// The kernel's error; some megaflows may have been reported.
    pub fn dump(
        &self,
        socket: &mut Socket,
        numbering: Numbering,
        mut each: impl FnMut(Result<Megaflow, Option<Ufid>>, KernelStats),
    ) -> Result<(), Error> {
        socket.dump(self.request(command::GET, 0), |_, payload| {
            if let Some(body) = Body::decode(payload) {
                let ufid = body.attribute(attr::UFID).and_then(decode_ufid);
                each(decode(&body, numbering).ok_or(ufid), decode_stats(&body));
            }
        })?;
        Ok(())
    }

    /// Returns the request that removes all megaflows.
    pub fn flush(&self) -> Request {
        self.request(command::DEL, 0)
    }
}

/// Decodes the statistics of a message.
pub fn decode_stats(body: &Body<'_>) -> KernelStats {
    let [packets, bytes] = body.attribute(attr::STATS).map(counters).unwrap_or_default();
    let [used] = body.attribute(attr::USED).map(counters).unwrap_or_default();
    let [tcp_flags] = body.attribute(attr::TCP_FLAGS).and_then(array).unwrap_or_default();
    KernelStats { packets, bytes, used, tcp_flags }
}

/// Decodes a megaflow. `None` when it has no identity, or a part that this crate does not make.
pub fn decode(body: &Body<'_>, numbering: Numbering) -> Option<Megaflow> {
    let ufid = decode_ufid(body.attribute(attr::UFID)?)?;
    let matching = keys::decode_match(body.attribute(attr::KEY)?, body.attribute(attr::MASK)?)?;
    let actions = actions::decode(body.attribute(attr::ACTIONS)?, numbering)?;
    Some(Megaflow { ufid, matching: numbering.of_kernel(&matching), actions: actions.into() })
}

/// Four words in host byte order, so that other programs print the same text.
pub fn encode_ufid(ufid: Ufid) -> [u8; 16] {
    let mut bytes = ufid.0.to_be_bytes();
    for word in bytes.as_chunks_mut::<4>().0 {
        *word = u32::from_be_bytes(*word).to_ne_bytes();
    }
    bytes
}

/// The reverse of [`encode_ufid`]. `None` when the length is another.
pub fn decode_ufid(value: &[u8]) -> Option<Ufid> {
    let mut bytes: [u8; 16] = value.try_into().ok()?;
    for word in bytes.as_chunks_mut::<4>().0 {
        *word = u32::from_ne_bytes(*word).to_be_bytes();
    }
    Some(Ufid(u128::from_be_bytes(bytes)))
}
