// SPDX-License-Identifier: Apache-2.0
//! Counters of a datapath, in addition to those of flows and ports.

/// Why a packet was dropped. Each has a counter, shown by `coverage/show` and `dpctl/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// A flow's actions say drop (no rule matched, or the rule has no output).
    Flow,
    /// The translation failed (too deep resubmits, a loop, …).
    TranslationError,
    /// Too many resubmits or recirculations.
    RecirculationLimit,
    /// The ingress port is not (or no longer) a port of a bridge, or the egress port is one by which
    /// packets leave only in the headers of a tunnel.
    UnknownPort,
    /// Egress port vanished.
    OutputPortGone,
    /// The egress device's queue was full.
    OutputQueueFull,
    /// Longer than the MTU of the egress device, or of a tunnel's path.
    OutputTooLong,
    /// The egress device is down or failed.
    OutputError,
    /// The port's share of upcalls was used up.
    UpcallLimit,
    /// A meter's band.
    Meter,
    /// A header that an action needs is not there or is malformed.
    Malformed,
    /// An action that this datapath cannot run.
    UnsupportedAction,
    /// The policer of the ingress or of the egress port.
    Policing,
    /// The fragments of a packet that would be longer than 65,535 bytes.
    FragmentsTooLong,
    /// Fragments whose packet was never complete, and that no later packet released.
    FragmentsPurged,
    /// The flow whose `ct` the packet had met in a faster tier was gone.
    CtStale,
    /// The outer headers of a packet are not those of the tunnel port that was to take them off.
    TunnelPop,
    /// Outer headers cannot carry the packet.
    TunnelPush,
    /// The tunnel port of an action vanished.
    InvalidTunnelPort,
    /// The outer header has a congestion mark, and the packet may have none (RFC 6040, 4.2).
    Congestion,
    /// A packet that came in by a device of the host, or that goes to an address of the host, is no
    /// tunnel's.
    NoTunnel,
    /// The spanning tree does not let the ingress port forward.
    ForwardingDisabled,
    /// The bond of an action vanished, or no member carries its traffic.
    InvalidBond,
}

impl DropReason {
    /// All of them, in numeric order.
    pub const ALL: [DropReason; 23] = [
        DropReason::Flow,
        DropReason::TranslationError,
        DropReason::RecirculationLimit,
        DropReason::UnknownPort,
        DropReason::OutputPortGone,
        DropReason::OutputQueueFull,
        DropReason::OutputTooLong,
        DropReason::OutputError,
        DropReason::UpcallLimit,
        DropReason::Meter,
        DropReason::Malformed,
        DropReason::UnsupportedAction,
        DropReason::Policing,
        DropReason::FragmentsTooLong,
        DropReason::FragmentsPurged,
        DropReason::CtStale,
        DropReason::TunnelPop,
        DropReason::TunnelPush,
        DropReason::InvalidTunnelPort,
        DropReason::Congestion,
        DropReason::NoTunnel,
        DropReason::ForwardingDisabled,
        DropReason::InvalidBond,
    ];

    /// That with this number; `None`: there is none.
    pub fn from_number(number: u32) -> Option<DropReason> {
        DropReason::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Flow => "drop_action_of_pipeline",
            DropReason::TranslationError => "drop_action_translation_error",
            DropReason::RecirculationLimit => "drop_action_recursion_too_deep",
            DropReason::UnknownPort => "datapath_drop_invalid_port",
            DropReason::OutputPortGone => "datapath_drop_output_port_gone",
            DropReason::OutputQueueFull => "datapath_drop_output_queue_full",
            DropReason::OutputTooLong => "datapath_drop_output_too_long",
            DropReason::OutputError => "datapath_drop_output_error",
            DropReason::UpcallLimit => "datapath_drop_upcall_limit",
            DropReason::Meter => "datapath_drop_meter",
            DropReason::Malformed => "datapath_drop_malformed",
            DropReason::UnsupportedAction => "datapath_drop_unsupported_action",
            DropReason::Policing => "datapath_drop_policing",
            DropReason::FragmentsTooLong => "datapath_drop_fragments_too_long",
            DropReason::FragmentsPurged => "datapath_drop_fragments_purged",
            DropReason::CtStale => "datapath_drop_ct_stale",
            DropReason::TunnelPop => "datapath_drop_tunnel_pop_error",
            DropReason::TunnelPush => "datapath_drop_tunnel_push_error",
            DropReason::InvalidTunnelPort => "datapath_drop_invalid_tnl_port",
            DropReason::Congestion => "drop_action_congestion",
            DropReason::NoTunnel => "datapath_drop_no_tunnel",
            DropReason::ForwardingDisabled => "drop_action_forwarding_disabled",
            DropReason::InvalidBond => "datapath_drop_invalid_bond",
        }
    }
}

/// Lookups of a datapath since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LookupStats {
    /// Packets that found a megaflow.
    pub hits: u64,
    /// Packets that called up.
    pub misses: u64,
    /// Packets dropped because an upcall could not be made.
    pub lost: u64,
    /// Masks (subtables) looked at, in all lookups that went past the exact-match cache.
    pub mask_hits: u64,
    /// Hits of the exact-match (microflow) cache.
    pub cache_hits: u64,
    /// Masks now.
    pub masks: usize,
    /// Megaflows now.
    pub flows: usize,
}
