// SPDX-License-Identifier: Apache-2.0
//! A peer between a generator and a sink, and the generator with nothing but a sink.

use crate::generator::{Stream, Traffic};
use crate::netns::{Pair, veth};
use crate::object::{Hook, Load, Programs};
use crate::peer::{Between, Peer, System};
use crate::pin::Cpus;
use crate::sink::{Drain, Sink};
use crate::topology::{Far, Topology};
use anyhow::{Result, ensure};
use slipswitch_tests::harness::Netns;

/// A peer with two ports: a generator in front of the first, a sink behind the second.
pub struct Bed {
    /// The peer; ends before its devices go.
    pub peer: Box<dyn Peer>,
    drain: Drain,
    generator: Programs,
    topology: Topology,
    cpus: Cpus,
}

impl Bed {
    /// Starts a system and puts it between. Traffic comes from a card. To be called on a thread
    /// that lives as long as this value.
    ///
    /// # Errors
    /// When the system does not start or does not take the ports.
    pub fn new(system: System, receiver: Far, cpus: Cpus) -> Result<Bed> {
        let redirects = matches!(system, System::BareXdp | System::BareLookup);
        ensure!(
            !redirects || receiver != Far::Container,
            "the kernel drops XDP redirects to a veth whose other end has neither XDP nor GRO"
        );
        let mut peer = system.start(cpus, Between::Frames)?;
        let topology = Topology::around(peer.netns(), Far::Card, receiver)?;
        let hook = match receiver {
            Far::Container => Hook::Tc,
            Far::Card => system.leaves_by(),
        };
        let end = &topology.receiver;
        let drain = end.host.netns.with(|| Drain::at(hook, end.ifindex))?;
        peer.add_ports(&topology.ports())?;
        let start = &topology.sender;
        let generator = start.host.netns.with(|| generator(start.ifindex, End::Sink))?;
        Ok(Bed { peer, drain, generator, topology, cpus })
    }

    /// A stream through the peer.
    pub fn traffic(&self, stream: Stream) -> Traffic<'_> {
        let start = &self.topology.sender;
        Traffic {
            programs: &self.generator,
            program: "generate",
            netns: start.host.netns.clone(),
            ifindex: start.ifindex,
            stream,
            sink: &self.drain.sink,
            daemons: self.peer.daemons(),
            cpus: self.cpus,
        }
    }
}

/// Where frames of a generator without a switch are counted, and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A sink behind its device, on the same CPU: what no switch can exceed here.
    Sink,
    /// Where its device would take them: what it sends, without what receiving costs.
    Device,
}

/// A generator without a switch.
pub struct Ceiling {
    netns: Netns,
    pair: Pair,
    generator: Programs,
    drain: Drain,
    /// Counts what ends before the drain.
    leaving: Option<Sink>,
    cpus: Cpus,
}

impl Ceiling {
    /// In a namespace of its own.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(end: End, cpus: Cpus) -> Result<Ceiling> {
        let netns = Netns::new();
        let pair = veth(&netns, "c")?;
        let (drain, generator) = netns.with(|| {
            // The kernel takes a redirect's target only with something behind it.
            let drain = Drain::at(Hook::Xdp, pair.far)?;
            anyhow::Ok((drain, generator(pair.near, end)?))
        })?;
        let leaving = match end {
            End::Sink => None,
            End::Device => Some(Sink::of(&generator)?),
        };
        Ok(Ceiling { netns, pair, generator, drain, leaving, cpus })
    }

    /// A stream.
    pub fn traffic(&self, stream: Stream) -> Traffic<'_> {
        Traffic {
            programs: &self.generator,
            program: "generate",
            netns: self.netns.clone(),
            ifindex: self.pair.near,
            stream,
            sink: self.leaving.as_ref().unwrap_or(&self.drain.sink),
            daemons: Vec::new(),
            cpus: self.cpus,
        }
    }
}

/// A generator that sends out of a device of the calling thread's namespace.
fn generator(ifindex: u32, end: End) -> Result<Programs> {
    let programs = Programs::load(Load::at(Hook::Xdp))?;
    match end {
        End::Sink => programs.set_way(0, ifindex)?,
        End::Device => programs.end_at(0, ifindex)?,
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{CHECKSUM, Pace, SIZES, Span};
    use crate::peer::Rules;
    use crate::pin;
    use slipswitch_tests::harness::{skip, without_privilege};
    use std::time::Duration;

    const WINDOW: Duration = Duration::from_millis(100);
    const TRIES: u32 = 50;

    /// Frames of all sizes get through with their stamps, at the pace that was asked for.
    #[test]
    fn frames_pass_what_the_kernel_has() {
        if without_privilege() {
            return;
        }
        let Ok(cpus) = pin::cpus() else { return skip("there is one CPU only") };
        let layouts = [
            (System::BareXdp, Far::Card),
            (System::BareLookup, Far::Card),
            (System::BareTc, Far::Card),
            (System::BareTc, Far::Container),
            (System::LinuxBridge, Far::Card),
        ];
        for (system, receiver) in layouts {
            let mut bed = Bed::new(system, receiver, cpus).unwrap();
            bed.peer.install(Rules::OneToOne(3)).unwrap();
            for size in SIZES {
                let stream = Stream { flows: 3, size, pace: Pace::Even(2_000) };
                // On a busy machine a window may pass without a frame.
                let mut windows = (0..TRIES).map(|_| bed.traffic(stream).delays(WINDOW).unwrap());
                let has_frames = |span: &Span| span.sent > 0 && span.arrived.packets > 0;
                let (span, delays) = windows.find(|(span, _)| has_frames(span)).unwrap();
                // A look may fall between the two counts of a frame.
                let bytes = span.arrived.packets * u64::from(size - CHECKSUM);
                let error = span.arrived.bytes.abs_diff(bytes);
                assert!(error <= 2 * u64::from(size), "{}: {span:?}", system.name());
                assert!(span.sent <= 2_000, "{span:?}");
                assert!(delays.count() > 0 && delays.quantile(0.5) > Some(0.0));
            }
        }
    }

    /// What the generator sends is counted on its way out, and goes no further.
    #[test]
    fn frames_of_the_generator_alone_end_at_its_device() {
        if without_privilege() {
            return;
        }
        let Ok(cpus) = pin::cpus() else { return skip("there is one CPU only") };
        let ceiling = Ceiling::new(End::Device, cpus).unwrap();
        let traffic = ceiling.traffic(Stream { flows: 3, size: SIZES[1], pace: Pace::Flood });
        let mut windows = (0..TRIES).map(|_| traffic.measure(WINDOW).unwrap());
        let span = windows.find(|span| span.sent > 0 && span.arrived.packets > 0).unwrap();
        let bytes = span.arrived.packets * u64::from(SIZES[1] - CHECKSUM);
        // A look may fall between the two counts of a frame.
        assert!(span.arrived.bytes.abs_diff(bytes) <= 2 * u64::from(SIZES[1]), "{span:?}");
        assert_eq!(ceiling.drain.sink.tally().unwrap().packets, 0);
        let ceiling = Ceiling::new(End::Sink, cpus).unwrap();
        let through = ceiling.traffic(Stream::flood(1)).measure(WINDOW).unwrap();
        assert!(through.arrived.packets > 0, "{through:?}");
        assert!(ceiling.drain.sink.tally().unwrap().packets >= through.arrived.packets);
    }

    #[test]
    fn a_redirect_that_the_kernel_drops_is_refused() {
        let cpus = pin::Cpus { traffic: 1, other: 0 };
        let error = Bed::new(System::BareXdp, Far::Container, cpus).err().unwrap();
        assert!(error.to_string().contains("neither XDP nor GRO"), "{error}");
    }
}
