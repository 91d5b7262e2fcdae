// SPDX-License-Identifier: Apache-2.0
//! The benchmark's BPF programs, loaded.

use crate::live::{self, tcx_ingress};
use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput, ProgramMut};
use std::any::Any;
use std::os::fd::{AsFd, AsRawFd};

const TC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o"));
const XDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o"));

/// The largest number of flows, as in `bpf/flows.h`.
const MOST_FLOWS: u32 = 1 << 20;

/// A hook of the kernel's receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// At the driver.
    Xdp,
    /// At the skb.
    Tc,
}

/// One object of `bpf/`, loaded.
pub struct Programs {
    object: Object,
    hook: Hook,
}

impl Programs {
    /// Loads the object of a hook. At tc, `bare` and `flood` send to the interface `output`. The
    /// generator has no flows until [`Programs::control`] sets their number.
    pub fn load(hook: Hook, output: u32) -> Result<Programs> {
        let (name, bytes) = match hook {
            Hook::Xdp => ("bench_xdp", XDP),
            Hook::Tc => ("bench_tc", TC),
        };
        let mut open = ObjectBuilder::default()
            .name(name)
            .and_then(|b| b.open_memory(bytes))
            .context("opening the benchmark's programs")?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.set_initial_value(&output.to_ne_bytes())?;
            }
        }
        let object = open.load().context("loading the benchmark's programs")?;
        Ok(Programs { object, hook })
    }

    pub fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self.object.maps().find(|m| m.name() == name);
        let map = map.with_context(|| format!("no map {name}"))?;
        Ok(MapHandle::try_from(&map)?)
    }

    pub fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let program = self.object.progs_mut().find(|p| p.name() == name);
        program.with_context(|| format!("no program {name}"))
    }

    /// XDP: lets `generate` (0) or `bare` (1) redirect to a device of this namespace. The program
    /// `last`, if any, gets the frames where the device would take them.
    pub fn redirect(&self, way: u32, ifindex: u32, last: Option<&str>) -> Result<()> {
        let last = last.map(|name| self.program(name)).transpose()?;
        let program = last.map_or(0, |program| program.as_fd().as_raw_fd());
        // A `struct bpf_devmap_val`.
        let value = [ifindex.to_ne_bytes(), program.to_ne_bytes()].concat();
        self.map("ways")?
            .update(&way.to_ne_bytes(), &value, MapFlags::ANY)
            .with_context(|| format!("redirecting to interface {ifindex}"))
    }

    /// Attaches a program to a device of the calling thread's namespace.
    pub fn attach(self, program: &str, ifindex: u32) -> Result<Attached> {
        let link: Box<dyn Any + Send + Sync> = match self.hook {
            Hook::Xdp => {
                let link = self.program(program)?.attach_xdp(i32::try_from(ifindex)?);
                let at = || format!("attaching {program} to XDP of interface {ifindex}");
                Box::new(link.with_context(at)?)
            }
            Hook::Tc => Box::new(tcx_ingress(self.program(program)?.as_fd(), ifindex)?),
        };
        Ok(Attached { _link: link, programs: self })
    }

    /// Runs `program` `repeat` times on one frame that arrives on `ifindex`. Packets that it sends
    /// wait until all runs are over, and no more than some hundred fit.
    pub fn repeat(&self, program: &str, frame: &[u8], ifindex: u32, repeat: u32) -> Result<()> {
        let mut context = self.context(frame, ifindex);
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            repeat,
            ..ProgramInput::default()
        };
        self.program(program)?.test_run(input).with_context(|| format!("running {program}"))?;
        Ok(())
    }

    /// Runs `generate` over `count` live frames that arrive on `ifindex` of the calling thread's
    /// namespace. `batch` of them are made before they are sent; 0 for the kernel's choice.
    pub fn generate(&self, frame: &[u8], ifindex: u32, count: u32, batch: u32) -> Result<()> {
        let context = self.context(frame, ifindex);
        let run = live::Run { frame, context: &context, count, batch };
        live::run(self.program("generate")?.as_fd(), run)
    }

    /// Sets what the generator does from now on.
    ///
    /// # Errors
    /// When there are more than [`MOST_FLOWS`] flows, and when the kernel refuses.
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
        bytes.extend(u64::from(control.reply).to_ne_bytes());
        Ok(self.map("control")?.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)?)
    }

    /// Frames that the generator has sent since the object was loaded.
    pub fn sent(&self) -> Result<u64> {
        let value = self.map("progress")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.context("the generator has no progress")?;
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

/// `struct control` of `bpf/flows.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Flows that take turns.
    pub flows: u32,
    /// No more traffic: frames are dropped before they are sent.
    pub stop: bool,
    /// Each frame carries the time at which it was made.
    pub stamp: bool,
    /// Nanoseconds from frame to frame; 0 for as fast as possible.
    pub gap: u64,
    /// Frames are replies.
    pub reply: bool,
}

/// A program at a device, as long as this value is held.
pub struct Attached {
    _link: Box<dyn Any + Send + Sync>,
    /// The program's object.
    pub programs: Programs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_memory_for_each_flow() {
        let mut open = ObjectBuilder::default().open_memory(XDP).unwrap();
        let known = open.maps_mut().find(|map| map.name() == "known").unwrap();
        assert_eq!(known.max_entries(), MOST_FLOWS);
    }
}
