// SPDX-License-Identifier: Apache-2.0
//! Mirrored packets.
//!
//! As in OVS a packet is mirrored as it is when it first becomes eligible: before the tables, by its
//! input port, or after an output, by the output port. It goes to each destination once, also when
//! it is frozen and thawed in between. Each bridge that a packet enters by a patch port mirrors for
//! itself.

use super::context::Context;
use super::normal::is_reserved;
use super::vlan::Vlans;
use crate::effect::Effect;
use crate::mirror::{MirrorOutput, MirrorSet};
use crate::snapshot::BundleView;
use crate::trace::Kind;
use flow::VLAN_CFI;
use openflow::PortNo;
use std::sync::Arc;

impl<'a> Context<'a> {
    /// Mirrors the packet as one that the present input port has received.
    pub(super) fn mirror_input(&mut self) {
        if let Some((index, bundle)) = self.bundle_of(self.in_port()) {
            self.mirror(bundle, self.bridge.mirrors.of_source(index));
        }
    }

    /// Mirrors the packet as one that `port` has just sent.
    pub(super) fn mirror_output(&mut self, port: PortNo) {
        if let Some((index, bundle)) = self.bundle_of(port) {
            self.mirror(bundle, self.bridge.mirrors.of_destination(index));
        }
    }

    /// Returns true, and reports it, when the present input port is reserved for mirrored packets:
    /// it discards what it receives.
    pub(super) fn is_input_reserved(&mut self) -> bool {
        let Some((index, bundle)) = self.bundle_of(self.in_port()) else { return false };
        let is_reserved = self.bridge.mirrors.reserves(index);
        if is_reserved {
            self.report(Kind::Error, || {
                format!(
                    "dropping packet received on port {}, which is reserved exclusively for mirroring",
                    bundle.name
                )
            });
        }
        is_reserved
    }

    /// Sends the packet to those of `candidates` that select it. `bundle` is the one that has
    /// received or sent it.
    fn mirror(&mut self, bundle: &BundleView, candidates: MirrorSet) {
        let bridge = self.bridge;
        let mut candidates = candidates & !self.mirrored;
        let wire = Vlans::of(&self.key);
        if candidates != 0 {
            // The VLAN decides whether the packet is mirrored, and the headers that it leaves with.
            for v in &mut self.mask.0.vlans {
                v.tci.set(v.tci.get() | VLAN_CFI | 0x0fff);
            }
        }
        // As in OVS a trace reports it, whether the packet is mirrored or not.
        if let Some(reason) = wire.refuse_input(bundle) {
            self.report(Kind::Error, || reason);
            return;
        }
        let vlans = wire.input(bundle);
        while let Some((mirror, rest)) = bridge.mirrors.first(candidates) {
            candidates = rest;
            let is_selected =
                mirror.vlans.is_empty() || mirror.vlans.binary_search(&vlans.vid()).is_ok();
            if !is_selected || !self.passes(mirror.filter.as_ref()) {
                continue;
            }
            self.mirrored |= mirror.same_output;
            self.effect(|| Effect::Mirror(Arc::clone(&mirror.stats)));
            let outer = std::mem::replace(&mut self.mirror_snaplen, mirror.snaplen);
            match mirror.output {
                MirrorOutput::Bundle(output) => {
                    if let Some(output) = bridge.bundles.get(output) {
                        self.output_bundle(output, &vlans);
                    }
                }
                MirrorOutput::Vlan(vlan) => self.mirror_to_vlan(&vlans, vlan),
            }
            self.mirror_snaplen = outer;
            // The output may have been mirrored, too.
            candidates &= !self.mirrored;
        }
    }

    /// Sends the packet, in `vlan` instead of its own VLAN, to each bundle that carries `vlan`.
    fn mirror_to_vlan(&mut self, vlans: &Vlans, vlan: u16) {
        self.mask.0.dl_dst = [0xff; 6];
        if vlans.vid() == vlan || is_reserved(&self.key.dl_dst) {
            return;
        }
        let bridge = self.bridge;
        let vlans = vlans.moved_to(vlan);
        for (index, bundle) in bridge.bundles.iter().enumerate() {
            if vlans.included_in(bundle) && !bridge.mirrors.reserves(index) {
                self.output_bundle(bundle, &vlans);
            }
        }
    }

    /// Returns true when the packet matches `filter`. The bits that decide become exact.
    fn passes(&mut self, filter: Option<&flow::Match>) -> bool {
        let Some(filter) = filter else { return true };
        self.mask.union(filter.mask());
        filter.matches(&self.key)
    }

    /// Returns the bundle of `port`, and its index, where the present bridge has mirrors.
    fn bundle_of(&self, port: PortNo) -> Option<(usize, &'a BundleView)> {
        if self.bridge.mirrors.is_empty() {
            return None;
        }
        let index = self.port(port)?.bundle?;
        Some((index, self.bridge.bundles.get(index)?))
    }
}
