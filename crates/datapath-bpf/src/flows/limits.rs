// SPDX-License-Identifier: Apache-2.0
//! Flows of ports whose XDP program is a user's, which may support less than the built-in one.

use super::*;
use crate::capabilities::ops_of_slot;
use crate::layout::HOOK_XDP;

impl Flows {
    /// Limits the flows from `port` at XDP to these capabilities; `None` removes the limit. When
    /// this returns, flows beyond the limit run at the skb hook, also for packets that had found
    /// them before. Waits for grace periods.
    ///
    /// # Errors
    ///
    /// Fails when the kernel does not wait ([`Grace::wait`]). Programs that began before may then
    /// still run such flows at XDP.
    pub(crate) fn limit(&self, port: PortNo, limit: Option<Capabilities>) -> std::io::Result<()> {
        let Some(limit) = limit else {
            self.lock().limits.remove(&port.0);
            return Ok(());
        };
        let beyond = {
            let mut inner = self.lock();
            inner.limits.insert(port.0, limit);
            self.beyond(&inner, port, &limit)
        };
        let mut homeless = Vec::new();
        for some in beyond.chunks(CHUNK) {
            let mut inner = self.lock(); // packet threads install in between
            for ufid in some {
                if self.take_from_xdp(&mut inner, *ufid, port, &limit).is_none() {
                    homeless.push(*ufid);
                }
            }
        }
        self.remove_many(&homeless, &mut |_, _| {});
        self.grace.wait()
    }

    /// Checks whether XDP can run a flow, with the program that is at the flow's ingress port.
    ///
    /// # Errors
    ///
    /// Returns the reason why it cannot.
    pub(crate) fn suits_xdp(&self, flow: &Megaflow) -> Result<(), Refusal> {
        self.lacks_at_xdp(flow)?;
        let port = flow.matching.key().in_port.get();
        let Some(limit) = self.lock().limits.get(&port).copied() else { return Ok(()) };
        let matching = self.matching(&flow.matching)?;
        let encoded = encode::encode_from(&flow.actions, front_of(&flow.matching))?;
        limit.take(keys::needs(&matching.mask), capabilities::ops_of(&encoded))
    }

    fn beyond(&self, inner: &Inner, port: PortNo, limit: &Capabilities) -> Vec<Ufid> {
        let is_beyond =
            |slot: u32| self.is_beyond(&Slot::read(&self.maps, slot as usize), port, limit);
        inner.by_ufid.iter().filter(|(_, slot)| is_beyond(**slot)).map(|(ufid, _)| *ufid).collect()
    }

    fn is_beyond(&self, slot: &Slot, port: PortNo, limit: &Capabilities) -> bool {
        slot.hooks & HOOK_XDP != 0
            && keys::from_words(&slot.words).in_port.get() == port.0
            && limit.take(slot.needs, ops_of_slot(slot, |number| self.cells(number))).is_err()
    }

    fn cells(&self, program: u32) -> Option<Vec<u64>> {
        let is_there = (program as usize) < self.maps.programs.len();
        is_there.then(|| self.maps.programs.read(program as usize).cells.to_vec())
    }

    /// Replaces a flow beyond the limit by the same flow without XDP. `None`: no other hook can run
    /// it, or there is no free slot.
    fn take_from_xdp(
        &self,
        inner: &mut Inner,
        ufid: Ufid,
        port: PortNo,
        limit: &Capabilities,
    ) -> Option<()> {
        let Some(old) = inner.by_ufid.get(&ufid).copied() else { return Some(()) };
        let mut slot = Slot::read(&self.maps, old as usize);
        if !self.is_beyond(&slot, port, limit) {
            return Some(()); // changed meanwhile
        }
        slot.hooks &= !HOOK_XDP;
        slot.dead = 1;
        if slot.hooks == 0 {
            return None;
        }
        let has_program = slot.program != NO_PROGRAM;
        let program = has_program.then(|| {
            let cells = self.maps.programs.read(slot.program as usize).cells;
            Program::new(&cells, &Traits::of(&cells), None)
        });
        let new = self.put(inner, slot, program.as_ref()).ok()?;
        self.supersede(inner, ufid, old, new)
    }
}
