// SPDX-License-Identifier: Apache-2.0
//! A generator and a sink with one or two switches in between, of which the first puts frames into
//! a tunnel, and the second takes them out.

use crate::endpoints::FIRST_TIMEOUT;
use crate::generator::{Stream, Traffic};
use crate::netns::ifindex;
use crate::overlay::{Overlay, Tunnel};
use crate::pin::Cpus;
use crate::programs::{Hook, Programs};
use crate::sink::Sink;
use crate::system::{System, Tier};
use crate::testbed::{self, Counted, generator};
use crate::topology::{Port, Remote};
use anyhow::{Result, ensure};

/// The tunnel's part that frames pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The sink is in place of the second switch.
    In,
    InAndOut,
}

impl Way {
    pub const ALL: [Way; 2] = [Way::In, Way::InAndOut];

    /// Name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Way::In => "in",
            Way::InAndOut => "in and out",
        }
    }
}

/// A way from the generator at the first site's host to the sink.
pub struct Path {
    /// Dropped first: switches end before their devices go.
    overlay: Overlay,
    generator: Programs,
    sink: Sink,
}

impl Path {
    /// With a bare redirect in place of each switch.
    pub fn bare(way: Way, cpus: Cpus) -> Result<Path> {
        let mut overlay = Overlay::apart(System::BareXdp, cpus, Remote::Card)?;
        let switches = if way == Way::In { 1 } else { 2 };
        for site in overlay.sites.iter_mut().take(switches) {
            let ifindex = ifindex(site.instance.netns(), "u0")?;
            let underlay = Port { name: "u0".into(), ifindex };
            site.instance.add_ports(1, &[site.wire.port.clone(), underlay])?;
        }
        Path::along(overlay, way)
    }

    /// With Slipswitch at XDP.
    pub fn tunnel(way: Way, cpus: Cpus, tunnel: Tunnel) -> Result<Path> {
        let overlay = Overlay::new(System::Slipswitch(Tier::Xdp), cpus, tunnel, Remote::Card)?;
        let [one, two] = &overlay.sites;
        let reached = one.wire.host.reaches(two.wire.host.address(), FIRST_TIMEOUT);
        ensure!(reached, "the hosts do not reach each other");
        // The first switch knows the second's address by now.
        if let (Way::In, Some(switch)) = (way, two.instance.switch()) {
            switch.vsctl("del-port phy u0");
        }
        Path::along(overlay, way)
    }

    fn along(overlay: Overlay, way: Way) -> Result<Path> {
        let [one, two] = &overlay.sites;
        let sink = match way {
            Way::In => {
                let netns = two.instance.netns();
                let ifindex = ifindex(netns, "u0")?;
                netns.with(|| Sink::at(Hook::Xdp, ifindex))?
            }
            Way::InAndOut => {
                let ifindex = two.wire.ifindex;
                two.wire.host.netns.with(|| Sink::at(Hook::Xdp, ifindex))?
            }
        };
        let ifindex = one.wire.ifindex;
        let generator = one.wire.host.netns.with(|| generator(ifindex, Counted::AtSink))?;
        Ok(Path { overlay, generator, sink })
    }

    /// A report of megaflows that are not at XDP, under traffic.
    pub fn misplaced(&self) -> Option<String> {
        self.overlay.misplaced()
    }
}

impl testbed::Way for Path {
    fn traffic(&self, stream: Stream) -> Traffic<'_> {
        let [one, two] = &self.overlay.sites;
        let daemons = [one, two].map(|site| site.instance.daemons());
        Traffic {
            programs: &self.generator,
            netns: one.wire.host.netns.clone(),
            ifindex: one.wire.ifindex,
            stream,
            sink: &self.sink,
            daemons: daemons.concat(),
            cpus: self.overlay.cpus,
        }
    }
}
