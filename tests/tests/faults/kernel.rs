// SPDX-License-Identifier: Apache-2.0
//! The parts of a switch that live in the kernel.

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType};
use std::collections::BTreeSet;
use std::path::Path;

/// Numbers of BPF objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    maps: BTreeSet<u32>,
    programs: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

impl Objects {
    /// Those that pins in a directory hold.
    pub fn pinned(directory: &Path) -> Objects {
        let mut objects = Objects::default();
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with("link_") {
                let link = Link::open(&path).expect("a link is pinned there");
                let info = link.info().expect("the kernel describes a link");
                objects.links.insert(info.id);
                objects.programs.insert(info.prog_id);
            } else {
                objects
                    .add_map(&MapHandle::from_pinned_path(&path).expect("a map is pinned there"));
            }
        }
        objects
    }

    fn add_map(&mut self, map: &MapHandle) {
        self.maps.insert(map.info().expect("the kernel describes a map").info.id);
        if map.map_type() == MapType::ProgArray {
            let slots = 0..map.max_entries();
            let program =
                |slot: u32| map.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok()??.try_into().ok();
            self.programs.extend(slots.filter_map(program).map(u32::from_ne_bytes));
        }
    }

    /// All that the kernel has, whosesoever they are.
    pub fn all() -> Objects {
        Objects {
            maps: numbers(libbpf_sys::bpf_map_get_next_id),
            programs: numbers(libbpf_sys::bpf_prog_get_next_id),
            links: numbers(libbpf_sys::bpf_link_get_next_id),
        }
    }

    /// Adds those of `other`.
    pub fn add(&mut self, other: &Objects) {
        self.maps.extend(&other.maps);
        self.programs.extend(&other.programs);
        self.links.extend(&other.links);
    }

    /// Those that are not in `other`.
    pub fn but(&self, other: &Objects) -> Objects {
        Objects {
            maps: &self.maps - &other.maps,
            programs: &self.programs - &other.programs,
            links: &self.links - &other.links,
        }
    }

    /// Those that are in `other`, too.
    pub fn and(&self, other: &Objects) -> Objects {
        self.but(&self.but(other))
    }

    /// How many maps, programs and links.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.maps.len(), self.programs.len(), self.links.len())
    }
}

/// All numbers that `next` knows. Nothing is opened: the kernel forgets to free a table of programs
/// that is opened at the moment in which it goes.
fn numbers(next: unsafe extern "C" fn(u32, *mut u32) -> i32) -> BTreeSet<u32> {
    let step = |number: &u32| {
        let mut following = 0;
        // SAFETY: the call writes one number to the given address.
        let found = unsafe { next(*number, &raw mut following) } == 0;
        found.then_some(following)
    };
    std::iter::successors(step(&0), step).collect()
}
