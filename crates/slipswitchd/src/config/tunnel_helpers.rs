// SPDX-License-Identifier: Apache-2.0
//! Tunnel devices of the kernel that help the tunnel ports, one for each kind and UDP port.
//!
//! A device is made when the first tunnel of its kind and UDP port comes, and removed with the last
//! one. It outlives the daemon, as flows do, and the next daemon goes on with it. Without a device
//! tunnels work, but aggregates are slower. The same holds for the devices that segment packets.

mod segmenter;

use super::context::Context;
use super::desired::Tunables;
use super::offload;
use super::state::{Remarks, SwitchState};
use crate::args::DummyLevel;
use bridge::port::Port;
use bridge::tunnel;
use datapath::offload::{TunnelHelper, TunnelHelperCounts};
use datapath::{PortKind, PortNo, TunnelKind};
use netdev::{Holder, TunnelDevice, TunnelDeviceError, TunnelDeviceSpec};
use placement::PlacedDatapath;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segmenter::Segmenter;

/// Time after which a device is tried again that could not be made.
const RETRY: Duration = Duration::from_secs(60);
/// Number of packets in a row that a device may get without one that comes out of it.
const MOST_LOST: u64 = 64;

/// The devices of all tunnels, and the reasons why others are not there.
#[derive(Debug, Default)]
pub(super) struct TunnelHelpers {
    all: BTreeMap<TunnelDeviceSpec, State>,
    segmenter: Segmenter,
    /// Devices of an earlier daemon that no tunnel needs are gone.
    is_swept: bool,
}

#[derive(Debug)]
enum State {
    Open(Open),
    /// Packets did not come out of the device, which was deleted.
    Closed,
    Absent(Absent),
}

/// A device that could not be made.
#[derive(Debug)]
struct Absent {
    reason: String,
    /// The kernel has no such devices: no person has to act.
    is_ordinary: bool,
    /// Time before which it is not tried again: an attempt may load a module, or make a device whose end is
    /// an event that leads here again. `None`: each reconfiguration tries it.
    until: Option<Instant>,
}

impl Absent {
    fn new(error: &TunnelDeviceError) -> Absent {
        use TunnelDeviceError::{InUse, KernelTooOld, NoModule, System};
        let later = Some(Instant::now() + RETRY);
        let (is_ordinary, until) = match error {
            NoModule(_) | KernelTooOld => (true, later),
            InUse(Holder::Device(_)) => (false, None),
            InUse(Holder::Socket) | System { .. } => (false, later),
        };
        Absent { reason: error.to_string(), is_ordinary, until }
    }

    /// Returns true when it is time for another attempt.
    fn is_due(&self) -> bool {
        self.until.is_none_or(|at| Instant::now() >= at)
    }

    /// Logs `text`, once.
    fn tell(&self, remarks: &mut Remarks, text: &str) {
        let text = format!(
            "{text} (ovs-vsctl set Open_vSwitch . other_config:tunnel-helper=false asks for none)"
        );
        if self.is_ordinary { remarks.info(text) } else { remarks.warn(text) }
    }
}

/// A device that gets packets.
#[derive(Debug)]
struct Open {
    device: TunnelDevice,
    port: PortNo,
    helper: TunnelHelper,
    watch: Watch,
}

/// The search for packets that do not come out of a device.
#[derive(Debug, Default)]
struct Watch {
    last: TunnelHelperCounts,
    /// Packets given when the last one was seen to come back.
    given_at_return: u64,
}

impl Watch {
    /// Takes the counts of now. Returns true when too many packets in a row are lost. Those that were
    /// given since the previous call may still be under way.
    fn finds_loss(&mut self, now: TunnelHelperCounts) -> bool {
        let last = std::mem::replace(&mut self.last, now);
        if now.returned != last.returned {
            self.given_at_return = now.given;
        }
        last.given.saturating_sub(self.given_at_return) >= MOST_LOST
    }
}

/// Returns the device that helps tunnels of `config`; `None` for kinds without one, and for tunnels of
/// `openvswitch.ko`, which have a device of their own.
fn spec_of(config: &tunnel::Config) -> Option<TunnelDeviceSpec> {
    let tunnel::Config { kind, port, extensions, is_kernel, .. } = *config;
    match kind {
        _ if is_kernel => None,
        // A device of the generic protocol extension has no Ethernet headers.
        TunnelKind::Vxlan if extensions.gpe => None,
        TunnelKind::Vxlan => Some(TunnelDeviceSpec::Vxlan { port, gbp: extensions.gbp }),
        TunnelKind::Geneve => Some(TunnelDeviceSpec::Geneve { port }),
        TunnelKind::Gre => Some(TunnelDeviceSpec::Gre),
        TunnelKind::Bareudp
        | TunnelKind::Erspan
        | TunnelKind::Gtpu
        | TunnelKind::Ip6Erspan
        | TunnelKind::Ip6Gre
        | TunnelKind::Lisp
        | TunnelKind::Srv6
        | TunnelKind::Stt => None,
    }
}

/// Returns the name of the tunnels that a device helps, for people.
fn title(spec: TunnelDeviceSpec) -> String {
    match spec {
        TunnelDeviceSpec::Vxlan { port, .. } => format!("vxlan port {port}"),
        TunnelDeviceSpec::Geneve { port } => format!("geneve port {port}"),
        TunnelDeviceSpec::Gre => "gre".to_owned(),
        TunnelDeviceSpec::Ip6Gre => "ip6gre".to_owned(),
    }
}

/// Returns the devices that tunnels want, and the datapath ports of these tunnels.
fn wanted(context: &Context<'_>) -> BTreeMap<TunnelDeviceSpec, PortNo> {
    let ports = context.switch.bridges().flat_map(|bridge| bridge.ports.values());
    ports.filter_map(|port| Some((spec_of(port.tunnel.as_ref()?)?, port.dp_port?))).collect()
}

/// Returns the interface index of a device by which outer packets enter the host's stack: the port of a
/// bridge that has an IP address, if possible the bridge's own. `None`: only devices of the host have
/// addresses.
fn entrance(context: &Context<'_>) -> Option<u32> {
    let routes = context.underlay.routes();
    let is_addressed = |port: &Port| {
        let device = routes.devices().get(port.name.as_str());
        device.is_some_and(|device| !device.addresses.is_empty())
    };
    let mut found = None;
    for bridge in context.switch.bridges() {
        let ports = bridge.ports.values().filter(|port| port.kind == PortKind::Internal);
        for port in ports.filter(|port| port.status.admin_up && is_addressed(port)) {
            let index = port.status.ifindex_here();
            if port.name == bridge.name && index.is_some() {
                return index;
            }
            found = found.or(index);
        }
    }
    found
}

/// Makes the devices equal to the tunnels; after the ports.
pub(super) fn sync(context: &Context<'_>, state: &mut SwitchState, new: &Tunables) {
    let Some(placed) = context.placed.filter(|_| context.dummy == DummyLevel::Off) else { return };
    let is_on = new.tunnel_helper && new.bpf_offload && offload::is_on(context);
    let wanted = if is_on { wanted(context) } else { BTreeMap::new() };
    let entrance = entrance(context);
    let owner = offload::owner(context.directories);
    let SwitchState { tunnel_helpers: helpers, remarks, .. } = state;
    let is_stale = |spec: &TunnelDeviceSpec, state: &State| match (wanted.get(spec), state) {
        (Some(port), State::Open(open)) => *port != open.port || !open.device.is_up(),
        (Some(_), State::Closed) => false,
        (Some(_), State::Absent(absent)) => absent.is_due(),
        (None, _) => true,
    };
    let stale: Vec<TunnelDeviceSpec> =
        helpers.all.iter().filter(|(spec, state)| is_stale(spec, state)).map(|(s, _)| *s).collect();
    for spec in stale {
        if let Some(State::Open(open)) = helpers.all.remove(&spec) {
            open.end(placed);
        }
    }
    for (spec, port) in wanted {
        let make = || Open::make(placed, spec, port, entrance, &owner);
        match helpers.all.entry(spec).or_insert_with(make) {
            State::Open(open) => open.follow(placed, entrance),
            State::Closed => {}
            State::Absent(absent) => tell(remarks, spec, absent),
        }
    }
    let is_wanted = is_on && segmenter::is_wanted(context);
    helpers.segmenter.sync(placed, is_wanted, &owner, remarks);
    if !std::mem::replace(&mut helpers.is_swept, true) {
        let is_open = |spec| matches!(helpers.all.get(&spec), Some(State::Open(_)));
        discard(&owner, is_open);
        if !is_wanted {
            let _ = placed.set_segmenter(None); // its programs give an earlier daemon's devices packets
            segmenter::discard(&owner);
        }
    }
}

/// Logs, once, that a device is missing.
fn tell(remarks: &mut Remarks, spec: TunnelDeviceSpec, absent: &Absent) {
    let (title, reason) = (title(spec), &absent.reason);
    let text = format!(
        "tunnels of {title} have no tunnel device of the kernel, and work without: {reason}"
    );
    absent.tell(remarks, &text);
}

/// Deletes all devices that an earlier daemon has left.
pub(super) fn discard_all(owner: &str) {
    discard(owner, |_| false);
    segmenter::discard(owner);
}

/// Deletes the tunnel devices that an earlier daemon has left, except those that are to be kept.
fn discard(owner: &str, is_kept: impl Fn(TunnelDeviceSpec) -> bool) {
    let left = TunnelDevice::of_owner(owner).unwrap_or_else(|error| {
        tracing::warn!(target: "tunnel", "tunnel devices that an earlier daemon left cannot be looked for ({error})");
        Vec::new()
    });
    left.into_iter().filter(|device| !is_kept(device.spec())).for_each(remove);
}

fn remove(device: TunnelDevice) {
    let name = device.spec().name();
    if let Err(error) = device.remove() {
        tracing::warn!(target: "tunnel", "{name} stays ({error}): ip link del {name} removes it");
    }
}

/// Follows changes of the host's addresses, and closes devices that lose packets.
pub(super) fn tick(context: &Context<'_>, state: &mut SwitchState) {
    let Some(placed) = context.placed else { return };
    let helpers = &mut state.tunnel_helpers.all;
    if !helpers.values().any(|state| matches!(state, State::Open(_))) {
        return;
    }
    let entrance = entrance(context);
    for (spec, state) in helpers {
        let State::Open(open) = state else { continue };
        let counts = placed.tunnel_helper_counts(open.port).unwrap_or_default();
        if !open.watch.finds_loss(counts) {
            open.follow(placed, entrance);
            continue;
        }
        tracing::warn!(
            target: "tunnel",
            "{MOST_LOST} packets in a row did not come out of {}, most likely because the host's \
             firewall drops packets of {}: the device is removed, and large packets of these tunnels are \
             slower; let them pass and restart the daemon",
            spec.name(),
            title(*spec),
        );
        if let State::Open(open) = std::mem::replace(state, State::Closed) {
            open.end(placed);
        }
    }
}

/// Removes all devices (`exit --cleanup`).
pub(super) fn clear(context: &Context<'_>, state: &mut SwitchState) {
    let Some(placed) = context.placed else { return };
    for (_, state) in std::mem::take(&mut state.tunnel_helpers.all) {
        if let State::Open(open) = state {
            open.end(placed);
        }
    }
    std::mem::take(&mut state.tunnel_helpers.segmenter).end(placed);
}

impl Open {
    /// Makes the device, or goes on with that of an earlier daemon.
    fn make(
        placed: &Arc<PlacedDatapath>,
        spec: TunnelDeviceSpec,
        port: PortNo,
        entrance: Option<u32>,
        owner: &str,
    ) -> State {
        let device = match TunnelDevice::open(spec, owner) {
            Ok(device) => device,
            Err(error) => return State::Absent(Absent::new(&error)),
        };
        let helper = TunnelHelper { device: device.ifindex(), entrance };
        // The program comes first: nothing of the tunnel reaches the host's stack.
        let attached = placed.set_tunnel_helper(port, Some(&helper)).map_err(|reason| Absent {
            reason: reason.to_string(),
            is_ordinary: false,
            until: Some(Instant::now() + RETRY),
        });
        let up = attached.and_then(|()| device.up().map_err(|error| Absent::new(&error)));
        let open = Open { device, port, helper, watch: Watch::default() };
        match up {
            Ok(()) => {
                tracing::info!(target: "tunnel", "{} helps tunnels of {}", spec.name(), title(spec));
                State::Open(open)
            }
            Err(absent) => {
                open.end(placed);
                State::Absent(absent)
            }
        }
    }

    /// Follows a change of the device by which packets enter the host's stack.
    fn follow(&mut self, placed: &PlacedDatapath, entrance: Option<u32>) {
        if self.helper.entrance == entrance {
            return;
        }
        let helper = TunnelHelper { entrance, ..self.helper };
        match placed.set_tunnel_helper(self.port, Some(&helper)) {
            Ok(()) => self.helper = helper,
            Err(reason) => {
                let name = self.device.spec().name();
                tracing::warn!(target: "tunnel", "{name} gets no packets from bridges ({reason})");
            }
        }
    }

    fn end(self, placed: &PlacedDatapath) {
        // No provider, no program.
        let _ = placed.set_tunnel_helper(self.port, None);
        remove(self.device);
    }
}

/// The tunnel device of one kind and UDP port, for people.
pub(crate) struct Report {
    /// The tunnels.
    pub title: String,
    /// The datapath port of tunnels whose device was closed because packets did not come back.
    pub closed: bool,
    /// The device and its counts, or why there is none.
    pub text: String,
}

impl TunnelHelpers {
    /// Returns a report on each device, in the order of kinds and ports.
    pub(super) fn reports(&self, placed: Option<&Arc<PlacedDatapath>>) -> Vec<Report> {
        let text = |spec: TunnelDeviceSpec, state: &State| match state {
            State::Open(open) => {
                let counts = placed.and_then(|placed| placed.tunnel_helper_counts(open.port));
                let TunnelHelperCounts { given, returned } = counts.unwrap_or_default();
                format!("{}, {given} packets given, {returned} came back", spec.name())
            }
            State::Closed => format!(
                "none: {MOST_LOST} packets in a row did not come back; most likely the host's firewall \
                 drops them"
            ),
            State::Absent(absent) => format!("none: {}", absent.reason),
        };
        let report = |(spec, state): (&TunnelDeviceSpec, &State)| Report {
            title: title(*spec),
            closed: matches!(state, State::Closed),
            text: text(*spec, state),
        };
        self.all.iter().map(report).chain(self.segmenter.report()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bridge::tunnel::{Config, OrFlow};

    fn counts(given: u64, returned: u64) -> TunnelHelperCounts {
        TunnelHelperCounts { given, returned }
    }

    #[test]
    fn packets_in_a_row_that_do_not_come_back_are_a_loss() {
        let mut watch = Watch::default();
        assert!(!watch.finds_loss(counts(100, 0)), "they are under way");
        assert!(!watch.finds_loss(counts(100, 1)), "one has come back");
        assert!(!watch.finds_loss(counts(163, 1)));
        assert!(!watch.finds_loss(counts(164, 1)), "63 are lost, one is under way");
        assert!(watch.finds_loss(counts(164, 1)));
    }

    #[test]
    fn a_device_helps_one_kind_and_port() {
        let of = |kind| spec_of(&Config::new(kind, OrFlow::Flow));
        let mut config = Config::new(TunnelKind::Vxlan, OrFlow::Flow);
        let vxlan = |gbp| Some(TunnelDeviceSpec::Vxlan { port: 4789, gbp });
        assert_eq!(spec_of(&config), vxlan(false));
        config.extensions.gbp = true;
        assert_eq!(spec_of(&config), vxlan(true));
        config.extensions.gpe = true;
        assert_eq!(spec_of(&config), None);
        assert_eq!(of(TunnelKind::Geneve), Some(TunnelDeviceSpec::Geneve { port: 6081 }));
        assert_eq!(of(TunnelKind::Gre), Some(TunnelDeviceSpec::Gre));
        assert_eq!(of(TunnelKind::Erspan), None);
    }
}
