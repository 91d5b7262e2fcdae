// SPDX-License-Identifier: Apache-2.0
//! The capabilities that a user's program for XDP declares (`bpf/capabilities.h`), and the check
//! whether a flow stays within them.

use datapath::Refusal;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::encode::{Effect, Encoded};
use crate::keys;
use crate::layout::{
    CELLS, FLOW_POP, NEEDS_L3, NO_PORT, NO_PROGRAM, OUTPUT_BOND, Op, VERSION, word,
};
use crate::settings::ALL_WORDS;
use crate::slot::Slot;

/// Bits of all instructions.
const ALL_OPS: u64 = (1 << Op::ALL.len()) - 1;
/// Operations that no program declares.
const NOT_DECLARED: u64 = u64::MAX;
/// Bits of the words that every flow compares.
const ALWAYS: u64 = 1 << word::RECIRC | 1 << word::PORT;

/// The capabilities that a user's program declares: `struct capabilities`. Their text is three lines
/// for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Capabilities {
    /// `LAYOUT_VERSION` that the program was built with.
    pub(crate) version: u32,
    /// Padding of `struct capabilities`: not read.
    pub(crate) pad: u32,
    /// Bit of each [`Op`] that it runs; [`Op::End`]: it runs lists.
    pub(crate) ops: u64,
    /// Bit x: it compares word x of the key; [`NEEDS_L3`].
    pub(crate) needs: u64,
}

const _: () = assert!(size_of::<Capabilities>() == 24);

impl Capabilities {
    /// Checks the declared capabilities.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the defect and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "it was built for layout version {}, this daemon has {VERSION}: build it with the \
                 headers of this daemon",
                self.version
            ));
        }
        if self.needs & !ALL_WORDS != 0 || self.ops & !ALL_OPS != 0 {
            return Err("its capabilities have bits of words or instructions that do not exist: \
                        see capabilities.h"
                .into());
        }
        if self.needs & ALWAYS != ALWAYS {
            return Err("its capabilities lack W_RECIRC or W_PORT, which every flow compares: \
                        no flow would fit"
                .into());
        }
        if self.ops == 0 {
            return Err("its capabilities have no instruction: no flow would fit".into());
        }
        Ok(())
    }

    /// Checks whether the program can run a flow that compares `words` and runs `ops`.
    ///
    /// # Errors
    ///
    /// Returns the kind of capability that the program lacks.
    pub(crate) fn take(&self, words: u64, ops: u64) -> Result<(), Refusal> {
        if words & !self.needs != 0 {
            return Err(Refusal::UnsupportedKey);
        }
        if ops & !self.ops != 0 {
            return Err(Refusal::UnsupportedAction);
        }
        Ok(())
    }
}

/// Returns the name of an instruction, for people: that of the datapath action.
fn name(op: Op) -> &'static str {
    match op {
        Op::End => "lists of actions",
        Op::Output => "output",
        Op::Drop => "drop",
        Op::PushVlan => "push_vlan",
        Op::PopVlan => "pop_vlan",
        Op::SetEth => "set(eth)",
        Op::SetIpv4 => "set(ipv4)",
        Op::SetIpv6 => "set(ipv6)",
        Op::SetTcp => "set(tcp)",
        Op::SetUdp => "set(udp)",
        Op::SetSctp => "set(sctp)",
        Op::SetIcmp => "set(icmp)",
        Op::SetArp => "set(arp)",
        Op::SetNd => "set(nd)",
        Op::SetNdExt => "set(nd_ext)",
        Op::SetMpls => "set(mpls)",
        Op::PushMpls => "push_mpls",
        Op::PopMpls => "pop_mpls",
        Op::SetPriority => "set(skb_priority)",
        Op::SetMark => "set(skb_mark)",
        Op::Recirc => "recirc",
        Op::Hash => "hash",
        Op::Trunc => "trunc",
        Op::Sample => "sample",
        Op::Meter => "meter",
        Op::CheckLen => "check_pkt_len",
        Op::Copies => "outputs to several ports",
        Op::Ct => "ct",
        Op::CtClear => "ct_clear",
        Op::TunPush => "tnl_push",
        Op::Header => "headers in front of packets",
        Op::TunRoom => "tnl_push of changed packets",
    }
}

/// Reports, for people, the layout version that the program was built for, the fields that it
/// compares, and the instructions that it runs.
impl std::fmt::Display for Capabilities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "built for layout version {}", self.version)?;
        let narrower = match self.needs & NEEDS_L3 {
            0 => "; nothing after the Ethernet and VLAN headers",
            _ => "",
        };
        writeln!(f, "compares {}{narrower}", keys::names(self.needs).join(", "))?;
        let runs = Op::ALL.iter().filter(|op| self.ops & bit(**op) != 0);
        write!(f, "runs {}", runs.map(|op| name(*op)).collect::<Vec<&str>>().join(", "))
    }
}

fn bit(op: Op) -> u64 {
    1 << op as u32
}

/// Returns the instructions of a list, as bits. A number that is no instruction's sets a bit that
/// no program declares.
fn ops_of_list(cells: &[u64]) -> u64 {
    let mut ops = bit(Op::End);
    let mut at = 0;
    while let Some(cell) = cells.get(at).filter(|_| at < CELLS) {
        let op = (*cell & 0xff) as u32;
        if op == Op::End as u32 {
            break;
        }
        ops |= 1u64.checked_shl(op).unwrap_or(u64::MAX);
        if op == Op::Output as u32 && (*cell >> 32) as u32 & OUTPUT_BOND != 0 {
            return NOT_DECLARED;
        }
        at += ((cell >> 8 & 0xff) as usize).max(1);
    }
    ops
}

/// Returns the operations that a flow's actions need, as bits.
pub(crate) fn ops_of(encoded: &Encoded) -> u64 {
    match &encoded.effect {
        Effect::Output(_) => bit(Op::Output),
        Effect::Drop(_) => bit(Op::Drop),
        Effect::Program(cells) => ops_of_list(&**cells),
        Effect::Pop(_) => NOT_DECLARED,
    }
}

/// Returns the operations that a slot's actions need, as bits. `cells` returns the list of a
/// program by its number.
pub(crate) fn ops_of_slot(slot: &Slot, cells: impl FnOnce(u32) -> Option<Vec<u64>>) -> u64 {
    match (slot.output, slot.program) {
        _ if slot.flags & FLOW_POP != 0 => NOT_DECLARED,
        (NO_PORT, NO_PROGRAM) => bit(Op::Drop),
        (NO_PORT, program) => cells(program).map_or(NOT_DECLARED, |cells| ops_of_list(&cells)),
        _ => bit(Op::Output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use datapath::{Action, Masked, PortNo, Set};

    const SOUND: Capabilities = Capabilities { version: VERSION, pad: 0, needs: ALWAYS, ops: 6 };

    #[test]
    fn wrong_capabilities_are_refused() {
        let wrong = |c: Capabilities, word: &str| {
            let error = c.check().unwrap_err();
            assert!(error.contains(word), "{error}");
        };
        assert_eq!(SOUND.check(), Ok(()));
        wrong(Capabilities { version: VERSION + 1, ..SOUND }, "layout version");
        wrong(Capabilities { needs: (ALL_WORDS + 1) | ALWAYS, ..SOUND }, "do not exist");
        wrong(Capabilities { ops: ALL_OPS + 1, ..SOUND }, "do not exist");
        wrong(Capabilities { needs: 1 << word::PORT, ..SOUND }, "W_RECIRC");
        wrong(Capabilities { ops: 0, ..SOUND }, "no instruction");
    }

    #[test]
    fn each_field_is_named_once() {
        let more = 1 << word::MPLS0 | 1 << word::MPLS1;
        let text = Capabilities { needs: ALWAYS | more | NEEDS_L3, ..SOUND }.to_string();
        let expected = format!(
            "built for layout version {VERSION}\ncompares in_port, dl_type, the first VLAN header, \
             recirc_id, dp_hash, mpls labels\nruns output, drop"
        );
        assert_eq!(text, expected);
        let narrow = SOUND.to_string();
        assert!(narrow.contains("dp_hash; nothing after the Ethernet"), "{narrow}");
        let all = Capabilities { needs: ALL_WORDS, ops: ALL_OPS, ..SOUND }.to_string();
        assert!(all.contains("nd_options_type"), "{all}");
        assert!(
            all.ends_with(
                "outputs to several ports, ct, ct_clear, headers in front of packets, tnl_push, \
                 tnl_push of changed packets"
            ),
            "{all}"
        );
        assert!(!all.contains("(part)"), "{all}");
        let some = 1 << word::ETH0 | 1 << word::SRC0 | 1 << word::ND2;
        let parts = Capabilities { needs: ALWAYS | some, ..SOUND }.to_string();
        assert!(parts.contains("dl_dst, dl_src (part), recirc_id, dp_hash; nothing"), "{parts}");
        let parts = Capabilities { needs: ALWAYS | some | NEEDS_L3, ..SOUND }.to_string();
        assert!(
            parts.contains(
                "ipv6_src (part), nd_reserved, nd_options_type, the fields of NSH (part)\n"
            ),
            "{parts}"
        );
    }

    #[test]
    fn lists_are_more_than_their_instructions() {
        let output = Action::Output(PortNo(1));
        let ops = |actions: &[Action]| ops_of(&encode(actions).unwrap());
        assert_eq!(ops(&[]), bit(Op::Drop));
        assert_eq!(ops(std::slice::from_ref(&output)), bit(Op::Output));
        let both = [output.clone(), Action::Output(PortNo(2))];
        assert_eq!(ops(&both), bit(Op::Output) | bit(Op::Copies) | bit(Op::End));
        assert_eq!(ops(&[Action::LbOutput(1)]), NOT_DECLARED);
        let mac = Masked { value: [2; 6], mask: [0xff; 6] };
        let set = Action::Set(Set::Ethernet { src: mac, dst: mac });
        let edit = [set, Action::PushVlan { tpid: 0x8100, tci: 5 }, output];
        let expected = bit(Op::SetEth) | bit(Op::PushVlan) | bit(Op::Output) | bit(Op::End);
        assert_eq!(ops(&edit), expected);
        assert_eq!(SOUND.take(ALWAYS, ops(&both)), Err(Refusal::UnsupportedAction));
        assert_eq!(SOUND.take(ALWAYS, bit(Op::Output)), Ok(()));
        assert_eq!(SOUND.take(ALWAYS | 4, bit(Op::Output)), Err(Refusal::UnsupportedKey));
    }
}
