// SPDX-License-Identifier: Apache-2.0
//! Why a datapath, or a faster tier of one, did not take a flow.

/// Why a datapath refused a megaflow, or why a megaflow is not in a faster tier. One enumeration
/// feeds the counters, the flow dump and `explain`. A refusal is an ordinary answer: the next
/// tier gets the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// The table has no room.
    TableFull,
    /// A megaflow with this identity exists already.
    Exists,
    /// The match has a field that this datapath does not parse.
    UnsupportedKey,
    /// An action that this datapath cannot run.
    UnsupportedAction,
    /// A port of the flow is not on this datapath or tier.
    PortNotHere,
    /// A fault that a test's datapath made up. No tier of a running switch gives it.
    #[doc(hidden)]
    Synthetic,
    /// The tier holds as many different masks as it can walk.
    MasksFull,
    /// The tier holds as many lists of actions as it can.
    ProgramsFull,
    /// `other_config:bpf-offload` or `hw-offload` keeps all flows from the tier.
    TierDisabled,
    /// The port's `other_config:tier` keeps it in another tier.
    TierSetting,
    /// The running kernel lacks a feature that the tier needs.
    KernelTooOld,
    /// The daemon lacks a capability, or the system forbids it.
    NoPermission,
    /// The tier could not be set up for another cause, which was logged.
    TierUnavailable,
    /// The device is of no kind that the tier can work on.
    DeviceKind,
    /// The device's driver lacks a feature that the tier needs.
    DriverLacksSupport,
    /// Another program holds the device's hook.
    HookBusy,
    /// The port has ingress policing, which the tier does not do.
    Policing,
    /// The kernel might silently drop packets that XDP redirects to a port of the flow.
    UnverifiedPeer,
    /// The actions call up for each packet.
    NeedsUserspace,
    /// Just installed: waits until the packets before it are sent.
    Unsettled,
    /// Made room in a full table for flows with more packets.
    Evicted,
    /// The port's `options:bpf-object` cannot be used.
    UserObject,
    /// The tier holds as many sets of ports for copies as it can.
    PortSetsFull,
    /// The tier lost the flow by itself, as a card does that is reset. It is offered again.
    Lost,
    /// A `ct` of the actions has a helper, which looks into the data of packets.
    CtHelper,
    /// A `ct` of the actions is for a copy of the packet.
    CtPlace,
    /// The tier does not share the table of connections.
    CtTable,
    /// The tier cannot push the headers of a tunnel.
    TunnelHeader,
    /// The headers of a tunnel are for a copy of the packet, which the tier cannot change alone.
    TunnelPlace,
    /// The tier holds as many headers of tunnels as it can.
    TunnelHeadersFull,
    /// The driver of a card, or the kernel, declined the flow; [`OffloadProvider::explanations`] has
    /// its words.
    ///
    /// [`OffloadProvider::explanations`]: crate::OffloadProvider::explanations
    CardRefused,
    /// A port of the flow belongs to another card.
    OtherSwitch,
    /// The driver's `hw-tc-offload` is off.
    CardOff,
    /// The tier matches which VLAN headers a packet has, and the megaflow does not.
    TagsOpen,
    /// The tier would send or receive past the QoS of a port of the flow.
    Qos,
    /// The tier has no such bond: it has none at all, or as many as it can.
    Bond,
}

impl Refusal {
    /// All of them, in the order of their counters: `ALL[r as usize]` is `r`.
    pub const ALL: [Refusal; 36] = [
        Refusal::TableFull,
        Refusal::Exists,
        Refusal::UnsupportedKey,
        Refusal::UnsupportedAction,
        Refusal::PortNotHere,
        Refusal::Synthetic,
        Refusal::MasksFull,
        Refusal::ProgramsFull,
        Refusal::TierDisabled,
        Refusal::TierSetting,
        Refusal::KernelTooOld,
        Refusal::NoPermission,
        Refusal::TierUnavailable,
        Refusal::DeviceKind,
        Refusal::DriverLacksSupport,
        Refusal::HookBusy,
        Refusal::Policing,
        Refusal::UnverifiedPeer,
        Refusal::NeedsUserspace,
        Refusal::Unsettled,
        Refusal::Evicted,
        Refusal::UserObject,
        Refusal::PortSetsFull,
        Refusal::Lost,
        Refusal::CtHelper,
        Refusal::CtPlace,
        Refusal::CtTable,
        Refusal::TunnelHeader,
        Refusal::TunnelPlace,
        Refusal::TunnelHeadersFull,
        Refusal::CardRefused,
        Refusal::OtherSwitch,
        Refusal::CardOff,
        Refusal::TagsOpen,
        Refusal::Qos,
        Refusal::Bond,
    ];

    /// Text in dumps and counters.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::TableFull => "table-full",
            Refusal::Exists => "exists",
            Refusal::UnsupportedKey => "unsupported-key",
            Refusal::UnsupportedAction => "unsupported-action",
            Refusal::PortNotHere => "port-not-here",
            Refusal::Synthetic => "synthetic",
            Refusal::MasksFull => "masks-full",
            Refusal::ProgramsFull => "programs-full",
            Refusal::TierDisabled => "tier-disabled",
            Refusal::TierSetting => "tier-setting",
            Refusal::KernelTooOld => "kernel-too-old",
            Refusal::NoPermission => "no-permission",
            Refusal::TierUnavailable => "tier-unavailable",
            Refusal::DeviceKind => "device-kind",
            Refusal::DriverLacksSupport => "driver-lacks-support",
            Refusal::HookBusy => "hook-busy",
            Refusal::Policing => "policing",
            Refusal::UnverifiedPeer => "unverified-peer",
            Refusal::NeedsUserspace => "needs-userspace",
            Refusal::Unsettled => "unsettled",
            Refusal::Evicted => "evicted",
            Refusal::UserObject => "user-object",
            Refusal::PortSetsFull => "port-sets-full",
            Refusal::Lost => "lost",
            Refusal::CtHelper => "ct-helper",
            Refusal::CtPlace => "ct-place",
            Refusal::CtTable => "ct-table",
            Refusal::TunnelHeader => "tunnel-header",
            Refusal::TunnelPlace => "tunnel-place",
            Refusal::TunnelHeadersFull => "tunnel-headers-full",
            Refusal::CardRefused => "card-refused",
            Refusal::OtherSwitch => "other-switch",
            Refusal::CardOff => "card-off",
            Refusal::TagsOpen => "tags-open",
            Refusal::Qos => "qos",
            Refusal::Bond => "bond",
        }
    }

    /// A sentence for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Refusal::TableFull => "the tier's flow table is full",
            Refusal::Exists => "a flow with this identity is there already",
            Refusal::UnsupportedKey => "the tier does not parse a field that the flow matches",
            Refusal::UnsupportedAction => "the tier cannot run one of the flow's actions",
            Refusal::PortNotHere => "a port of the flow is not on the tier",
            Refusal::Synthetic => "a fault that a test injected",
            Refusal::MasksFull => "the tier holds as many different masks as it can",
            Refusal::ProgramsFull => "the tier holds as many lists of actions as it can",
            Refusal::TierDisabled => "other_config:bpf-offload or hw-offload is false",
            Refusal::TierSetting => "the port's other_config:tier asks for another tier",
            Refusal::KernelTooOld => "the running kernel lacks what the tier needs",
            Refusal::NoPermission => "the daemon lacks a permission that the tier needs",
            Refusal::TierUnavailable => "the tier could not be set up",
            Refusal::DeviceKind => "the tier does not work on devices of this kind",
            Refusal::DriverLacksSupport => "the device's driver lacks what the tier needs",
            Refusal::HookBusy => "another program holds the device's hook",
            Refusal::Policing => {
                "the port has ingress policing, which is done at tcx and in userspace"
            }
            Refusal::UnverifiedPeer => "the kernel may drop what XDP redirects to a port",
            Refusal::NeedsUserspace => "the flow's actions call up for each packet",
            Refusal::Unsettled => "just installed: packets before it are still on their way",
            Refusal::Evicted => "made room in a full table for flows with more packets",
            Refusal::UserObject => "the port's options:bpf-object cannot be used",
            Refusal::PortSetsFull => "no room for one more set of ports to copy to at XDP",
            Refusal::Lost => "the tier lost the flow by itself; it is offered there again",
            Refusal::CtHelper => "a ct of the flow has alg=, which reads the data of packets",
            Refusal::CtPlace => {
                "a ct of the flow is in a clone, a sample or a branch amid its actions, or after push_vlan"
            }
            Refusal::CtTable => "the tier does not share the table of connections",
            Refusal::TunnelHeader => {
                "the tier does not push headers of this kind of tunnel, or none of this length"
            }
            Refusal::TunnelPlace => "the flow sends another copy after one in a tunnel",
            Refusal::TunnelHeadersFull => "the tier holds as many headers of tunnels as it can",
            Refusal::CardRefused => "the driver of the card declines the flow",
            Refusal::OtherSwitch => "a port of the flow belongs to another card",
            Refusal::CardOff => "hw-tc-offload of the port's driver is off",
            Refusal::TagsOpen => "the tier matches VLAN headers that the flow does not match",
            Refusal::Qos => "a port of the flow has QoS, which the tier would bypass",
            Refusal::Bond => {
                "the tier does not choose the member of a bond, or has no room for one more"
            }
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_refusal_has_a_counter_and_a_name_of_its_own() {
        for (i, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, i);
        }
        assert_eq!(Refusal::Bond as usize + 1, Refusal::ALL.len(), "the last one");
        let names: BTreeSet<_> = Refusal::ALL.into_iter().map(Refusal::name).collect();
        assert_eq!(names.len(), Refusal::ALL.len());
        assert!(Refusal::ALL.into_iter().all(|r| !r.meaning().is_empty()));
    }
}
