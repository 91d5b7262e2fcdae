// SPDX-License-Identifier: Apache-2.0
//! The BPF programs, loaded: the one at XDP, and those that count changes. They and their maps end with
//! the process.

use crate::changes::Changes;
use crate::layout::{
    Control, Device, KEY_BYTES, Lookup, MAX_RULES, MAX_TABLES, OUTCOMES, Rule, Table, verdict,
};
use crate::plan::Plan;
use datapath_bpf::XdpMode;
use datapath_bpf::grace::Grace;
use datapath_bpf::shared::Shared;
use datapath_bpf::sys;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// The bytes of the object, with the alignment that ELF structures need.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/xdp_flow.bpf.o")));

/// Functions of the kernel through which all changes of filters, chains, actions and qdiscs go, in
/// net/sched. All kernels since 5.15 have them.
const NEEDED: [&str; 7] = [
    "tc_new_tfilter",
    "tc_del_tfilter",
    "tc_ctl_chain",
    "tc_ctl_action",
    "tc_modify_qdisc",
    "tc_get_qdisc", // it also deletes
    "tcf_block_put_ext",
];
/// Changes of devices, of tcx programs, which kernels before 6.6 do not have, and of programs that
/// dissect flows.
const WHERE_PRESENT: [&str; 5] = [
    "call_netdevice_notifiers_info",
    "tcx_link_attach",
    "tcx_prog_attach",
    "netns_bpf_prog_attach",
    "netns_bpf_link_create",
];
/// An acknowledgement that no sum of changes reaches.
const NEVER: u64 = u64::MAX;

/// An error of the programs. The text says what is missing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no type information.
    #[error(
        "the guard needs the kernel's type information (/sys/kernel/btf/vmlinux): {0}. Without it a \
         changed filter runs as it was until the agent has read the change; --stale-ok accepts that"
    )]
    NoTypes(String),
    /// A function of the kernel is missing.
    #[error(
        "the guard does not find the kernel's function {0}. Without it a changed filter runs as it was \
         until the agent has read the change; --stale-ok accepts that"
    )]
    NoFunction(&'static str),
    /// The kernel refused the guard.
    #[error(
        "the kernel refused the guard, which needs CAP_BPF and CAP_PERFMON: {0}. Without it a changed \
         filter runs as it was until the agent has read the change; --stale-ok accepts that"
    )]
    Guard(String),
    /// The kernel refused the program at XDP.
    #[error("the kernel refused the program, which needs CAP_BPF and CAP_NET_ADMIN: {0}")]
    Refused(String),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Whether the agent runs without the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It does not start without.
    Needed,
    /// It does: a changed filter runs as it was until the agent has read the change.
    StaleOk,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Number of packets.
    pub packets: u64,
    /// Bytes after the Ethernet header and the first VLAN tag.
    pub bytes: u64,
}

/// The loaded programs.
pub struct Program {
    object: Object,
    _guard: Vec<Link>,
    grace: Grace,
    control: Shared<Control>,
    devices: MapHandle,
    rules: MapHandle,
    counters: MapHandle,
    outcomes: MapHandle,
    /// The number of the next table. Numbers are not used again.
    next_table: u64,
}

fn failed(error: &libbpf_rs::Error) -> io::Error {
    io::Error::other(error.to_string())
}

impl Program {
    /// Loads the programs, and attaches those of the guard.
    ///
    /// # Errors
    ///
    /// The part that the kernel lacks or refuses.
    pub fn load(guard: Guard) -> Result<Program, Error> {
        let present = match guard {
            Guard::StaleOk => Vec::new(),
            Guard::Needed => guarded()?,
        };
        let refused = |error: libbpf_rs::Error| match guard {
            Guard::Needed => Error::Guard(error.to_string()),
            Guard::StaleOk => Error::Refused(error.to_string()),
        };
        let mut open = ObjectBuilder::default()
            .name("xdp_flow")
            .and_then(|builder| builder.open_memory(&OBJECT.0))
            .map_err(|e| Error::Refused(e.to_string()))?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let function = name.split_once('_').map_or("", |(_, function)| function);
            let is_wanted = name == "xdp_flow" || present.contains(&function);
            program.set_autoload(is_wanted);
        }
        let object = open.load().map_err(refused)?;
        let mut links = Vec::new();
        // Exits first: a beginning that is counted is followed by its end.
        for part in ["end_", "begin_"] {
            for program in object.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                if name.strip_prefix(part).is_some_and(|function| present.contains(&function)) {
                    links.push(program.attach_trace().map_err(|e| Error::Guard(e.to_string()))?);
                }
            }
        }
        let map = |name: &str| -> io::Result<MapHandle> {
            let found = object.maps().find(|map| map.name() == name);
            let map = found.ok_or_else(|| io::Error::other(format!("no map {name}")))?;
            MapHandle::try_from(&map).map_err(|e| failed(&e))
        };
        let control = map("control")?;
        let control = Shared::map(control.as_fd(), 1)?;
        Ok(Program {
            control,
            devices: map("devices")?,
            rules: map("rules")?,
            counters: map("counters")?,
            outcomes: map("device_outcomes")?,
            _guard: links,
            grace: Grace::new().map_err(|error| Error::Refused(error.to_string()))?,
            next_table: 0,
            object,
        })
    }

    /// Attaches the program at XDP of a device. It is detached when the descriptor is closed.
    ///
    /// # Errors
    ///
    /// The driver has no XDP, or another program is there (`EBUSY`).
    pub fn attach(&self, ifindex: u32, mode: XdpMode) -> io::Result<OwnedFd> {
        let program = self.fd()?;
        // include/uapi/linux/if_link.h: XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE.
        let flags = match mode {
            XdpMode::Driver => 1 << 2,
            XdpMode::Generic => 1 << 1,
        };
        sys::create_link(program.as_fd(), ifindex, libbpf_sys::BPF_XDP, flags)
    }

    /// Returns a descriptor of the program at XDP.
    ///
    /// # Errors
    ///
    /// There are no more descriptors.
    pub fn fd(&self) -> io::Result<OwnedFd> {
        let program = self.object.progs().find(|program| program.name() == "xdp_flow");
        program.ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.control.word(0, offset)
    }

    /// The changes so far. Those that ended are read first, so a change under way is never missed.
    pub fn changes(&self) -> Changes {
        let done = self.word(offset_of!(Control, done)).load(Ordering::SeqCst);
        let begun = self.word(offset_of!(Control, begun)).load(Ordering::SeqCst);
        Changes { begun, done }
    }

    /// Whether XDP runs rules: no change began or ended after those that the agent acknowledged.
    pub fn is_current(&self) -> bool {
        let acknowledged = self.word(offset_of!(Control, acknowledged)).load(Ordering::SeqCst);
        self.changes().sum() == acknowledged
    }

    /// Lets XDP run rules as of these changes, until the next begins or ends.
    pub fn acknowledge(&self, changes: Changes) {
        self.word(offset_of!(Control, acknowledged)).store(changes.sum(), Ordering::SeqCst);
    }

    /// Makes XDP pass all packets. Programs that run on other CPUs may still decide by a rule.
    pub fn revoke(&self) {
        self.word(offset_of!(Control, acknowledged)).store(NEVER, Ordering::SeqCst);
    }

    /// Makes XDP pass all packets, and waits until no program runs that began before.
    ///
    /// # Errors
    ///
    /// The kernel cannot wait.
    pub fn suspend(&self) -> io::Result<()> {
        self.revoke();
        self.grace.wait()
    }

    /// Sets the time (nanoseconds of `CLOCK_MONOTONIC`) at which XDP passes all packets by itself.
    pub fn set_deadline(&self, nanoseconds: u64) {
        self.word(offset_of!(Control, deadline)).store(nanoseconds, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(crate) fn deadline(&self) -> u64 {
        self.word(offset_of!(Control, deadline)).load(Ordering::SeqCst)
    }

    /// Sets the nanoseconds between packets of a rule that are left to traffic control; 0 for none.
    pub fn set_refresh(&self, nanoseconds: u64) {
        self.word(offset_of!(Control, refresh)).store(nanoseconds, Ordering::SeqCst);
    }

    /// Replaces the rules of all devices: by slot the device and its plan. Rules get counters in their
    /// order, from 0. The caller has suspended the program.
    ///
    /// # Errors
    ///
    /// A map takes no more; the program must stay suspended.
    pub fn install(&mut self, plans: &[(u32, &Plan)]) -> io::Result<()> {
        let stale: Vec<Vec<u8>> = self.rules.keys().collect();
        for key in stale {
            self.rules.delete(&key).map_err(|e| failed(&e))?;
        }
        let stale: Vec<Vec<u8>> = self.devices.keys().collect();
        for key in stale {
            self.devices.delete(&key).map_err(|e| failed(&e))?;
        }
        let mut counter = 0;
        for (slot, (ifindex, plan)) in (0..).zip(plans) {
            let tables = self.install_rules(plan, &mut counter)?;
            let none = Table { mask: [0; KEY_BYTES], number: 0, rank: 0, zero: 0 };
            let mut device =
                Device { tables: tables.len() as u32, slot, table: [none; MAX_TABLES] };
            device.table.iter_mut().zip(tables).for_each(|(to, table)| *to = table);
            let result =
                self.devices.update(&ifindex.to_ne_bytes(), device.as_bytes(), MapFlags::ANY);
            result.map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    /// Returns the tables of a plan, by their lowest ranks.
    fn install_rules(&mut self, plan: &Plan, counter: &mut u32) -> io::Result<Vec<Table>> {
        let zeros = vec![vec![0; size_of::<Counts>()]; sys::possible_cpus()?];
        let mut tables: BTreeMap<[u8; KEY_BYTES], Table> = BTreeMap::new();
        for (rank, rule) in (0..).zip(&plan.rules) {
            let mask = rule.matching.mask;
            let next = &mut self.next_table;
            let table = tables.entry(mask).or_insert_with(|| {
                *next += 1;
                Table { mask, number: *next, rank, zero: 0 }
            });
            let mut value = match &rule.effect {
                Some(effect) => effect.0,
                None => Rule { verdict: verdict::STOP, ..Rule::default() },
            };
            (value.rank, value.counter) = (rank, *counter);
            self.counters
                .update_percpu(&counter.to_ne_bytes(), &zeros, MapFlags::ANY)
                .map_err(|e| failed(&e))?;
            *counter += 1;
            let key = Lookup { key: rule.matching.value, table: table.number };
            match self.rules.update(key.as_bytes(), value.as_bytes(), MapFlags::NO_EXIST) {
                Ok(()) => {}
                // An earlier rule has the same match, and decides.
                Err(e) if e.kind() == libbpf_rs::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(&e)),
            }
        }
        let mut tables: Vec<Table> = tables.into_values().collect();
        tables.sort_by_key(|table| table.rank);
        Ok(tables)
    }

    /// Returns the counts of the rule with this counter.
    ///
    /// # Errors
    ///
    /// There is no such counter.
    pub fn counts(&self, counter: u32) -> io::Result<Counts> {
        let words = sums::<2>(&self.counters, counter)?;
        let [packets, bytes] = words;
        Ok(Counts { packets, bytes })
    }

    /// Returns the packets of the device in this slot, by [`OUTCOMES`].
    ///
    /// # Errors
    ///
    /// There is no such slot.
    pub fn outcomes(&self, slot: u32) -> io::Result<[u64; OUTCOMES.len()]> {
        sums(&self.outcomes, slot)
    }

    /// Most rules that there is room for.
    pub const ROOM: usize = MAX_RULES;
}

/// Adds the words of a value of all CPUs.
fn sums<const N: usize>(map: &MapHandle, key: u32) -> io::Result<[u64; N]> {
    let found = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY).map_err(|e| failed(&e))?;
    let mut sums = [0u64; N];
    for value in found.ok_or(io::ErrorKind::NotFound)? {
        let Ok((words, _)) = <[u64; N]>::read_from_prefix(&value) else { continue };
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
    }
    Ok(sums)
}

/// Returns the functions that are guarded on this kernel.
fn guarded() -> Result<Vec<&'static str>, Error> {
    let types = Btf::from_vmlinux().map_err(|e| Error::NoTypes(e.to_string()))?;
    let has = |name: &&str| types.type_by_name::<Func<'_>>(name).is_some();
    if let Some(missing) = NEEDED.iter().find(|name| !has(name)) {
        return Err(Error::NoFunction(missing));
    }
    Ok(NEEDED.into_iter().chain(WHERE_PRESENT.into_iter().filter(has)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;
    use crate::matching::Match;
    use crate::plan;

    /// The guard may miss that a change begins, and count only its end.
    #[test]
    fn a_change_that_only_ends_makes_all_packets_pass() {
        if testing::without_root() {
            return;
        }
        let mut program = Program::load(Guard::StaleOk).expect("the programs load");
        let drop = Rule { verdict: verdict::DROP, ..Rule::default() };
        let rule = plan::Rule { matching: Match::ALL, effect: Some(Effect(drop)), filters: vec![] };
        let plan = Plan { rules: vec![rule], reasons: vec![] };
        program.suspend().unwrap();
        program.install(&[(1, &plan)]).unwrap();
        program.set_deadline(u64::MAX);
        let mut arp = vec![0; 60];
        arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        let verdict = |program: &Program| {
            let fd = program.fd().unwrap();
            sys::run(fd.as_fd(), &arp, &[], 1).expect("a test run").verdict
        };
        program.acknowledge(program.changes());
        assert_eq!(verdict(&program), 1, "XDP_DROP");
        for (count, name) in [(offset_of!(Control, done), "done"), (0, "begun")] {
            program.word(count).fetch_add(1, Ordering::SeqCst);
            assert_eq!(verdict(&program), 2, "XDP_PASS: {name}");
            assert!(!program.is_current());
            program.acknowledge(program.changes());
            assert_eq!(verdict(&program), 1, "XDP_DROP");
        }
    }
}
