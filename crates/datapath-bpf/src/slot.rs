// SPDX-License-Identifier: Apache-2.0
//! A flow of the shared tables: its entry in `slots` together with its entry in `details`.

use std::mem::offset_of;

use crate::layout::{COLD_WORDS, HOT_WORDS, SlotDetail, SlotEntry, WORDS};
use crate::maps::Maps;

/// `struct slot` and `struct slot_detail` of `bpf/layout.h`, which documents each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Slot {
    pub words: [u64; WORDS],
    pub dead: u32,
    pub output: u32,
    pub program: u32,
    pub mask: u16,
    pub hooks: u8,
    pub flags: u8,
    pub needs: u64,
    pub reason: u32,
    pub tunnel: u32,
    pub ufid: [u64; 2],
    pub hash: u64,
    /// Time of the installation in milliseconds of `CLOCK_MONOTONIC`.
    pub installed: u64,
    pub instructions: u64,
}

impl Slot {
    /// A slot with only zeros.
    pub const EMPTY: Slot = Slot {
        words: [0; WORDS],
        dead: 0,
        output: 0,
        program: 0,
        mask: 0,
        hooks: 0,
        flags: 0,
        needs: 0,
        reason: 0,
        tunnel: 0,
        ufid: [0; 2],
        hash: 0,
        installed: 0,
        instructions: 0,
    };

    /// Reads slot `number`, which must exist.
    pub fn read(maps: &Maps, number: usize) -> Slot {
        let entry = maps.slots.read(number);
        let detail = maps.details.read(number);
        let mut words = [0; WORDS];
        let (hot, cold) = words.split_at_mut(HOT_WORDS);
        hot.copy_from_slice(&entry.hot);
        cold.copy_from_slice(&detail.cold);
        Slot {
            words,
            dead: entry.dead,
            output: entry.output,
            program: entry.program,
            mask: entry.mask,
            hooks: entry.hooks,
            flags: entry.flags,
            needs: detail.needs,
            reason: detail.reason,
            tunnel: detail.tunnel,
            ufid: detail.ufid,
            hash: detail.hash,
            installed: detail.installed,
            instructions: detail.instructions,
        }
    }

    /// Writes slot `number`, which must exist; no index entry names it yet.
    pub fn write(&self, maps: &Maps, number: usize) {
        let (mut hot, mut cold) = ([0; HOT_WORDS], [0; COLD_WORDS]);
        let (first, rest) = self.words.split_at(HOT_WORDS);
        hot.copy_from_slice(first);
        cold.copy_from_slice(rest);
        let detail = SlotDetail {
            cold,
            needs: self.needs,
            reason: self.reason,
            tunnel: self.tunnel,
            ufid: self.ufid,
            hash: self.hash,
            installed: self.installed,
            instructions: self.instructions,
        };
        maps.details.write(number, &detail);
        let entry = SlotEntry {
            hot,
            dead: self.dead,
            output: self.output,
            program: self.program,
            mask: self.mask,
            hooks: self.hooks,
            flags: self.flags,
        };
        maps.slots.write(number, &entry);
    }

    /// Marks slot `number` dead or alive, by one store.
    pub(crate) fn set_dead(maps: &Maps, number: u32, dead: bool) {
        maps.slots.store_half(number as usize, offset_of!(SlotEntry, dead), dead.into());
    }
}
