// SPDX-License-Identifier: Apache-2.0
//! The kernel's datapath object: made or found by its name, with the sockets that upcalls go to.

use crate::family::{Body, Families, Family, Unavailable, counters, text};
use netlink::Socket;
use netlink::attribute::array;
use rustix::io::Errno;

/// `OVS_DP_CMD_*`
mod command {
    pub const NEW: u8 = 1;
    pub const DEL: u8 = 2;
    pub const GET: u8 = 3;
    pub const SET: u8 = 4;
}

/// `OVS_DP_ATTR_*`
mod attr {
    pub const NAME: u16 = 1;
    pub const UPCALL_PID: u16 = 2;
    pub const STATS: u16 = 3;
    pub const MEGAFLOW_STATS: u16 = 4;
    pub const USER_FEATURES: u16 = 5;
    pub const PER_CPU_PIDS: u16 = 8;
}

/// `OVS_DP_F_UNALIGNED`: the kernel need not pad packets in upcalls.
const UNALIGNED: u32 = 1;
/// `OVS_DP_F_DISPATCH_UPCALL_PER_CPU`: the CPU that receives a packet decides the socket of its
/// upcall. Since Linux 5.15.
const PER_CPU: u32 = 1 << 3;

/// A datapath of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The index of the interface that has the datapath's name.
    pub ifindex: i32,
    /// True when this call made it.
    pub is_new: bool,
}

/// Counters of a datapath (`struct ovs_dp_stats` and `struct ovs_dp_megaflow_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found a megaflow.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Upcalls that found no room in their socket.
    pub lost: u64,
    /// Number of megaflows now.
    pub flows: u64,
    /// Masks that all lookups compared.
    pub mask_hits: u64,
    /// Number of masks now.
    pub masks: u32,
    /// Hits of the cache of masks.
    pub cache_hits: u64,
}

impl Instance {
    /// Makes the datapath, or finds the one that exists, and has its upcalls go to the sockets with
    /// these numbers, one for each CPU.
    ///
    /// # Errors
    ///
    /// The kernel's error, or it is too old.
    pub fn open(
        socket: &mut Socket,
        families: &Families,
        name: &str,
        sockets: &[u32],
    ) -> Result<Instance, Unavailable> {
        let features = (UNALIGNED | PER_CPU).to_ne_bytes();
        let numbers: Vec<u8> = sockets.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let mut found = None;
        let request = families
            .request(Family::Datapath, command::NEW, netlink::message::NLM_F_ECHO, 0)
            .attribute(attr::NAME, &text(name))
            .attribute(attr::UPCALL_PID, &0u32.to_ne_bytes())
            .attribute(attr::USER_FEATURES, &features)
            .attribute(attr::PER_CPU_PIDS, &numbers);
        let made =
            socket.transact(request, |_, payload| found = Body::decode(payload).map(ifindex));
        let is_new = match made {
            Ok(_) => true,
            Err(error) if error.errno() == Some(Errno::EXIST.raw_os_error()) => false,
            Err(error) => return Err(refused(error)),
        };
        if !is_new {
            // A request by name, as the index is not known yet. The features of an earlier daemon
            // are replaced.
            let request = families
                .request(Family::Datapath, command::SET, netlink::message::NLM_F_ECHO, 0)
                .attribute(attr::NAME, &text(name))
                .attribute(attr::USER_FEATURES, &features)
                .attribute(attr::PER_CPU_PIDS, &numbers);
            socket
                .transact(request, |_, payload| found = Body::decode(payload).map(ifindex))
                .map_err(refused)?;
        }
        if found.is_none() {
            let request = families
                .request(Family::Datapath, command::GET, 0, 0)
                .attribute(attr::NAME, &text(name));
            socket
                .transact(request, |_, payload| found = Body::decode(payload).map(ifindex))
                .map_err(Unavailable::at("reading the datapath"))?;
        }
        let ifindex = found.filter(|ifindex| *ifindex != 0).ok_or_else(|| {
            let error = std::io::Error::from(Errno::NODEV);
            Unavailable::at("reading the datapath")(error)
        })?;
        Ok(Instance { ifindex, is_new })
    }

    /// Reads the counters.
    ///
    /// # Errors
    ///
    /// The kernel's error, such as `ENODEV` when the datapath is gone.
    pub fn stats(self, socket: &mut Socket, families: &Families) -> Result<Stats, netlink::Error> {
        let request = families.request(Family::Datapath, command::GET, 0, self.ifindex);
        let mut stats = Stats::default();
        socket.transact(request, |_, payload| {
            if let Some(body) = Body::decode(payload) {
                stats = decode_stats(&body);
            }
        })?;
        Ok(stats)
    }

    /// Deletes the datapath with its ports and megaflows.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn delete(self, socket: &mut Socket, families: &Families) -> Result<(), netlink::Error> {
        let request = families.request(Family::Datapath, command::DEL, 0, self.ifindex);
        socket.transact(request, |_, _| {}).map(drop)
    }
}

fn ifindex(body: Body<'_>) -> i32 {
    body.datapath
}

/// A kernel without a feature refuses the request as a whole.
fn refused(error: netlink::Error) -> Unavailable {
    let errno = error.errno();
    let lacks = [Errno::OPNOTSUPP, Errno::INVAL].map(|e| Some(e.raw_os_error()));
    match lacks.contains(&errno) {
        true => Unavailable::TooOld("upcalls by CPU"),
        false => Unavailable::at("making the datapath")(error),
    }
}

/// Decodes the counters of a message.
pub fn decode_stats(body: &Body<'_>) -> Stats {
    let [hits, misses, lost, flows] = body.attribute(attr::STATS).map(counters).unwrap_or_default();
    let masks = body.attribute(attr::MEGAFLOW_STATS).unwrap_or_default();
    let [mask_hits, _, cache_hits] = counters(masks);
    let count = masks.get(8..).and_then(array).map_or(0, u32::from_ne_bytes);
    Stats { hits, misses, lost, flows, mask_hits, masks: count, cache_hits }
}
