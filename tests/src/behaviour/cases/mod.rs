// SPDX-License-Identifier: Apache-2.0
//! The cases, by subject. Each is a function of a [`World`]; [`behaviour_cases!`] lists them once.
//!
//! The modules of the cases are private, and [`listed`] calls the cases of the list only. The
//! compiler therefore warns of a case that the list lacks: it is never used.
//!
//! [`behaviour_cases!`]: crate::behaviour_cases

use super::World;

mod actions;
mod bonds;
mod connections;
mod headers;
mod labels;
mod lookup;
mod nsh;
mod ports;
mod tunnels;
mod upcalls;

/// Makes one test of each case; each calls `run` of the module that the macro is used in with
/// the case's name and the case. With an argument, calls that macro with the list of cases.
#[macro_export]
macro_rules! behaviour_cases {
    () => {
        $crate::behaviour_cases!($crate::behaviour_tests);
    };
    ($macro:path) => {
        $macro! {
            lookup:
                a_hit_runs_the_actions_and_counts,
                statistics_are_exact,
                masks_of_many_shapes_find_their_packets,
                overlapping_megaflows_agree,
                modify_replaces_actions_and_keeps_statistics,
                remove_returns_final_statistics,
                an_identity_is_taken_once,
                a_full_table_refuses,
                deep_nesting_is_refused,
                flush_and_dump,
                sweep_may_call_back,
                packets_stay_in_order;
            upcalls:
                a_miss_calls_up_and_runs_the_answer,
                an_install_in_the_upcall_serves_the_next_packet,
                a_refused_install_still_forwards,
                an_action_upcall_gets_the_packet_as_it_is,
                an_answer_to_an_action_upcall_runs_on_the_copy,
                upcalls_that_answer_with_upcalls_end,
                upcalls_may_call_everything;
            headers:
                vlan_push_pop_and_qinq,
                vlan_headers_beyond_the_limit,
                pop_without_a_tag_is_malformed,
                mpls_push_set_and_pop,
                every_field_can_be_set_with_right_checksums,
                partial_masks_keep_the_other_bits,
                a_wrong_checksum_stays_wrong,
                a_missing_udp_checksum_stays_missing,
                a_udp_checksum_is_never_set_to_zero,
                of_its_two_zeros_a_checksum_is_the_plain_one,
                padding_is_left_alone,
                fragments_keep_their_payload,
                unfinished_checksums_are_finished_right,
                segmented_packets_keep_their_offload,
                headers_that_are_not_there_drop,
                a_routing_header_keeps_the_final_destination_in_the_checksum,
                jumbo_frames_are_edited_whole,
                frames_cut_anywhere_are_survived,
                frames_cut_anywhere_are_edited_or_dropped;
            bonds:
                a_bond_spreads_packets_of_one_megaflow,
                a_bucket_moves_at_once,
                a_bond_sends_packets_as_they_are_by_then,
                a_bond_gets_copies;
            actions:
                output_to_several_ports,
                copies_are_equal,
                copies_that_some_port_does_not_take,
                trunc_cuts_the_next_output_only,
                clone_is_isolated,
                sample_always_and_never,
                sample_takes_its_share,
                a_nested_list_may_end_a_list,
                a_sample_may_end_a_list,
                a_branch_may_end_a_list,
                a_recirculation_may_end_a_list,
                a_cut_output_may_end_a_list,
                a_meter_drops_what_exceeds_it,
                a_removed_meter_passes,
                recirculation_looks_up_again,
                edits_before_a_lookup_that_misses_are_done_once,
                a_packet_stays_or_goes_in_any_pass,
                all_fragments_of_a_packet_have_one_hash,
                hash_is_seen_after_recirculation,
                metadata_survives_recirculation,
                recirculation_is_limited,
                recirculations_by_flows_count_when_an_answer_continues,
                long_lists_run_whole_in_every_pass,
                check_pkt_len_branches,
                execute_runs_to_the_end,
                drops_have_reasons;
            connections:
                a_connection_is_new_then_established,
                established_packets_stay_with_their_flows,
                other_protocols_are_tracked,
                what_cannot_be_tracked_is_invalid,
                force_turns_a_connection,
                zones_are_apart,
                mark_and_label_stay_with_the_connection,
                source_nat_translates_both_ways,
                destination_nat_translates_both_ways,
                errors_are_translated_with_what_they_quote,
                clear_forgets,
                a_changed_packet_is_looked_up_again,
                tracking_in_a_copy_stays_there,
                execution_goes_on_with_the_key_s_connection,
                connections_end_by_the_clock,
                limits_and_flushes,
                ended_connections_are_removed,
                a_helper_translates_what_it_reads,
                fragments_wait_for_each_other,
                fragments_without_their_packet_go_on_as_invalid;
            tunnels:
                pushed_headers_come_off_again,
                a_packet_from_a_tunnel_has_its_fields,
                fields_of_a_tunnel_can_be_set,
                outer_checksums_follow_the_inner_ones,
                segments_have_numbers_of_their_own,
                headers_that_are_not_the_tunnel_s_drop,
                flows_match_the_fields_of_a_tunnel,
                flows_match_the_fields_of_erspan,
                packets_of_a_tunnel_are_numbered,
                tunnel_ports_that_are_gone_drop,
                tunnels_in_tunnels_end,
                packets_without_an_ethernet_header,
                lengths_and_cuts_with_outer_headers,
                packets_too_long_for_the_path_do_not_vanish, a_report_quotes_the_packet_as_it_came;
            labels:
                labels_in_front_of_a_frame_come_off_again,
                labels_without_an_ethernet_header_suit_their_packets_only;
            nsh:
                nsh_comes_off_again, metadata_of_type_two_is_pushed,
                several_nsh_come_off_in_one_list, nsh_fields_can_be_set, nsh_suits_its_packets_only,
                flows_match_the_fields_of_nsh;
            ports:
                ports_are_listed_added_and_removed,
                output_to_a_removed_port_is_counted,
                too_long_frames_are_counted,
                a_removed_port_can_come_back;
        }
    };
}

/// One test for each name.
#[macro_export]
macro_rules! behaviour_tests {
    ($($module:ident: $($case:ident),* ;)*) => {
        $(mod $module {
            $(#[test]
            fn $case() {
                super::run(stringify!($case), $crate::behaviour::cases::listed::$module::$case);
            })*
        })*
    };
}

macro_rules! call_each {
    ($($module:ident: $($case:ident),* ;)*) => {
        $(pub mod $module {
            $(pub fn $case(world: &super::World) {
                super::super::$module::$case(world);
            })*
        })*
    };
}

/// The cases of the list, for tests.
#[expect(missing_docs, reason = "a case's name is the sentence it proves")]
pub mod listed {
    use super::World;

    crate::behaviour_cases!(call_each);
}
