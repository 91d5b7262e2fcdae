// SPDX-License-Identifier: Apache-2.0
//! A system between a generator and a sink, and the generator without a switch.

use crate::generator::{Stream, TARGET_MAC, Traffic};
use crate::netns::{run, veth};
use crate::pin::Cpus;
use crate::programs::{Hook, Programs};
use crate::sink::Sink;
use crate::system::{Between, Instance, System};
use crate::topology::{Remote, Topology};
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Netns;

/// A way from a generator to a sink.
pub trait Way {
    fn traffic(&self, stream: Stream) -> Traffic<'_>;
}

/// A system with two ports: a generator at the first, a sink at the second.
pub struct Testbed {
    /// Dropped first: it ends before its devices go.
    pub instance: Box<dyn Instance>,
    sink: Sink,
    generator: Programs,
    replies: Option<Replies>,
    topology: Topology,
    cpus: Cpus,
}

/// A generator at the second port, and a sink at the first.
struct Replies {
    generator: Programs,
    sink: Sink,
}

impl Testbed {
    /// Starts a system between a generator and a sink. Traffic comes from a card. The calling
    /// thread has to live as long as this value.
    pub fn new(system: System, receiver: Remote, cpus: Cpus) -> Result<Testbed> {
        let redirects = matches!(system, System::BareXdp | System::BareLookup);
        ensure!(
            !redirects || receiver != Remote::Container,
            "the kernel drops XDP redirects to a veth whose other end has neither XDP nor GRO"
        );
        let mut instance = system.start(cpus, Between::Frames)?;
        let topology = Topology::around(instance.netns(), Remote::Card, receiver)?;
        let hook = match receiver {
            Remote::Container => Hook::Tc,
            Remote::Card => system.leaves_by(),
        };
        let to = &topology.receiver;
        let sink = to.host.netns.with(|| Sink::at(hook, to.ifindex))?;
        if receiver == Remote::Container {
            // Frames have the container's own address.
            run(&to.host.netns, &format!("ip link set eth0 address {TARGET_MAC}"))?;
        }
        instance.add_ports(1, &topology.ports())?;
        let from = &topology.sender;
        let generator = from.host.netns.with(|| generator(from.ifindex, Counted::AtSink))?;
        Ok(Testbed { instance, sink, generator, replies: None, topology, cpus })
    }

    /// With traffic the other way, between cards.
    pub fn with_replies(mut self, system: System) -> Result<Testbed> {
        let Topology { sender, receiver } = &self.topology;
        let hook = system.leaves_by();
        let sink = sender.host.netns.with(|| Sink::at(hook, sender.ifindex))?;
        let generator =
            receiver.host.netns.with(|| generator(receiver.ifindex, Counted::AtSink))?;
        self.replies = Some(Replies { generator, sink });
        Ok(self)
    }

    /// Answers to the frames of a stream.
    pub fn replies(&self, stream: Stream) -> Result<Traffic<'_>> {
        let Replies { generator, sink } = self.replies.as_ref().context("no traffic goes back")?;
        let from = &self.topology.receiver;
        Ok(Traffic {
            programs: generator,
            netns: from.host.netns.clone(),
            ifindex: from.ifindex,
            stream: Stream { reply: true, ..stream },
            sink,
            daemons: self.instance.daemons(),
            cpus: self.cpus,
        })
    }
}

impl Way for Testbed {
    fn traffic(&self, stream: Stream) -> Traffic<'_> {
        let from = &self.topology.sender;
        Traffic {
            programs: &self.generator,
            netns: from.host.netns.clone(),
            ifindex: from.ifindex,
            stream,
            sink: &self.sink,
            daemons: self.instance.daemons(),
            cpus: self.cpus,
        }
    }
}

/// Where the frames of a generator without a switch are counted, and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// At a sink across one veth pair, on the same CPU: no switch can exceed this rate.
    AtSink,
    /// Where the generator's device takes them: what it sends, without the cost of receiving.
    AtDevice,
}

/// A generator without a switch, in a namespace of its own.
pub struct GeneratorOnly {
    netns: Netns,
    /// Of the end of a veth pair that traffic is sent into.
    ifindex: u32,
    generator: Programs,
    /// Receives frames that reach the other end of the pair.
    far: Sink,
    /// Counts frames at the device.
    near: Option<Sink>,
    cpus: Cpus,
}

impl GeneratorOnly {
    pub fn new(counted: Counted, cpus: Cpus) -> Result<GeneratorOnly> {
        let netns = Netns::new();
        let [ifindex, far] = veth(&netns, "c")?;
        let (far, generator) = netns.with(|| {
            // The kernel accepts a redirect's target only with a program at the other end.
            let far = Sink::at(Hook::Xdp, far)?;
            anyhow::Ok((far, generator(ifindex, counted)?))
        })?;
        let near = match counted {
            Counted::AtSink => None,
            Counted::AtDevice => Some(Sink::of(&generator)?),
        };
        Ok(GeneratorOnly { netns, ifindex, generator, far, near, cpus })
    }
}

impl Way for GeneratorOnly {
    fn traffic(&self, stream: Stream) -> Traffic<'_> {
        Traffic {
            programs: &self.generator,
            netns: self.netns.clone(),
            ifindex: self.ifindex,
            stream,
            sink: self.near.as_ref().unwrap_or(&self.far),
            daemons: Vec::new(),
            cpus: self.cpus,
        }
    }
}

/// A generator that sends out of a device of the calling thread's namespace.
pub fn generator(ifindex: u32, counted: Counted) -> Result<Programs> {
    let programs = Programs::load(Hook::Xdp, 0)?;
    programs.redirect(0, ifindex, (counted == Counted::AtDevice).then_some("leave"))?;
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{CHECKSUM, Pace, SIZES, Span};
    use crate::pin;
    use crate::rules::Rules;
    use slipswitch_tests::harness::{skip, without_privilege};
    use std::time::Duration;

    const WINDOW: Duration = Duration::from_millis(100);
    const TRIES: u32 = 50;

    /// Frames of all sizes pass with their stamps, at the requested pace.
    #[test]
    fn frames_pass_the_systems_of_the_kernel() {
        if without_privilege() {
            return;
        }
        let Ok(cpus) = pin::cpus() else { return skip("there is one CPU only") };
        let layouts = [
            (System::BareXdp, Remote::Card),
            (System::BareLookup, Remote::Card),
            (System::BareTc, Remote::Card),
            (System::BareTc, Remote::Container),
            (System::BareTcPeer, Remote::Container),
            (System::LinuxBridge, Remote::Card),
        ];
        for (system, receiver) in layouts {
            let mut testbed = Testbed::new(system, receiver, cpus).unwrap();
            testbed.instance.install(Rules::OneToOne(3)).unwrap();
            for size in SIZES {
                let stream = Stream { size, pace: Pace::Even(2_000), ..Stream::flood(3) };
                // On a busy machine a window may pass without a frame.
                let mut windows =
                    (0..TRIES).map(|_| testbed.traffic(stream).delays(WINDOW).unwrap());
                let has_frames = |span: &Span| span.sent > 0 && span.arrived.packets > 0;
                let (span, delays) = windows.find(|(span, _)| has_frames(span)).unwrap();
                // A reading may fall between the two counts of a frame.
                let bytes = span.arrived.packets * u64::from(size - CHECKSUM);
                let error = span.arrived.bytes.abs_diff(bytes);
                assert!(error <= 2 * u64::from(size), "{}: {span:?}", system.name());
                assert!(span.sent <= 2_000, "{span:?}");
                assert!(delays.count() > 0 && delays.quantile(0.5) > Some(0.0));
            }
        }
    }

    /// Frames are counted at the device, and go no further.
    #[test]
    fn frames_of_the_generator_alone_end_at_its_device() {
        if without_privilege() {
            return;
        }
        let Ok(cpus) = pin::cpus() else { return skip("there is one CPU only") };
        let generator = GeneratorOnly::new(Counted::AtDevice, cpus).unwrap();
        let traffic = generator.traffic(Stream { size: SIZES[1], ..Stream::flood(3) });
        let mut windows = (0..TRIES).map(|_| traffic.measure(WINDOW).unwrap());
        let span = windows.find(|span| span.sent > 0 && span.arrived.packets > 0).unwrap();
        let bytes = span.arrived.packets * u64::from(SIZES[1] - CHECKSUM);
        // A reading may fall between the two counts of a frame.
        assert!(span.arrived.bytes.abs_diff(bytes) <= 2 * u64::from(SIZES[1]), "{span:?}");
        assert_eq!(generator.far.tally().unwrap().packets, 0);
        let generator = GeneratorOnly::new(Counted::AtSink, cpus).unwrap();
        let through = generator.traffic(Stream::flood(1)).measure(WINDOW).unwrap();
        assert!(through.arrived.packets > 0, "{through:?}");
        assert!(generator.far.tally().unwrap().packets >= through.arrived.packets);
    }

    #[test]
    fn a_redirect_that_the_kernel_drops_is_refused() {
        let cpus = pin::Cpus { traffic: 1, other: 0 };
        let error = Testbed::new(System::BareXdp, Remote::Container, cpus).err().unwrap();
        assert!(error.to_string().contains("neither XDP nor GRO"), "{error}");
    }
}
