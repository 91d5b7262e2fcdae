//! What a user's program for XDP says that it can do (`bpf/capabilities.h`), and whether a flow
//! is within that.

use datapath::Refusal;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::encode::{Effect, Encoded};
use crate::layout::{CELLS, NO_PORT, NO_PROGRAM, Op, VERSION, word};
use crate::settings::ALL_WORDS;
use crate::slot::Slot;

/// Every instruction.
pub const ALL_OPS: u32 = (1 << (Op::Copies as u32 + 1)) - 1;
/// Words that every flow compares.
const ALWAYS: u32 = 1 << word::RECIRC | 1 << word::PORT;

/// `struct capabilities`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Capabilities {
    /// `LAYOUT_VERSION` that the program was built with.
    pub version: u32,
    /// Bit x: it compares word x of the key.
    pub needs: u32,
    /// Bit of each [`Op`] that it runs; [`Op::End`]: it runs lists.
    pub ops: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<Capabilities>() == 16);

impl Capabilities {
    /// Says what is wrong with them, and what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "it was built for layout version {}, this daemon has {VERSION}: build it with the \
                 headers of this daemon",
                self.version
            ));
        }
        if self.needs & !ALL_WORDS != 0 || self.ops & !ALL_OPS != 0 || self.pad != 0 {
            return Err("its capabilities name words or instructions that there are not: see \
                        capabilities.h"
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

    /// Whether it takes a flow that compares `words` and runs `ops`.
    pub fn take(&self, words: u32, ops: u32) -> Result<(), Refusal> {
        if words & !self.needs != 0 {
            return Err(Refusal::UnsupportedKey);
        }
        if ops & !self.ops != 0 {
            return Err(Refusal::UnsupportedAction);
        }
        Ok(())
    }
}

fn bit(op: Op) -> u32 {
    1 << op as u32
}

/// Instructions of a list, as bits. One that is none is no program's.
fn ops_of_list(cells: &[u64]) -> u32 {
    let mut ops = bit(Op::End);
    let mut at = 0;
    while let Some(cell) = cells.get(at).filter(|_| at < CELLS) {
        let op = (*cell & 0xff) as u32;
        if op == Op::End as u32 {
            break;
        }
        ops |= 1u32.checked_shl(op).unwrap_or(u32::MAX);
        at += ((cell >> 8 & 0xff) as usize).max(1);
    }
    ops
}

/// What a flow's actions need, as bits.
pub fn ops_of(encoded: &Encoded) -> u32 {
    match &encoded.effect {
        Effect::Output(_) => bit(Op::Output),
        Effect::Drop(_) => bit(Op::Drop),
        Effect::Program(cells) => ops_of_list(&**cells),
    }
}

/// The same of a slot; `cells` gives its list.
pub fn ops_of_slot(slot: &Slot, cells: impl FnOnce(u32) -> Option<Vec<u64>>) -> u32 {
    match (slot.output, slot.program) {
        (NO_PORT, NO_PROGRAM) => bit(Op::Drop),
        (NO_PORT, program) => cells(program).map_or(u32::MAX, |cells| ops_of_list(&cells)),
        _ => bit(Op::Output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use datapath::{Action, Masked, PortNo, Set};

    const SOUND: Capabilities = Capabilities { version: VERSION, needs: ALWAYS, ops: 6, pad: 0 };

    #[test]
    fn wrong_ones_are_told() {
        let wrong = |c: Capabilities, word: &str| {
            let error = c.check().unwrap_err();
            assert!(error.contains(word), "{error}");
        };
        assert_eq!(SOUND.check(), Ok(()));
        wrong(Capabilities { version: VERSION + 1, ..SOUND }, "layout version");
        wrong(Capabilities { needs: (ALL_WORDS + 1) | ALWAYS, ..SOUND }, "there are not");
        wrong(Capabilities { ops: ALL_OPS + 1, ..SOUND }, "there are not");
        wrong(Capabilities { pad: 1, ..SOUND }, "there are not");
        wrong(Capabilities { needs: 1 << word::PORT, ..SOUND }, "W_RECIRC");
        wrong(Capabilities { ops: 0, ..SOUND }, "no instruction");
    }

    #[test]
    fn lists_are_more_than_their_instructions() {
        let output = Action::Output(PortNo(1));
        let ops = |actions: &[Action]| ops_of(&encode(actions).unwrap());
        assert_eq!(ops(&[]), bit(Op::Drop));
        assert_eq!(ops(std::slice::from_ref(&output)), bit(Op::Output));
        let both = [output.clone(), Action::Output(PortNo(2))];
        assert_eq!(ops(&both), bit(Op::Output) | bit(Op::Copies) | bit(Op::End));
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
