// SPDX-License-Identifier: Apache-2.0
//! The suite's extra expectation of the BPF tiers: they process the packets of each case. Filters in the
//! kernel (`tc`) do, or have refused flows with a reason.
//! Exceptions are listed here with the reason. A case fails, too, if its reason no longer holds.

use super::{Ran, Veth, World};
use datapath::Tier;
use std::collections::BTreeSet;

/// The expectation that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Not {
    /// The case: it is not run.
    Holding,
    /// Some packet meets a flow in BPF.
    InBpf,
    /// Some packet stays at XDP.
    AtXdp,
    /// All packets of flows in BPF run there.
    AllInBpf,
}

struct Exception {
    case: &'static str,
    tiers: &'static [Tier],
    not: Not,
    why: &'static str,
}

const BOTH: &[Tier] = &[Tier::Xdp, Tier::Tcx];
const XDP: &[Tier] = &[Tier::Xdp];
const TCX: &[Tier] = &[Tier::Tcx];
const TC: &[Tier] = &[Tier::Tc];

const COPY: &str = "a nested list runs on a copy, so the packet is unchanged after it";
const TUNNEL: &str = "no program pushes outer headers";
const POPPED_ABOVE: &str = "what programs do not pop goes up with its headers";
const UP: &str = "its flows call up, or there are none";
const UNEQUAL: &str = "XDP has one frame: copies are of what it is in the end";
const SPLIT: &str = "a frame in several buffers is cut in userspace: kernels lose pages of it at XDP, \
                     and the skb hook cannot finish a checksum before it cuts";
const OF_SKB: &str = "priority and mark are an skb's";
const NO_FLOW: &str = "no flow has the id: packets go up, from XDP by tcx";
const HOURS: &str = "BPF has the kernel's clock, and the case waits for hours";
const ONE_MTU: &str = "filters have no flow to a port with a smaller MTU, so the ports have one";

const fn but(case: &'static str, not: Not, tiers: &'static [Tier], why: &'static str) -> Exception {
    Exception { case, tiers, not, why }
}

/// The cases that are run over filters in the kernel. The others wait to be looked at: filters refuse most
/// of their flows (recirculation, connections, samples).
const AT_TC: &[&str] = &[
    "a_full_table_refuses",
    "a_hit_runs_the_actions_and_counts",
    "a_removed_port_can_come_back",
    "an_identity_is_taken_once",
    "copies_are_equal",
    "copies_that_some_port_does_not_take",
    "deep_nesting_is_refused",
    "drops_have_reasons",
    "flush_and_dump",
    "masks_of_many_shapes_find_their_packets",
    "modify_replaces_actions_and_keeps_statistics",
    "mpls_push_set_and_pop",
    "output_to_a_removed_port_is_counted",
    "output_to_several_ports",
    "overlapping_megaflows_agree",
    "packets_stay_in_order",
    "ports_are_listed_added_and_removed",
    "remove_returns_final_statistics",
    "segmented_packets_keep_their_offload",
    "statistics_are_exact",
    "sweep_may_call_back",
    "too_long_frames_are_counted",
    "vlan_push_pop_and_qinq",
];

const EXCEPTIONS: &[Exception] = &[
    but(
        "a_report_quotes_the_packet_as_it_came",
        Not::Holding,
        BOTH,
        "a packet that programs have changed goes up with its changes, and the report has them",
    ),
    but(
        "segmented_packets_keep_their_offload",
        Not::Holding,
        XDP,
        "before XDP the sender has cut what was to be segmented: four packets are counted",
    ),
    but("too_long_frames_are_counted", Not::Holding, TC, ONE_MTU),
    but("copies_that_some_port_does_not_take", Not::Holding, TC, ONE_MTU),
    but(
        "statistics_are_exact",
        Not::Holding,
        TC,
        "filters report no TCP flags; the suite `flower` compares packets and bytes",
    ),
    but("clone_is_isolated", Not::InBpf, BOTH, COPY),
    but("sample_always_and_never", Not::InBpf, BOTH, COPY),
    but("sample_takes_its_share", Not::AtXdp, XDP, UNEQUAL),
    but("a_bond_gets_copies", Not::AtXdp, XDP, UNEQUAL),
    but("check_pkt_len_branches", Not::InBpf, BOTH, COPY),
    but("recirculation_looks_up_again", Not::InBpf, BOTH, COPY),
    but(
        "recirculation_looks_up_again",
        Not::AllInBpf,
        BOTH,
        "what was looked up in userspace is looked up again there",
    ),
    but("frames_cut_anywhere_are_survived", Not::InBpf, BOTH, COPY),
    but(
        "trunc_cuts_the_next_output_only",
        Not::InBpf,
        TCX,
        "the skb hook cannot finish a checksum before it cuts",
    ),
    but(
        "a_cut_output_may_end_a_list",
        Not::InBpf,
        TCX,
        "the skb hook cannot finish a checksum before it cuts",
    ),
    but("a_miss_calls_up_and_runs_the_answer", Not::InBpf, BOTH, UP),
    but(
        "recirculations_by_flows_count_when_an_answer_continues",
        Not::AtXdp,
        XDP,
        "a packet that finds no flow in the end starts again at tcx",
    ),
    but("a_refused_install_still_forwards", Not::InBpf, BOTH, UP),
    but("an_action_upcall_gets_the_packet_as_it_is", Not::InBpf, BOTH, UP),
    but("an_answer_to_an_action_upcall_runs_on_the_copy", Not::InBpf, BOTH, UP),
    but("upcalls_that_answer_with_upcalls_end", Not::InBpf, BOTH, UP),
    but("upcalls_may_call_everything", Not::InBpf, BOTH, UP),
    but("output_to_several_ports", Not::AtXdp, XDP, UNEQUAL),
    but(
        "output_to_a_removed_port_is_counted",
        Not::AtXdp,
        XDP,
        "a port that takes no copy is counted at tcx",
    ),
    but("jumbo_frames_are_edited_whole", Not::AllInBpf, XDP, SPLIT),
    but("too_long_frames_are_counted", Not::AllInBpf, XDP, SPLIT),
    but("metadata_survives_recirculation", Not::AtXdp, XDP, OF_SKB),
    but("a_recirculation_may_end_a_list", Not::AtXdp, XDP, OF_SKB),
    but("recirculation_is_limited", Not::AtXdp, XDP, UNEQUAL),
    but("long_lists_run_whole_in_every_pass", Not::AtXdp, XDP, UNEQUAL),
    but(
        "long_lists_run_whole_in_every_pass",
        Not::AllInBpf,
        BOTH,
        "a packet makes 33 tail calls at most; what is left of a long way is done in userspace",
    ),
    but("a_nested_list_may_end_a_list", Not::AtXdp, XDP, UNEQUAL),
    but("a_sample_may_end_a_list", Not::AtXdp, XDP, UNEQUAL),
    but("all_fragments_of_a_packet_have_one_hash", Not::AtXdp, XDP, NO_FLOW),
    but("hash_is_seen_after_recirculation", Not::AtXdp, XDP, NO_FLOW),
    but("edits_before_a_lookup_that_misses_are_done_once", Not::AtXdp, XDP, NO_FLOW),
    but("a_connection_is_new_then_established", Not::AtXdp, XDP, NO_FLOW),
    but("other_protocols_are_tracked", Not::AtXdp, XDP, NO_FLOW),
    but("what_cannot_be_tracked_is_invalid", Not::AtXdp, XDP, NO_FLOW),
    but("force_turns_a_connection", Not::AtXdp, XDP, NO_FLOW),
    but("zones_are_apart", Not::AtXdp, XDP, NO_FLOW),
    but("mark_and_label_stay_with_the_connection", Not::AtXdp, XDP, NO_FLOW),
    but("source_nat_translates_both_ways", Not::AtXdp, XDP, NO_FLOW),
    but("destination_nat_translates_both_ways", Not::AtXdp, XDP, NO_FLOW),
    but("errors_are_translated_with_what_they_quote", Not::AtXdp, XDP, NO_FLOW),
    but("clear_forgets", Not::AtXdp, XDP, NO_FLOW),
    but("a_changed_packet_is_looked_up_again", Not::AtXdp, XDP, NO_FLOW),
    but("tracking_in_a_copy_stays_there", Not::AtXdp, XDP, NO_FLOW),
    but("execution_goes_on_with_the_key_s_connection", Not::AtXdp, XDP, NO_FLOW),
    but("limits_and_flushes", Not::AtXdp, XDP, NO_FLOW),
    but("a_helper_translates_what_it_reads", Not::AtXdp, XDP, NO_FLOW),
    but("fragments_wait_for_each_other", Not::AtXdp, XDP, NO_FLOW),
    but("connections_end_by_the_clock", Not::Holding, BOTH, HOURS),
    but("ended_connections_are_removed", Not::Holding, BOTH, HOURS),
    but("fragments_without_their_packet_go_on_as_invalid", Not::Holding, BOTH, HOURS),
    but("fields_of_a_tunnel_can_be_set", Not::InBpf, BOTH, TUNNEL),
    but("tunnel_ports_that_are_gone_drop", Not::InBpf, BOTH, TUNNEL),
    but("lengths_and_cuts_with_outer_headers", Not::AtXdp, XDP, UNEQUAL),
    but("tunnels_in_tunnels_end", Not::AtXdp, XDP, POPPED_ABOVE),
    but("tunnels_in_tunnels_end", Not::AllInBpf, BOTH, POPPED_ABOVE),
    but("pushed_headers_come_off_again", Not::AllInBpf, BOTH, POPPED_ABOVE),
    but("headers_that_are_not_the_tunnel_s_drop", Not::AllInBpf, BOTH, POPPED_ABOVE),
    but("packets_without_an_ethernet_header", Not::AllInBpf, BOTH, POPPED_ABOVE),
    but("flows_match_the_fields_of_erspan", Not::AllInBpf, BOTH, UP),
];

fn exception(case: &str, tier: Tier, not: Not) -> Option<&'static str> {
    let can_be = |e: &&Exception| e.why != SPLIT || datapath_bpf::load::have_frags();
    let is_it =
        |e: &&Exception| e.case == case && e.not == not && e.tiers.contains(&tier) && can_be(e);
    EXCEPTIONS.iter().find(is_it).map(|e| e.why)
}

/// Runs a case over ports at `tier`, and checks that its packets ran where they can.
pub fn run_at(tier: Tier, case: &'static str, run: fn(&World)) {
    if tier == Tier::Tc && !AT_TC.contains(&case) {
        eprintln!("NOT AT {}: the case has not been looked at", tier.name());
        return;
    }
    if let Some(why) = exception(case, tier, Not::Holding) {
        eprintln!("NOT AT {}: {why}", tier.name());
        return;
    }
    Veth::run(tier, move |fixture| {
        let world = World::new(fixture);
        run(&world);
        if let Some(ran) = world.fixture().ran() {
            eprintln!("{case} at {}: {ran:?}", tier.name());
            match tier {
                Tier::Tc => check_flower(case, ran, &world.fixture().refused_by_flower()),
                _ => check(case, tier, ran),
            }
        }
    });
}

/// Runs a case at a tier under a card, which takes some of the packets.
pub fn run_under_card(tier: Tier, case: &'static str, run: fn(&World)) {
    match exception(case, tier, Not::Holding) {
        Some(why) => eprintln!("NOT AT {}: {why}", tier.name()),
        None => Veth::run_under_card(tier, move |fixture| run(&World::new(fixture))),
    }
}

fn check(case: &str, tier: Tier, ran: Ran) {
    if ran.sent == 0 {
        return;
    }
    let in_bpf = ran.hits > 0;
    let mut seen = vec![(Not::InBpf, in_bpf), (Not::AllInBpf, ran.fallen_back == 0)];
    if tier == Tier::Xdp && in_bpf {
        seen.push((Not::AtXdp, ran.at_xdp > 0));
    }
    for (not, holds) in seen {
        let why = exception(case, tier, not);
        assert_eq!(holds, why.is_none(), "{case}, {not:?}: {ran:?}; listed because: {why:?}");
    }
}

/// Filters take flows only between packets, and a case may remove its flows before the next packet.
fn check_flower(case: &str, ran: Ran, refused: &BTreeSet<String>) {
    let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
    eprintln!("{case}: refused for {refused:?}");
    if ran.sent == 0 {
        return;
    }
    assert!(ran.in_flower > 0 || !refused.is_empty(), "{case}: {ran:?}");
}
