// SPDX-License-Identifier: Apache-2.0
//! The benchmark's BPF programs, loaded.

use crate::live;
use anyhow::{Context, Result, ensure};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, Program, ProgramInput, ProgramMut,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

const TC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o"));
const XDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o"));

/// `BPF_F_XDP_HAS_FRAGS` of linux/bpf.h.
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// Flows that there may be, at most: as in `bpf/flows.h`.
const MOST_FLOWS: u32 = 1 << 18;

/// Which hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// At the driver.
    Xdp,
    /// At the skb.
    Tc,
}

impl Hook {
    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Xdp => "xdp",
            Hook::Tc => "tc",
        }
    }

    /// What a program returns that redirects: `XDP_REDIRECT`, `TC_ACT_REDIRECT`.
    pub fn redirects(self) -> u32 {
        match self {
            Hook::Xdp => 4,
            Hook::Tc => 7,
        }
    }
}

/// One object of `bpf/`, loaded.
pub struct Programs {
    object: Object,
    hook: Hook,
}

/// How an object is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Which one.
    pub hook: Hook,
    /// tc: where `bare` and `flood` send.
    pub output: u32,
    /// XDP: programs say that they take frames of several buffers. A table of programs holds
    /// one sort only.
    pub frags: bool,
    /// XDP: `lookup` has memory for each flow.
    pub lookup: bool,
}

impl Load {
    /// With nothing that has to be asked for.
    pub fn at(hook: Hook) -> Load {
        Load { hook, output: 0, frags: false, lookup: false }
    }
}

impl Programs {
    /// Loads the object; no flow takes turns until [`Programs::control`] says how many.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(load: Load) -> Result<Programs> {
        let bytes = match load.hook {
            Hook::Xdp => XDP,
            Hook::Tc => TC,
        };
        let mut open = ObjectBuilder::default()
            .name(format!("bench_{}", load.hook.name()))
            .and_then(|b| b.open_memory(bytes))
            .context("opening the benchmark's programs")?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(".rodata") {
                map.set_initial_value(&load.output.to_ne_bytes())?;
            }
            if name == "known" && !load.lookup {
                map.set_max_entries(1)?;
            }
        }
        if load.frags {
            for mut program in open.progs_mut() {
                program.set_flags(XDP_HAS_FRAGS);
            }
        }
        let object = open.load().context("loading the benchmark's programs")?;
        Ok(Programs { object, hook: load.hook })
    }

    /// A map.
    ///
    /// # Errors
    /// When the object has none of this name.
    pub fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self.object.maps().find(|m| m.name() == name);
        let map = map.with_context(|| format!("no map {name}"))?;
        Ok(MapHandle::try_from(&map)?)
    }

    /// A program.
    ///
    /// # Errors
    /// When the object has none of this name.
    pub fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let program = self.object.progs_mut().find(|p| p.name() == name);
        program.with_context(|| format!("no program {name}"))
    }

    /// Makes `program` what `touch` runs.
    ///
    /// # Errors
    /// When the table of programs does not take it.
    pub fn set_subject(&self, program: BorrowedFd<'_>) -> Result<()> {
        let fd = program.as_raw_fd().to_ne_bytes();
        self.map("subject")?
            .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
            .context("putting a program into the table of programs")
    }

    /// XDP: lets `generate` (0) or `bare` (1) redirect to a device of this namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_way(&self, way: u32, ifindex: u32) -> Result<()> {
        self.redirect(way, ifindex, 0)
    }

    /// XDP: the same, but `leave` counts and drops what is redirected where the device would take
    /// it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end_at(&self, way: u32, ifindex: u32) -> Result<()> {
        self.redirect(way, ifindex, self.program("leave")?.as_fd().as_raw_fd())
    }

    /// Writes a `struct bpf_devmap_val`: what redirects to `way` goes to. `program`: 0 for none.
    fn redirect(&self, way: u32, ifindex: u32, program: RawFd) -> Result<()> {
        let value = [ifindex.to_ne_bytes(), program.to_ne_bytes()].concat();
        self.map("ways")?
            .update(&way.to_ne_bytes(), &value, MapFlags::ANY)
            .with_context(|| format!("redirecting to interface {ifindex}"))
    }

    /// Attaches a program to XDP in a device's driver, as long as the link is held.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_xdp(&self, program: &str, ifindex: u32) -> Result<Link> {
        self.program(program)?
            .attach_xdp(i32::try_from(ifindex)?)
            .with_context(|| format!("attaching {program} to XDP of interface {ifindex}"))
    }

    /// Nanoseconds of one run of `touch` on a frame that arrives on `ifindex`.
    ///
    /// # Errors
    /// When the last run did not redirect.
    pub fn cost(&self, frame: &[u8], ifindex: u32, repeat: u32) -> Result<f64> {
        let output = self.repeat("touch", frame, ifindex, repeat)?;
        let redirects = self.hook.redirects();
        ensure!(
            output.0 == redirects,
            "the program returned {}, not {redirects} (redirect)",
            output.0
        );
        Ok(output.1)
    }

    /// Runs `program` so many times on one frame that arrives on `ifindex`; what the last run
    /// returned, and nanoseconds of each. Packets that it sends wait until all runs are over, and
    /// more than some hundred do not fit.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn repeat(
        &self,
        program: &str,
        frame: &[u8],
        ifindex: u32,
        repeat: u32,
    ) -> Result<(u32, f64)> {
        let mut context = self.context(frame, ifindex);
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            repeat,
            ..ProgramInput::default()
        };
        test_run(&self.program(program)?, input)
    }

    /// Runs `program` over `count` live frames that arrive on `ifindex` of the calling thread's
    /// namespace; `batch` of them are made before they are sent, or as many as the kernel
    /// chooses when it is 0.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn send(
        &self,
        program: &str,
        frame: &[u8],
        ifindex: u32,
        count: u32,
        batch: u32,
    ) -> Result<()> {
        let context = self.context(frame, ifindex);
        let run = live::Run { frame, context: &context, count, batch };
        live::run(self.program(program)?.as_fd(), run)
    }

    /// Tells the generator what to do from now on.
    ///
    /// # Errors
    /// When there are more flows than programs tell apart, and when the kernel refuses.
    pub fn control(&self, control: Control) -> Result<()> {
        ensure!(
            control.flows <= MOST_FLOWS,
            "{} flows: the generator has at most {MOST_FLOWS}",
            control.flows
        );
        let mask = control.flows.next_power_of_two() - 1;
        let words = [control.flows, u32::from(control.stop), u32::from(control.stamp), mask];
        let mut bytes: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_ne_bytes()).collect();
        bytes.extend(control.gap.to_ne_bytes());
        Ok(self.map("control")?.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)?)
    }

    /// Frames that the generator has sent since the object was loaded.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sent(&self) -> Result<u64> {
        let value = self.map("progress")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.context("the generator's progress is not there")?;
        let (words, _) = value.as_chunks();
        words.get(2).map(|w| u64::from_ne_bytes(*w)).context("its progress is cut short")
    }

    /// `struct xdp_md`, or `struct __sk_buff` up to `ifindex`, as BPF_PROG_RUN wants them.
    fn context(&self, frame: &[u8], ifindex: u32) -> Vec<u8> {
        let words: Vec<u32> = match self.hook {
            // data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
            Hook::Xdp => vec![0, frame.len() as u32, 0, ifindex, 0, 0],
            // ingress_ifindex is the tenth, ifindex the eleventh word.
            Hook::Tc => (0..11).map(|word| if word == 10 { ifindex } else { 0 }).collect(),
        };
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }
}

fn test_run(program: &ProgramMut<'_>, input: ProgramInput<'_>) -> Result<(u32, f64)> {
    let name = program.name().to_string_lossy().into_owned();
    let output = program.test_run(input).with_context(|| format!("running {name}"))?;
    Ok((output.return_value, output.duration.as_nanos() as f64))
}

/// What the generator is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Flows that take turns.
    pub flows: u32,
    /// No more traffic: frames are dropped where they would begin.
    pub stop: bool,
    /// Each frame says when it was made.
    pub stamp: bool,
    /// Nanoseconds from frame to frame; 0 for as fast as possible.
    pub gap: u64,
}

/// The program that a link has put on a device of this machine, whatever the namespace:
/// `None` when there is no such link.
pub fn attached(hook: Hook, ifindex: u32) -> Option<OwnedFd> {
    use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo};
    let on = |info: &LinkTypeInfo| match (hook, info) {
        (Hook::Xdp, LinkTypeInfo::Xdp(xdp)) => xdp.ifindex == ifindex,
        (Hook::Tc, LinkTypeInfo::Tcx(tcx)) => tcx.ifindex == ifindex,
        _ => false,
    };
    let link = LinkInfoIter::default().find(|link| on(&link.info))?;
    Program::fd_from_id(link.prog_id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_tell_so_many_flows_apart() {
        let mut open = ObjectBuilder::default().open_memory(XDP).unwrap();
        let known = open.maps_mut().find(|map| map.name() == "known").unwrap();
        assert_eq!(known.max_entries(), MOST_FLOWS);
    }
}
