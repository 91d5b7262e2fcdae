// SPDX-License-Identifier: Apache-2.0
//! Cases that do not hold over the kernel's Open vSwitch datapath, each with the reason.

/// A case and the reason.
type Exception = (&'static str, &'static str);

const NO_REASONS: &str = "the kernel drops packets without a count of the reason";
const REFUSED: &str = "the kernel refuses a list that does not suit the packet, which counts as an \
                       unsupported action";
const NO_BONDS: &str = "the kernel's datapath does not choose the member of a bond";
const CLOCK: &str = "the kernel's clock cannot be moved";
const UNSET: &str = "the kernel does not set fields of ICMP, ARP, neighbour messages and NSH";
const LIBERAL: &str = "the kernel does not compare established TCP with its windows";
const LABELS: &str = "the kernel pushes labels on IP, ARP and MPLS without VLAN headers alone";
const DEVICES: &str = "the kernel's tunnels are devices, and no action pushes their headers";
const LOOPS: &str = "an answer that calls up again has no limit";

const EXCEPTIONS: &[Exception] = &[
    ("a_meter_drops_what_exceeds_it", CLOCK),
    ("statistics_are_exact", CLOCK),
    ("clone_is_isolated", "the kernel takes no VLAN header off where there is none, and goes on"),
    ("copies_that_some_port_does_not_take", NO_REASONS),
    ("drops_have_reasons", NO_REASONS),
    ("hash_is_seen_after_recirculation", "the kernel has a hash of its own"),
    ("recirculation_is_limited", "the kernel has a limit of its own"),
    ("recirculations_by_flows_count_when_an_answer_continues", LOOPS),
    ("a_bond_gets_copies", NO_BONDS),
    ("a_bond_sends_packets_as_they_are_by_then", NO_BONDS),
    ("a_bond_spreads_packets_of_one_megaflow", NO_BONDS),
    ("a_bucket_moves_at_once", NO_BONDS),
    ("a_connection_is_new_then_established", LIBERAL),
    ("established_packets_stay_with_their_flows", LIBERAL),
    (
        "destination_nat_translates_both_ways",
        "the kernel marks a translated destination as a translated source, too",
    ),
    ("what_cannot_be_tracked_is_invalid", "the kernel refuses `ct` for packets other than IP"),
    ("connections_end_by_the_clock", CLOCK),
    ("every_field_can_be_set_with_right_checksums", UNSET),
    ("fragments_keep_their_payload", REFUSED),
    (
        "frames_cut_anywhere_are_edited_or_dropped",
        "the kernel drops frames with cut headers before it looks them up, without a count",
    ),
    ("frames_cut_anywhere_are_survived", UNSET),
    ("headers_that_are_not_there_drop", REFUSED),
    ("mpls_push_set_and_pop", LABELS),
    ("padding_is_left_alone", "the kernel's checksum of SCTP covers padding"),
    (
        "pop_without_a_tag_is_malformed",
        "the kernel takes no VLAN header off where there is none, and goes on",
    ),
    (
        "segmented_packets_keep_their_offload",
        "the packet that calls up is segmented before: four are counted",
    ),
    ("vlan_headers_beyond_the_limit", LABELS),
    ("labels_without_an_ethernet_header_suit_their_packets_only", REFUSED),
    (
        "metadata_of_type_two_is_pushed",
        "kernel 6.1 warns of an overrun when it copies such metadata, so none is pushed",
    ),
    (
        "several_nsh_come_off_in_one_list",
        "the kernel takes one header off in a list, and none that the list has pushed",
    ),
    ("nsh_fields_can_be_set", UNSET),
    ("nsh_suits_its_packets_only", REFUSED),
    ("a_removed_port_can_come_back", NO_REASONS),
    ("output_to_a_removed_port_is_counted", NO_REASONS),
    ("too_long_frames_are_counted", NO_REASONS),
    ("a_packet_from_a_tunnel_has_its_fields", DEVICES),
    ("a_report_quotes_the_packet_as_it_came", DEVICES),
    (
        "fields_of_a_tunnel_can_be_set",
        "the kernel sets a tunnel for outputs alone, and matches none that was set",
    ),
    ("flows_match_the_fields_of_a_tunnel", DEVICES),
    ("headers_that_are_not_the_tunnel_s_drop", DEVICES),
    ("lengths_and_cuts_with_outer_headers", DEVICES),
    ("outer_checksums_follow_the_inner_ones", DEVICES),
    ("packets_too_long_for_the_path_do_not_vanish", DEVICES),
    ("packets_without_an_ethernet_header", DEVICES),
    ("pushed_headers_come_off_again", DEVICES),
    ("segments_have_numbers_of_their_own", DEVICES),
    ("tunnel_ports_that_are_gone_drop", DEVICES),
    ("tunnels_in_tunnels_end", DEVICES),
    ("upcalls_that_answer_with_upcalls_end", LOOPS),
];

/// Returns the reason for which a case does not hold.
pub(super) fn reason(case: &str) -> Option<&'static str> {
    EXCEPTIONS.iter().find(|(name, _)| *name == case).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! names {
        ($($module:ident: $($case:ident),* ;)*) => {
            const CASES: &[&str] = &[$($(stringify!($case)),*),*];
        };
    }

    crate::behaviour_cases!(names);

    #[test]
    fn each_exception_is_a_case_once() {
        for (n, (name, _)) in EXCEPTIONS.iter().enumerate() {
            assert!(CASES.contains(name), "{name} is no case");
            assert!(
                EXCEPTIONS[..n].iter().all(|(other, _)| other != name),
                "{name} is there twice"
            );
        }
    }
}
