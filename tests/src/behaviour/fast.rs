// SPDX-License-Identifier: Apache-2.0
//! The BPF tiers over a userspace datapath, and where packets ran.

use super::PORTS;
use crate::harness::skip;
use clock::Clock;
use datapath::offload::ProviderSlot;
use datapath::{Flows, OffloadProvider, PortNo, Tier, TierSet, Ufid};
use datapath_bpf::ct_memory::BpfMemory;
use datapath_bpf::grace::Grace;
use datapath_bpf::{BpfDatapath, BpfProvider, Config, Unavailable};
use datapath_tc::{CARD, CardProvider};
use datapath_userspace::UserspaceDatapath;
use packet::Packet;
use placement::PlacedDatapath;
use std::collections::{BTreeSet, HashMap};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where packets ran, since the fixture was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Frames that came in at ports.
    pub sent: u64,
    /// Packets that met a flow in a filter of the kernel.
    pub in_flower: u64,
    /// Lookups in BPF that found a flow. Later passes count as well.
    pub hits: u64,
    /// Frames that XDP kept.
    pub at_xdp: u64,
    /// Packets that BPF handed over to userspace.
    pub up: u64,
    /// Packets that ran in userspace although their flow is in BPF.
    pub fallen_back: u64,
}

/// Packets that each flow counted in userspace.
pub(super) type InBase = HashMap<Ufid, u64>;

/// Filters in the kernel, above BPF.
pub(super) struct Flower(Arc<CardProvider>);

impl Flower {
    /// Returns true where the kernel has no `flower`, after saying so.
    pub(super) fn is_absent() -> bool {
        let modules = "modprobe -a cls_flower sch_ingress act_mirred act_vlan act_gact act_pedit act_csum \
                       act_mpls 2>/dev/null";
        let is_there = Command::new("sh").args(["-c", modules]).status();
        let is_absent = !is_there.is_ok_and(|status| status.success());
        if is_absent {
            skip("this kernel has no cls_flower: `cargo xtask vm` has kernels with it");
        }
        is_absent
    }

    fn open(clock: Clock) -> Flower {
        Flower(Arc::new(CardProvider::open(clock).expect("root can open a netlink socket")))
    }
}

pub(super) struct Fast {
    tier: Tier,
    flower: Option<Flower>,
    /// The reasons for which filters did not take flows.
    refused: Mutex<BTreeSet<String>>,
    placed: Arc<PlacedDatapath>,
    base: Arc<UserspaceDatapath>,
    bpf: Arc<BpfDatapath>,
    grace: Grace,
    sent: AtomicU64,
    fallen_back: AtomicU64,
}

impl Fast {
    /// Puts BPF over `base`, which tracks by `connections`, after the places `above` in the list of providers.
    ///
    /// # Errors
    ///
    /// This process cannot use BPF on this host. (A fault in the programs is a panic.)
    pub(super) fn over(
        base: &Arc<UserspaceDatapath>,
        clock: Clock,
        tier: Tier,
        above: Vec<ProviderSlot>,
        connections: &BpfMemory,
    ) -> Result<Fast, Unavailable> {
        let config = Config { pins: None, max_flows: 1024, ..Config::default() };
        let flower = (tier == Tier::Tc).then(|| Flower::open(clock.clone()));
        let bpf = match BpfDatapath::open_over(config, clock, None, Some(connections)) {
            Ok(bpf) => Arc::new(bpf),
            Err(e @ (Unavailable::Permission(_) | Unavailable::Kernel { .. })) => return Err(e),
            Err(e) => panic!("{e}"),
        };
        let list = above.into_iter().chain([datapath_bpf::provider_slot()]).collect();
        let placed = PlacedDatapath::new(base.clone(), list);
        placed.begin(TierSet::XDP_AND_TCX, Ok(Arc::new(BpfProvider::new(bpf.clone()))));
        placed.serve(TierSet::XDP_AND_TCX, base).expect("root can make a tap device");
        if let Some(flower) = &flower {
            placed.begin(CARD, Ok(flower.0.clone()));
            placed.serve(CARD, base).expect("it has no miss device");
        }
        Ok(Fast {
            tier,
            flower,
            refused: Mutex::default(),
            placed,
            base: base.clone(),
            bpf,
            grace: Grace::new().expect("BPF was there"),
            sent: AtomicU64::new(0),
            fallen_back: AtomicU64::new(0),
        })
    }

    pub(super) fn placed(&self) -> &Arc<PlacedDatapath> {
        &self.placed
    }

    pub(super) fn tier(&self) -> Tier {
        self.tier
    }

    /// The port is where the fixture's name says.
    pub(super) fn check_port(&self, number: PortNo) {
        let tiers = self.placed.tiers(number).expect("it was added");
        let state = tiers.into_iter().find(|t| t.tier == self.tier).expect("all are listed").state;
        assert_eq!(state, Ok(()), "port {number}");
        if self.tier == Tier::Xdp {
            assert_eq!(self.placed.output_state(number, Tier::Xdp), Some(Ok(())), "port {number}");
        }
    }

    /// BPF adds up what its flows took when it looks at each.
    pub(super) fn bring_up_to_date(&self) {
        self.bpf.sweep(&mut |_, _| {});
        if let Some(flower) = &self.flower {
            flower.0.sweep(&mut |_, _| {});
        }
    }

    /// Offers flows to filters, which only housekeeping does, and notes the refusals.
    pub(super) fn offer_to_flower(&self) {
        if self.flower.is_none() {
            return;
        }
        self.placed.maintain();
        let mut ufids = Vec::new();
        self.base.sweep(&mut |ufid, _| ufids.push(ufid));
        let mut noted = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for dump in ufids.into_iter().filter_map(|ufid| self.placed.flow(ufid)) {
            if let Some(reason) = dump.refusals.get(Tier::Tc) {
                noted.insert(reason.name().to_owned());
            }
        }
    }

    /// Returns the reasons for which filters did not take flows.
    pub(super) fn refused_by_flower(&self) -> BTreeSet<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn wait_for_programs(&self) {
        self.grace.wait().expect("it did wait before");
    }

    /// True when what went up was processed and sent.
    pub(super) fn is_idle(&self) -> bool {
        (1..=PORTS as u32 + 1).all(|port| self.bpf.on_their_way(PortNo(port)) == 0)
    }

    pub(super) fn note_sent(&self, frames: u64) {
        self.sent.fetch_add(frames, Ordering::Relaxed);
    }

    /// Returns how many packets userspace has counted for each flow that is in BPF, too. Empty if one
    /// of `packets` is still to be segmented, because BPF cannot run some actions on such a packet.
    pub(super) fn in_base(&self, packets: &[Packet]) -> InBase {
        if packets.iter().any(|p| p.offload.gso.is_some()) {
            return InBase::new();
        }
        let mut counts = InBase::new();
        self.base.sweep(&mut |ufid, stats| {
            let is_fast = self.placed.flow(ufid).is_some_and(|f| f.tier != Tier::Userspace);
            if is_fast {
                counts.insert(ufid, stats.packets);
            }
        });
        counts
    }

    pub(super) fn note_fallen_back(&self, before: InBase) {
        self.base.sweep(&mut |ufid, stats| {
            if let Some(before) = before.get(&ufid) {
                self.fallen_back.fetch_add(stats.packets - before, Ordering::Relaxed);
            }
        });
    }

    pub(super) fn ran(&self) -> Ran {
        self.bring_up_to_date();
        let totals = self.bpf.counters();
        let sent = self.sent.load(Ordering::Relaxed);
        let at_xdp = if self.tier == Tier::Xdp { sent - totals.passed } else { 0 };
        let flower = self.flower.as_ref().map_or(0, |flower| flower.0.lookups().hits);
        Ran {
            sent,
            in_flower: flower,
            hits: totals.hits,
            at_xdp,
            up: totals.up,
            fallen_back: self.fallen_back.load(Ordering::Relaxed),
        }
    }
}
