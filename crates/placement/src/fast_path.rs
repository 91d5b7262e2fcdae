// SPDX-License-Identifier: Apache-2.0
//! What placement needs of a datapath that is faster than the base.

use crate::TierSet;
use datapath::{
    Actions, AdoptedPort, DropReason, FlowStats, LookupStats, Megaflow, MeterConfig, MeterStats,
    Origin, PortCounts, PortNo, Refusal, Side, Ufid,
};
use datapath_bpf::{Taker, XdpMode};
use flow::Match;
use packet::Packet;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A port as a fast path sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The interface.
    pub ifindex: u32,
    /// Which side.
    pub side: Side,
    /// Tiers that take the port's packets. Empty: none does, but flows of other ports may
    /// output to this one.
    pub tiers: TierSet,
    /// How XDP is attached, when it is among them.
    pub mode: XdpMode,
    /// Bytes behind the Ethernet header.
    pub mtu: u32,
    /// May be sent to.
    pub up: bool,
}

/// Why a tier does not take something, for counters and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason.
    pub refusal: Refusal,
    /// What exactly is missing and what would change it, in a sentence's words.
    pub detail: String,
}

impl Reason {
    /// A reason with its detail.
    pub fn new(refusal: Refusal, detail: impl Into<String>) -> Reason {
        Reason { refusal, detail: detail.into() }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.refusal, self.detail)
    }
}

/// A flow as a fast path holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The packets.
    pub matching: Match,
    /// Tiers that run it.
    pub tiers: TierSet,
    /// What went through it there.
    pub stats: FlowStats,
}

/// A datapath of one or more tiers that holds some flows of the base and passes other packets
/// up by a *miss device*.
///
/// Statistics of a flow are those of this path only; placement adds the base's. Packets that no
/// flow matches are the base's to count, so [`FastPath::lookups`] tells of hits, not of misses.
/// Methods may be called from any thread at any time, and return within microseconds but where
/// they say otherwise.
pub trait FastPath: Send + Sync {
    /// All tiers that it can have.
    fn tiers(&self) -> TierSet;

    /// Ports that were there when it took over an earlier daemon's tables.
    fn adopted_ports(&self) -> Vec<AdoptedPort>;

    /// Attaches a port to exactly the tiers of `attachment`, or changes a port that is there.
    /// May take milliseconds. On an error the port is as it was before, or not there at all.
    ///
    /// # Errors
    ///
    /// The first tier that failed, for a device that is there.
    fn attach(&self, port: PortNo, attachment: &Attachment) -> Result<(), Reason>;

    /// Which program of the user's the port meets at XDP in place of the tier's own; `None`: the
    /// tier's own. It is read and loaded now, and what was attached at XDP is detached: the next
    /// [`FastPath::attach`] to XDP attaches it. May take a second. When this returns no flow is
    /// run there that [`FastPath::suits_xdp`] refuses. On an error it is as with `None`.
    ///
    /// # Errors
    ///
    /// What is wrong with the object.
    fn use_object(&self, port: PortNo, object: Option<&Path>) -> Result<(), Reason> {
        let _ = port;
        match object {
            None => Ok(()),
            Some(_) => Err(Reason::new(Refusal::UserObject, "there is no BPF here")),
        }
    }

    /// What the user's program of a port says that it can do, in lines for people; `None` when
    /// there is none, or it could not be used.
    fn about_object(&self, port: PortNo) -> Option<String> {
        let _ = port;
        None
    }

    /// Whether XDP can run a flow: its actions can be done there, there is room for what they
    /// need, and the program of its ingress port knows them (a user's may know less).
    ///
    /// # Errors
    ///
    /// What is lacking.
    fn suits_xdp(&self, flow: &Megaflow) -> Result<(), Refusal> {
        let _ = flow;
        Ok(())
    }

    /// [`flow::extract::vlan_limit`] has changed: keys are made as it says from now on. Flows that
    /// are there are of no use and go. May take a second.
    ///
    /// # Errors
    ///
    /// Why it cannot; no flow is taken then.
    fn follow_vlan_limit(&self) -> Result<(), Reason> {
        Ok(())
    }

    /// The filter that the base's sockets need, so that each packet has one taker while that
    /// changes; `None`: there is none.
    fn filter(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whose packets are that arrive at `ifindex`, which is or is about to be that of `port`, from
    /// this instant. Without a word they are the tiers' alone from [`FastPath::attach`] on.
    ///
    /// # Errors
    ///
    /// There is no room for the interface.
    fn set_taker(&self, port: PortNo, ifindex: u32, taker: Taker) -> Result<(), Reason>;

    /// True when tiers take what arrives at `ifindex`, as that of `port`.
    fn takes(&self, port: PortNo, ifindex: u32) -> bool;

    /// Returns when packets have gone through that were between a socket of the base and the
    /// tiers. May take milliseconds.
    fn wait_for_packets(&self);

    /// Takes a port out; flows that output to it drop with [`DropReason::OutputPortGone`]. May
    /// take milliseconds.
    fn detach(&self, port: PortNo);

    /// The device's MTU and whether it may be sent to have changed.
    fn set_port(&self, port: PortNo, mtu: u32, up: bool);

    /// Whether flows at XDP may redirect to an attached port.
    ///
    /// # Errors
    ///
    /// The device cannot be a target of redirects.
    fn set_redirect_target(&self, port: PortNo, is_target: bool) -> Result<(), Reason>;

    /// Whether flows at XDP may redirect frames in several buffers to a port, where they may
    /// redirect to it at all.
    fn set_split_target(&self, port: PortNo, takes_them: bool) {
        let _ = (port, takes_them);
    }

    /// Packets go up by this interface; 0: nobody is there.
    fn set_miss_device(&self, ifindex: u32);

    /// Takes what the fast path put before a packet off it; `None` when nothing is there, and
    /// the packet is of no use.
    fn unwrap(&self, packet: &mut Packet) -> Option<Origin>;

    /// `count` packets of `port` were taken from the miss device.
    fn note_taken(&self, port: PortNo, count: u64);

    /// Before `until`, in nanoseconds of `CLOCK_MONOTONIC`, packets of `port` do not go up; they
    /// are dropped and counted as [`DropReason::UpcallLimit`].
    fn hold_back(&self, port: PortNo, until: u64);

    /// The miss device was found empty: packets whose count went up more than a moment ago and
    /// that were not taken are lost. (Those of this moment may still be on their way; when they
    /// come they are noted as taken, which must do no harm.)
    fn resync_taken(&self);

    /// Whether packets of `port` are on their way up; `None` when that is not known.
    fn is_on_its_way(&self, port: PortNo) -> Option<bool> {
        let _ = port;
        None
    }

    /// Where [`FastPath::install`] would put a flow, as far as its match and actions tell.
    ///
    /// # Errors
    ///
    /// The reason why nowhere.
    fn would_take(&self, flow: &Megaflow, allowed: TierSet) -> Result<TierSet, Refusal>;

    /// Adds a flow with zero statistics where `allowed` and the actions let it run. The result
    /// is never empty.
    ///
    /// # Errors
    ///
    /// The reason; nothing has changed.
    fn install(&self, flow: &Megaflow, allowed: TierSet) -> Result<TierSet, Refusal>;

    /// Gives a flow that is there other actions, or the same in other tiers; its statistics go
    /// on.
    ///
    /// # Errors
    ///
    /// The reason; the flow stays as it was.
    fn replace(&self, flow: &Megaflow, allowed: TierSet) -> Result<TierSet, Refusal>;

    /// Removes flows and calls `each` for those that were there, with final statistics: no
    /// packet is counted later. May take milliseconds, about as many for a thousand flows as
    /// for one; packets meet the flows no more a moment after the call began. `each` may call
    /// back into this trait.
    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats));

    /// Statistics of all flows. `each` may call back into this trait.
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats));

    /// One flow.
    fn flow(&self, ufid: Ufid) -> Option<Held>;

    /// One flow's statistics.
    fn stats(&self, ufid: Ufid) -> Option<FlowStats> {
        self.flow(ufid).map(|held| held.stats)
    }

    /// What a flow does; perhaps not written as it was when it was installed.
    fn actions(&self, ufid: Ufid) -> Option<Actions>;

    /// Number of flows.
    fn len(&self) -> usize;

    /// True when it holds no flow.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when the flow is there and does what `actions` say.
    fn encodes_alike(&self, ufid: Ufid, actions: &Actions) -> bool;

    /// Packets that it dropped.
    fn drops(&self, reason: DropReason) -> u64;

    /// Lookups.
    fn lookups(&self) -> LookupStats;

    /// What it counted at a port on the side of the host's stack.
    fn port_counts(&self, port: PortNo) -> PortCounts;

    /// A port is there no more, and another one may get its number: what [`FastPath::port_counts`]
    /// tells begins anew.
    fn forget_counts(&self, port: PortNo);

    /// Packets that it sent up.
    fn sent_up(&self) -> u64;

    /// Sets a meter.
    ///
    /// # Errors
    ///
    /// It cannot have this meter; flows that use it must not come here.
    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal>;

    /// Removes a meter.
    fn remove_meter(&self, id: u32) -> Option<MeterStats>;

    /// A meter's statistics.
    fn meter_stats(&self, id: u32) -> Option<MeterStats>;

    /// Housekeeping; called by one thread about twice a second.
    fn maintain(&self);

    /// Ends. Without `cleanup` all that can goes on forwarding without the daemon.
    fn close(&self, cleanup: bool);
}
