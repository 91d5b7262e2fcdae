// SPDX-License-Identifier: Apache-2.0
//! The programs of one hook over small tables of their own, run by `BPF_PROG_RUN`. Packets
//! arrive on the loopback device of the namespace, which is datapath port [`IN_PORT`].

use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datapath::Action;
use datapath_bpf::encode::{self, Effect};
use datapath_bpf::flows::FlowCount;
use datapath_bpf::layout::*;
use datapath_bpf::load::{self, Hook, Loaded};
use datapath_bpf::maps::{Maps, Sizes};
use datapath_bpf::sets::{self, PortSets, SetNumber};
use datapath_bpf::settings::VariantSettings;
use datapath_bpf::slot::Slot;
use datapath_bpf::{Config, hash, keys};

mod cpus;
pub mod fates;
pub mod frames;
pub mod tunnels;

pub use cpus::*;

pub const IN_PORT: u32 = 1;
pub const OUT_PORT: u32 = 2;
/// Not up.
pub const DOWN_PORT: u32 = 3;
/// MTU of 100.
pub const SMALL_PORT: u32 = 4;
/// The host's stack (at XDP: not in the devmap).
pub const STACK_PORT: u32 = 5;
pub const NO_SUCH_PORT: u32 = 6;
/// As good as [`OUT_PORT`].
pub const OTHER_PORT: u32 = 7;

const LOOPBACK: u32 = 1;
/// Results of chains of a CPU.
const CHAINS: u32 = 4;

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: u32,
    pub frame: Vec<u8>,
}

/// The shard that everything is counted on: the thread stays on one CPU.
pub struct Bed {
    pub maps: Arc<Maps>,
    fds: HashMap<String, OwnedFd>,
    entry: OwnedFd,
    factors: hash::Factors,
    cpu: usize,
    _loaded: Loaded,
}

/// A part of `struct state`.
pub struct StateHere {
    pub key: [u64; WORDS],
    pub pc: u32,
    pub tracked: bool,
    pub calls: u16,
}

/// The value of a per-CPU array's only element on one CPU.
fn value_on(map: BorrowedFd<'_>, cpu: usize) -> Vec<u8> {
    let bytes = (STATE_BYTES as usize).next_multiple_of(8);
    let mut all = vec![0u8; bytes * libbpf_rs::num_possible_cpus().unwrap()];
    let key = 0u32;
    // SAFETY: the kernel writes the value, rounded up to 8 bytes, for each possible CPU.
    let err = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            all.as_mut_ptr().cast(),
        )
    };
    assert_eq!(err, 0);
    all[cpu * bytes..(cpu + 1) * bytes].to_vec()
}

/// Runs a program `repeat` times, with `BPF_F_TEST_*` flags. Also nanoseconds a run.
pub fn run_entry(
    entry: BorrowedFd<'_>,
    frame: &[u8],
    repeat: u32,
    flags: u32,
) -> std::io::Result<(Outcome, u32)> {
    run_with(
        entry,
        frame,
        libbpf_sys::bpf_test_run_opts { repeat: repeat as i32, flags, ..Default::default() },
    )
}

/// Runs a program on a frame, with further options. Also nanoseconds a run.
fn run_with(
    entry: BorrowedFd<'_>,
    frame: &[u8],
    options: libbpf_sys::bpf_test_run_opts,
) -> std::io::Result<(Outcome, u32)> {
    let mut out = vec![0u8; frame.len() + 256];
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ..options
    };
    // SAFETY: the buffers live through the call and have the lengths that are passed.
    let err = unsafe { libbpf_sys::bpf_prog_test_run_opts(entry.as_raw_fd(), &raw mut opts) };
    if err != 0 {
        return Err(std::io::Error::from_raw_os_error(-err));
    }
    out.truncate(opts.data_size_out as usize);
    Ok((Outcome { verdict: opts.retval, frame: out }, opts.duration))
}

fn update(map: BorrowedFd<'_>, key: u32, value: u32) -> i32 {
    // SAFETY: key and value live through the call and have the map's sizes of 4 bytes.
    unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            0,
        )
    }
}

impl Bed {
    pub fn new(hook: Hook) -> Bed {
        Bed::that_counts(hook, false)
    }

    /// With `on_one_shard`, all CPUs count on one shard.
    pub fn that_counts(hook: Hook, on_one_shard: bool) -> Bed {
        Bed::over(hook, on_one_shard, &HashMap::new())
    }

    /// Over the maps of a table of connections.
    pub fn that_tracks(hook: Hook, connections: &HashMap<String, BorrowedFd<'_>>) -> Bed {
        Bed::over(hook, false, connections)
    }

    fn over(hook: Hook, on_one_shard: bool, have: &HashMap<String, BorrowedFd<'_>>) -> Bed {
        let config =
            Config { pins: None, max_flows: 1024, max_masks: 8, max_programs: 8, upcall_limit: 4 };
        let cpu = pin_to_one_cpu();
        let cpus = libbpf_rs::num_possible_cpus().unwrap();
        let mut sizes = Sizes::new(&config, cpus);
        sizes.chains = CHAINS;
        if on_one_shard {
            (sizes.shards, sizes.shards_atomic) = (1, true);
        }
        let factors = hash::factors();
        let full = VariantSettings::full(&sizes, &factors, 1, load::have_frags());
        let loaded = load::load(hook, None, &full, &sizes, have).unwrap_or_else(|e| panic!("{e}"));
        let fds: HashMap<String, OwnedFd> = loaded.maps().into_iter().collect();
        let maps = Arc::new(Maps::map(&fds, sizes).unwrap());
        maps.configure(&factors);
        for (tail, name) in hook.tails() {
            let program = loaded.program(name).unwrap();
            assert_eq!(update(fds["tails"].as_fd(), *tail as u32, program.as_raw_fd() as u32), 0);
        }
        let entry = match hook {
            Hook::Tc => "entry_tc_ingress",
            Hook::Xdp => "entry_xdp",
        };
        let entry = loaded.program(entry).unwrap();
        let bed = Bed { maps, fds, entry, factors, cpu, _loaded: loaded };
        bed.set_ports();
        bed
    }

    /// Takes a program out of the table of programs.
    pub fn take_out(&self, tail: Tail) {
        datapath_bpf::sys::unset(self.fds["tails"].as_fd(), tail as u32).unwrap();
    }

    fn set_ports(&self) {
        let up = PORT_UP | PORT_DEVMAP | PORT_SPLIT;
        let ports = [
            (IN_PORT, up, 1500),
            (OUT_PORT, up, 1500),
            (DOWN_PORT, PORT_DEVMAP, 1500),
            (SMALL_PORT, up, 100),
            (STACK_PORT, PORT_UP | PORT_STACK, 1500),
            (OTHER_PORT, up, 1500),
        ];
        for (number, flags, mtu) in ports {
            let port = Port {
                ifindex: LOOPBACK,
                flags,
                mtu,
                upcall_limit: 4,
                sent_up: 0,
                taken_up: 0,
                closed_until: 0,
                peer_mac: 0,
                ct_closed_until: 0,
                tunnel: 0,
                tunnel_helper: 0,
            };
            self.maps.ports.write(number as usize, &port);
            if flags & PORT_DEVMAP != 0 {
                assert_eq!(update(self.fds["devmap"].as_fd(), number, LOOPBACK), 0);
            }
        }
        self.set_in_port(IN_PORT);
    }

    /// Makes `actions`, which are more than one output, those of a flow.
    pub fn put_program(&self, flow: &mut Slot, actions: &[Action]) {
        let encoded = encode::encode(actions).unwrap();
        let Effect::Program(cells) = &encoded.effect else { panic!("{actions:?}") };
        let set = encoded.traits.copies.as_deref().map(|ports| (self.put_set(ports), false));
        self.maps.programs.write(0, &Program::new(cells, &encoded.traits, set));
        for (number, header) in encoded.headers.iter().enumerate() {
            self.maps.tunnel_headers.write(number, header);
        }
        (flow.program, flow.flags) = (0, encoded.flags);
    }

    /// The same for a list without copies, under this number of a program.
    pub fn put_program_at(&self, number: u32, flow: &mut Slot, actions: &[Action]) {
        let encoded = encode::encode(actions).unwrap();
        let Effect::Program(cells) = &encoded.effect else { panic!("{actions:?}") };
        let program = Program::new(cells, &encoded.traits, None);
        self.maps.programs.write(number as usize, &program);
        (flow.program, flow.flags) = (number, encoded.flags);
    }

    /// Makes the first set of ports one of these, as they are now.
    pub fn put_set(&self, ports: &[u16]) -> SetNumber {
        let devmap = |name: &&str| Some(self.fds.get(*name)?.try_clone().unwrap());
        let devmaps = sets::NAMES.iter().filter_map(devmap);
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        let sets = PortSets::new(devmaps.collect());
        sets.acquire(&self.maps, &ports).unwrap()
    }

    /// The loopback device becomes this port.
    pub fn set_in_port(&self, port: u32) {
        self.maps.ifaces.write(LOOPBACK as usize, &Iface { ifindex: LOOPBACK, port });
    }

    /// The loopback device is no port.
    pub fn clear_in_port(&self) {
        self.maps.ifaces.write(LOOPBACK as usize, &Iface { ifindex: 0, port: 0 });
    }

    pub fn set_miss_device(&self, ifindex: u32) {
        let config = ConfigEntry { miss_ifindex: ifindex, ..self.maps.config.read(0) };
        self.maps.config.write(0, &config);
    }

    /// An empty flow for `key` under `mask`, for slot `slot` and mask number 0.
    pub fn flow(&self, key: &flow::Key, mask: &[u64; WORDS]) -> Slot {
        let words = keys::to_words(key);
        let mut slot = Slot::EMPTY;
        slot.words = std::array::from_fn(|x| words[x] & mask[x]);
        slot.needs = keys::needs(mask);
        slot.hooks = HOOK_XDP | HOOK_TC;
        slot.output = NO_PORT;
        slot.program = NO_PROGRAM;
        slot
    }

    /// Puts `flow` into slot 0, the only flow, under mask number 0.
    pub fn install(&self, flow: &Slot, mask: &[u64; WORDS]) {
        self.remove();
        let entry = MaskEntry { words: *mask, needs: keys::needs(mask), flows: 1, pad: 0 };
        self.maps.masks.write(0, &entry);
        self.set_recent(0);
        self.entries().for_each(|word| word.store(0, Ordering::Relaxed));
        self.maps.totals.write(0, &Totals::default());
        flow.write(&self.maps, 0);
        let hash = hash::of_flow(&flow.words, 0, &self.factors);
        let [bucket, _] = hash::buckets(hash, self.maps.sizes.buckets - 1);
        let mut entries = [0; BUCKET];
        entries[3] = hash::entry(hash, 0);
        self.maps.index.write(bucket as usize, &Bucket { entries });
    }

    /// Takes the flow away.
    pub fn remove(&self) {
        let flow = Slot::read(&self.maps, 0);
        let hash = hash::of_flow(&flow.words, 0, &self.factors);
        for bucket in hash::buckets(hash, self.maps.sizes.buckets - 1) {
            self.maps.index.write(bucket as usize, &Bucket { entries: [0; BUCKET] });
        }
        for line in 0..self.maps.sizes.cache_lines {
            self.maps.cache.write(line as usize, &CacheLine { entries: [0; WAYS] });
        }
        Slot::EMPTY.write(&self.maps, 0);
        self.maps.epochs.store_half(0, 0, self.maps.epochs.load_half(0, 0) + 1);
        self.maps.masks.write(0, &zerocopy::FromZeros::new_zeroed());
    }

    /// Puts `flow` into a slot, and its mask under the slot's number.
    pub fn put(&self, number: u32, flow: &Slot, mask: &[u64; WORDS]) {
        let entry = MaskEntry { words: *mask, needs: keys::needs(mask), flows: 1, pad: 0 };
        self.maps.masks.write(number as usize, &entry);
        let flow = Slot { mask: number as u16, ..*flow };
        flow.write(&self.maps, number as usize);
        let hash = hash::of_flow(&flow.words, number, &self.factors);
        let [bucket, _] = hash::buckets(hash, self.maps.sizes.buckets - 1);
        let mut entries = self.maps.index.read(bucket as usize).entries;
        *entries.iter_mut().find(|entry| **entry == 0).unwrap() = hash::entry(hash, number);
        self.maps.index.write(bucket as usize, &Bucket { entries });
    }

    /// Removes the flow that was put into a slot, in the daemon's order.
    pub fn kill(&self, number: u32) {
        let flow = Slot::read(&self.maps, number as usize);
        let hash = hash::of_flow(&flow.words, number, &self.factors);
        for bucket in hash::buckets(hash, self.maps.sizes.buckets - 1) {
            let entries = self.maps.index.read(bucket as usize).entries;
            let is_other = |entry: u64| if entry == hash::entry(hash, number) { 0 } else { entry };
            self.maps.index.write(bucket as usize, &Bucket { entries: entries.map(is_other) });
        }
        Slot { dead: 1, ..flow }.write(&self.maps, number as usize);
        let at = number as usize * size_of::<u32>();
        self.maps.epochs.store_half(0, at, self.maps.epochs.load_half(0, at) + 1);
    }

    /// Empties an array of the object: zeros in each element.
    pub fn clear(&self, name: &str) {
        let map = self.fds[name].as_fd();
        let info = datapath_bpf::sys::map_info(map).unwrap();
        let cpus = libbpf_rs::num_possible_cpus().unwrap();
        let zeros = vec![0u8; info.value_size.next_multiple_of(8) as usize * cpus];
        for key in 0..info.max_entries {
            // SAFETY: the value has room for each possible CPU, if the map has a value for each.
            let err = unsafe {
                libbpf_sys::bpf_map_update_elem(
                    map.as_raw_fd(),
                    (&raw const key).cast(),
                    zeros.as_ptr().cast(),
                    0,
                )
            };
            assert_eq!(err, 0, "{name}");
        }
    }

    /// The counts of all flows in the first slots.
    pub fn counts(&self, slots: u32) -> Vec<FlowCount> {
        (0..slots).map(|slot| FlowCount::of_slot(&self.maps, slot)).collect()
    }

    fn shard(&self) -> usize {
        self.cpu & (self.maps.sizes.shards as usize - 1)
    }

    /// `count` of each entry of the exact-match caches that may be in use.
    fn entries(&self) -> impl Iterator<Item = &AtomicU64> {
        let lines = self.maps.sizes.emc_lines as usize;
        let used = self.maps.config.read(0).emc_reach as usize;
        let lines =
            (0..self.maps.sizes.cpus as usize).flat_map(move |cpu| cpu * lines..cpu * lines + used);
        let at = |way| way * size_of::<EmcEntry>() + offset_of!(EmcEntry, count);
        lines.flat_map(move |line| (0..EMC_WAYS).map(move |way| self.maps.emc.word(line, at(way))))
    }

    /// `count` of the only entry of the exact-match caches that is not zero.
    pub fn entry_count(&self) -> &AtomicU64 {
        let mut all = self.entries().filter(|word| word.load(Ordering::Relaxed) != 0);
        let one = all.next().unwrap();
        assert!(all.next().is_none());
        one
    }

    /// Makes this the word of what the flow counted of late.
    pub fn set_recent(&self, word: u64) {
        let at = self.shard() * self.maps.sizes.flows as usize;
        self.maps.recent.write(at, &Recent { word });
    }

    /// The state that the last packet left.
    pub fn state(&self) -> StateHere {
        let bytes = value_on(self.fds["states"].as_fd(), self.cpu);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        StateHere {
            key: std::array::from_fn(|x| word(x * 8)),
            pc: (word(WORDS * 8) >> 32) as u32,
            tracked: bytes[WORDS * 8 + 54] != 0,
            calls: u16::from_ne_bytes([bytes[WORDS * 8 + 50], bytes[WORDS * 8 + 51]]),
        }
    }

    /// Returns true when a packet has begun a state since [`Bed::clear`] of `states`.
    pub fn has_begun_state(&self) -> bool {
        let calls = WORDS * 8 + 50;
        value_on(self.fds["states"].as_fd(), self.cpu)[calls..calls + 2] != [0; 2]
    }

    /// The cells of the first program.
    pub fn cells(&self) -> [u64; CELLS_TOTAL] {
        self.maps.programs.read(0).cells
    }

    pub fn stats(&self) -> FlowCount {
        FlowCount::of_slot(&self.maps, 0)
    }

    pub fn counters(&self) -> Counters {
        self.maps.counters.read(self.shard())
    }

    pub fn port_count(&self, port: u32) -> PortCount {
        self.maps.port_stats.read(self.shard() * MAX_PORTS as usize + port as usize)
    }

    pub fn run(&self, frame: &[u8]) -> Outcome {
        self.repeat(frame, 1).unwrap().0
    }

    /// Also nanoseconds a run. The kernel refuses to make a packet of some malformed frames.
    pub fn repeat(&self, frame: &[u8], repeat: u32) -> std::io::Result<(Outcome, u32)> {
        self.test_run(frame, repeat, 0)
    }

    /// With `BPF_F_TEST_*` flags.
    pub fn test_run(
        &self,
        frame: &[u8],
        repeat: u32,
        flags: u32,
    ) -> std::io::Result<(Outcome, u32)> {
        run_entry(self.entry(), frame, repeat, flags)
    }

    /// Runs a packet that is still to be segmented into this many bytes of data.
    #[allow(dead_code)] // not every file of tests needs it
    pub fn run_gso(&self, frame: &[u8], gso_size: u32) -> Outcome {
        // `struct __sk_buff` of include/uapi/linux/bpf.h, of which this is the part up to gso_size.
        const GSO_SEGS: usize = 164 / 4;
        const GSO_SIZE: usize = 176 / 4;
        let mut skb = [0u32; GSO_SIZE + 1];
        (skb[GSO_SEGS], skb[GSO_SIZE]) = (2, gso_size);
        let options = libbpf_sys::bpf_test_run_opts {
            ctx_in: (&raw const skb).cast(),
            ctx_size_in: size_of_val(&skb) as u32,
            repeat: 1,
            ..Default::default()
        };
        run_with(self.entry(), frame, options).unwrap().0
    }

    /// The program that packets meet first.
    pub fn entry(&self) -> BorrowedFd<'_> {
        self.entry.as_fd()
    }

    /// The key that the last walk on this CPU was about.
    pub fn last_key(&self) -> flow::Key {
        let map = self.fds["states"].as_fd();
        let size =
            datapath_bpf::sys::map_info(map).unwrap().value_size.next_multiple_of(8) as usize;
        let cpus = libbpf_rs::num_possible_cpus().unwrap();
        let mut values = vec![0u64; size / 8 * cpus];
        let zero = 0u32;
        // SAFETY: the buffer has a value for each possible CPU.
        let err = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                map.as_raw_fd(),
                (&raw const zero).cast(),
                values.as_mut_ptr().cast(),
            )
        };
        assert_eq!(err, 0);
        let words = values[size / 8 * self.cpu..][..WORDS].try_into().unwrap();
        keys::from_words(&words)
    }
}
