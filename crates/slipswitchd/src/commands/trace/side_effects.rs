// SPDX-License-Identifier: Apache-2.0
//! The datapath actions that a trace of a packet runs: all that it shows, except those that would
//! send the packet.

use datapath::Action;

/// `actions` without outputs and recirculations, also in nested lists.
pub(super) fn without_outputs(actions: &[Action]) -> Vec<Action> {
    actions.iter().filter_map(without_output).collect()
}

fn without_output(action: &Action) -> Option<Action> {
    Some(match action {
        // A length is the next output's.
        Action::Output(_)
        | Action::LbOutput(_)
        | Action::Trunc(_)
        | Action::Recirc(_)
        | Action::Drop(_)
        | Action::TunnelPush { .. }
        | Action::TunnelPop(_) => return None,
        // A trace makes and ends no connection.
        Action::Ct(_) | Action::CtClear => return None,
        Action::Clone(inner) => Action::Clone(without_outputs(inner)),
        Action::Sample { probability, actions } => {
            Action::Sample { probability: *probability, actions: without_outputs(actions) }
        }
        Action::CheckPktLen { len, greater, not_greater } => Action::CheckPktLen {
            len: *len,
            greater: without_outputs(greater),
            not_greater: without_outputs(not_greater),
        },
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::PortNo;

    #[test]
    fn nothing_leaves_from_nested_lists_either() {
        let out = || Action::Output(PortNo(2));
        let actions = [
            Action::Meter(3),
            Action::Ct(Box::default()),
            Action::CtClear,
            Action::Trunc(20),
            Action::TunnelPop(PortNo(4789)),
            out(),
            Action::Clone(vec![Action::PopVlan, out(), Action::Recirc(7)]),
            Action::CheckPktLen {
                len: 9,
                greater: vec![out()],
                not_greater: vec![Action::Meter(4)],
            },
        ];
        let left = vec![
            Action::Meter(3),
            Action::Clone(vec![Action::PopVlan]),
            Action::CheckPktLen { len: 9, greater: vec![], not_greater: vec![Action::Meter(4)] },
        ];
        assert_eq!(without_outputs(&actions), left);
    }
}
