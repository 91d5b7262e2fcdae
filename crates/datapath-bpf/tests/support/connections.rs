// SPDX-License-Identifier: Apache-2.0
//! The programs of `ct_table.bpf.c` over the memory of a table of connections.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use conntrack::{Direction, NewConn, Ports, Sweeper, Table, Ticks, Tuple, layout};
use datapath_bpf::ct_memory::{Adoption, BpfMemory};
use datapath_bpf::grace::Grace;
use datapath_bpf::{Pins, sys};
use libbpf_rs::ObjectBuilder;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Connections of a chunk: few, so that slots are soon used again.
pub const CHUNK: usize = 1024;
/// The secret of all tables.
pub const SECRET: [u64; 2] = [0x1234_5678_9abc_def0, 0x9e37_79b9_7f4a_7c15];

/// `enum op`.
#[allow(dead_code)] // not every file of tests needs it
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Find,
    Create,
    Refresh,
    Kill,
    Mark,
    Exchange,
}

/// `struct ct_tuple`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CTuple {
    src: [u64; 2],
    dst: [u64; 2],
    sport: u16,
    dport: u16,
    zone: u16,
    proto: u8,
    kind: u8,
    request: u32,
    pad: u32,
}

/// `struct ct_found`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CFound {
    pub head: u64,
    pub slot: u32,
    pub reply: u32,
}

/// `struct ct_new`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CNew {
    pub original: CTuple,
    pub reply: CTuple,
    pub label: [u64; 2],
    pub window: [u64; 2],
    pub control: u64,
    pub mark: u32,
    pub class: u32,
    pub flags: u32,
    pub timeout: u32,
    pub now: u32,
    pub pad: u32,
    pub made: CFound,
}

/// `struct request`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct Request {
    pub op: u32,
    pub result: u32,
    pub arg: u64,
    pub new: CNew,
}

/// Returns the tuple as programs have it.
pub fn c_tuple(tuple: &Tuple) -> CTuple {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => [0, address.to_bits().into()],
        IpAddr::V6(address) => [(address.to_bits() >> 64) as u64, address.to_bits() as u64],
    };
    let (sport, dport, class, request) = match tuple.ports {
        Ports::Pair { src, dst } => (src, dst, 0, false),
        Ports::Icmp(icmp) => (icmp.id, icmp.code.into(), icmp.class as u8, icmp.request),
    };
    CTuple {
        src: address(tuple.src),
        dst: address(tuple.dst),
        sport,
        dport,
        zone: tuple.zone,
        proto: tuple.proto,
        kind: u8::from(tuple.src.is_ipv6()) | class << layout::key_kind::CLASS_SHIFT,
        request: request.into(),
        pad: 0,
    }
}

/// Returns the connection to make as programs have it.
pub fn c_new(new: &NewConn, now: Ticks) -> CNew {
    let helper = new.class.helper.map_or(0, |helper| helper as u32 + 1);
    CNew {
        original: c_tuple(&new.original),
        reply: c_tuple(&new.reply),
        label: [new.label as u64, (new.label >> 64) as u64],
        window: [new.tcp[0], new.tcp[1]],
        control: new.tcp[2],
        mark: new.mark,
        class: u32::from(new.class.policy) | u32::from(new.class.timeout) << 12 | helper << 20,
        flags: new.flags.into(),
        timeout: new.timeout,
        now: now.0,
        ..CNew::default()
    }
}

/// The programs, loaded over a memory. They keep its maps.
pub struct Programs {
    pub table: OwnedFd,
    #[allow(dead_code)] // not every file of tests needs it
    pub hammer: OwnedFd,
}

impl Programs {
    pub fn load(memory: &BpfMemory) -> Programs {
        Programs::of(Path::new(concat!(env!("OUT_DIR"), "/ct_table.bpf.o")), memory)
    }

    pub fn of(object: &Path, memory: &BpfMemory) -> Programs {
        let mut open = ObjectBuilder::default().open_file(object).unwrap();
        let maps = memory.maps();
        for mut map in open.maps_mut() {
            if let Some(fd) = maps.get(map.name().to_str().unwrap()) {
                map.reuse_fd(*fd).unwrap();
            }
        }
        let object = open.load().unwrap();
        let program = |name: &str| {
            let program = object.progs().find(|p| p.name() == OsStr::new(name)).unwrap();
            program.as_fd().try_clone_to_owned().unwrap()
        };
        Programs { table: program("table"), hammer: program("hammer") }
    }

    /// Has a program answer a request.
    pub fn ask(&self, op: Op, arg: u64, new: CNew) -> Request {
        let request = Request { op: op as u32, result: u32::MAX, arg, new };
        let out = sys::run(self.table.as_fd(), request.as_bytes(), &[], 1).unwrap();
        assert_eq!(out.verdict, 2, "XDP_PASS");
        Request::read_from_bytes(&out.data).unwrap()
    }

    /// Looks a tuple up.
    pub fn find(&self, tuple: &Tuple, now: Ticks) -> Option<CFound> {
        let new = CNew { original: c_tuple(tuple), now: now.0, ..CNew::default() };
        let answer = self.ask(Op::Find, 0, new);
        (answer.result == 1).then_some(answer.new.made)
    }

    /// Returns `enum ct_made`.
    pub fn create(&self, new: &NewConn, now: Ticks) -> Request {
        self.ask(Op::Create, 0, c_new(new, now))
    }
}

/// A table in memory that programs share.
pub struct Shelf {
    pub memory: Arc<BpfMemory>,
    pub table: Arc<Table>,
    pub sweeper: Sweeper,
    #[allow(dead_code)] // not every file of tests needs it
    pub adoption: Adoption,
}

impl Shelf {
    pub fn open(directory: Option<&Path>) -> Shelf {
        Shelf::of_chunks(directory, CHUNK)
    }

    pub fn of_chunks(directory: Option<&Path>, conns: usize) -> Shelf {
        let pins = directory.map(|directory| Arc::new(Pins::open(directory).unwrap()));
        let (memory, adoption) =
            BpfMemory::open(pins.as_ref(), conns).unwrap_or_else(|e| panic!("{e}"));
        let memory = Arc::new(memory);
        let table = Arc::new(Table::open(memory.clone(), SECRET).unwrap());
        let sweeper = Sweeper::new(table.clone(), Box::new(Grace::new().unwrap()));
        Shelf { memory, table, sweeper, adoption }
    }

    /// Asserts that programs find for a tuple what the daemon finds.
    pub fn compare(&self, programs: &Programs, tuple: &Tuple, now: Ticks) -> bool {
        let mut worker = self.table.worker();
        let pinned = worker.pin();
        let here = self.table.lookup(&pinned, tuple, now);
        let there = programs.find(tuple, now);
        let found = here.map(|found| {
            (found.conn.slot(), found.head.0, u32::from(found.direction == Direction::Reply))
        });
        assert_eq!(there.map(|f| (f.slot, f.head, f.reply)), found, "{tuple:?}");
        found.is_some()
    }
}
