// SPDX-License-Identifier: Apache-2.0
//! `ofproto/trace` and `ofproto/trace-packet-out`: what would happen to a packet, and why.
//!
//! Without a packet a trace has no side effects. With one (in hexadecimal, or `-generate`)
//! addresses and flows are learned, meters run and controllers get it as if it had come in; no
//! rule counts it, and it leaves by no port. `--names` shows ports by name.

pub(super) mod arguments;
mod forks;
mod side_effects;

use super::dpctl::flows::split_ufid;
use super::ports::{PortNames, datapath_type};
use super::{ANY, Answer, Commands, compose};
use crate::daemon::Daemon;
use arguments::{Arguments, Flow};
use bridge::effect;
use bridge::snapshot::{BridgeIndex, Snapshot};
use bridge::trace::Tracer;
use bridge::translate::{EffectsMode, LocateError, Request, Translation};
use flow::text::{format_key, odp, parse_exact_flow};
use flow::{Key, VLAN_CFI, extract};
use openflow::action::Action;
use openflow::{PortNo, Version};
use packet::Packet;
use std::sync::Arc;

pub(super) fn register(commands: &Commands<'_>) {
    commands.change(
        "ofproto/trace",
        "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]",
        1,
        ANY,
        |daemon, call| {
            let words: Vec<&str> = call.args.iter().map(String::as_str).collect();
            let arguments = Arguments::parse(&words)?;
            trace(daemon, &arguments, None)
        },
    );
    commands.change(
        "ofproto/trace-packet-out",
        "[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet] actions",
        2,
        ANY,
        |daemon, call| {
            let mut words: Vec<&str> = call.args.iter().map(String::as_str).collect();
            let consistent = words.first() == Some(&"-consistent");
            if consistent {
                words.remove(0);
            }
            let text = words.pop().ok_or("actions are missing")?;
            let actions = openflow::text::parse_actions(text, Version::V10, &|_| None).map_err(|e| e.to_string())?;
            let arguments = Arguments::parse(&words)?;
            trace(daemon, &arguments, Some((&actions, consistent)))
        },
    );
}

/// A packet in a bridge, to be traced.
struct TraceInput {
    bridge: BridgeIndex,
    /// The datapath's number of the port that the packet came in by. Copies that come back keep it,
    /// also in other bridges.
    in_port: datapath::PortNo,
    /// The packet's key, with the OpenFlow `in_port`.
    key: Key,
    /// The options of a Geneve header are not valid.
    invalid_options: bool,
}

fn trace(
    daemon: &mut Daemon,
    arguments: &Arguments<'_>,
    packet_out: Option<(&[Action], bool)>,
) -> Answer {
    let first = run(daemon, arguments, packet_out)?;
    let text = first.text();
    Ok(text + &forks::text(daemon, first, arguments))
}

/// A translation that was traced.
pub(super) struct Traced {
    /// The bridge that it began in.
    pub bridge: BridgeIndex,
    /// The datapath's number of the port that the packet came in by.
    in_port: datapath::PortNo,
    /// The translated key, with the OpenFlow `in_port`.
    pub key: Key,
    /// The result of the translation.
    pub translation: Translation,
    /// The steps of the translation.
    pub tracer: Tracer,
    /// The packet, when there is one.
    packet: Option<Packet>,
    snapshot: Arc<Snapshot>,
}

impl Traced {
    /// The names of the bridge's ports, when they were asked for.
    pub fn names(&self) -> bridge::trace::PortNames<'_> {
        self.tracer.names(self.snapshot.bridge(self.bridge).map(Arc::as_ref))
    }

    /// As `ofproto/trace` prints it.
    pub fn text(&self) -> String {
        let names = self.names();
        format!(
            "Flow: {}\n{}",
            format_key(&self.key, &|number| names.name(number)),
            self.tracer.render(&self.key, &self.translation, &self.snapshot, self.bridge)
        )
    }
}

/// Translates what the arguments of `ofproto/trace` ask for.
pub(super) fn run(
    daemon: &mut Daemon,
    arguments: &Arguments<'_>,
    packet_out: Option<(&[Action], bool)>,
) -> Result<Traced, String> {
    daemon.switch.publish(); // earlier changes must be visible
    let mut input = locate(daemon, &arguments.flow)?;
    let packet = match (&arguments.packet, arguments.generate) {
        (Some(packet), _) => {
            input.key = key_of(packet, &input.key);
            Some(packet.clone())
        }
        (None, true) => Some(generate(&input.key, arguments)),
        (None, false) => None,
    };
    if let Some((actions, true)) = packet_out {
        check_consistency(&input, actions)?;
    }
    Ok(step(daemon, arguments, input, packet, packet_out.map(|(actions, _)| actions)))
}

/// Translates a packet that came in, or came back, and runs its actions without the outputs.
fn step(
    daemon: &Daemon,
    arguments: &Arguments<'_>,
    input: TraceInput,
    packet: Option<Packet>,
    actions: Option<&[Action]>,
) -> Traced {
    let slow = Arc::clone(daemon.switch.slow_path());
    let snapshot = slow.published.newest();
    let now = daemon.clock.now();
    let mut tracer = if arguments.names { Tracer::with_names() } else { Tracer::new() };
    let translation = slow.translate_counted(Request {
        packet: packet.as_ref(),
        invalid_options: input.invalid_options,
        frozen: slow.recirc.state(input.key.recirc_id.get()),
        effects: if packet.is_some() { EffectsMode::Collect } else { EffectsMode::Suppress },
        tracer: Some(&mut tracer),
        // OVS, too, takes an empty list for "as the tables say".
        actions: actions.filter(|actions| !actions.is_empty()),
        ..Request::new(&snapshot, input.bridge, input.key, &slow.recirc, now)
    });
    if let Some(packet) = packet.clone() {
        effect::apply_uncounted(&translation.effects, input.key.tcp_flags.get(), now, &slow.events);
        let actions = side_effects::without_outputs(&translation.actions);
        if !actions.is_empty() {
            let key = Key { in_port: input.in_port.0.into(), ..input.key };
            daemon.switch.datapath().execute(packet, &key, &actions);
        }
    }
    let TraceInput { bridge, in_port, key, .. } = input;
    Traced { bridge, in_port, key, translation, tracer, packet, snapshot }
}

/// The datapath's number of a bridge's port.
fn datapath_port(snapshot: &Snapshot, bridge: BridgeIndex, number: PortNo) -> datapath::PortNo {
    let port = snapshot.bridge(bridge).and_then(|b| b.ports.get(&number));
    port.and_then(|p| p.dp_port).unwrap_or(datapath::PortNo::NONE)
}

/// Finds the bridge and reads the flow: in datapath syntax when it is that, else in OpenFlow's.
fn locate(daemon: &Daemon, flow: &Flow<'_>) -> Result<TraceInput, String> {
    let names = PortNames::of_datapath(daemon);
    // As in a line of `dpif/dump-flows -m`.
    let odp_flow = split_ufid(flow.text).map_or(flow.text, |(_, flow)| flow);
    match odp::parse_packet(odp_flow, &|name| names.number(name)) {
        Ok(key) => {
            let known = flow.place.is_none_or(|name| is_datapath(daemon, name));
            if !known || daemon.switch.bridges().next().is_none() {
                return Err("Cannot find the datapath".to_owned());
            }
            locate_in_datapath(daemon, as_received(key))
        }
        Err(error) => {
            let Some(name) = flow.place else {
                return Err(format!("{error} (or the bridge name was omitted)"));
            };
            let bridge = daemon
                .switch
                .bridge_by_name(name)
                .ok_or_else(|| format!("{name}: unknown bridge"))?;
            let names = PortNames::of_bridge(bridge);
            let key = parse_exact_flow(flow.text, &|name| names.number(name))
                .map_err(|e| format!("Bad openflow flow syntax: {}: {e}", flow.text))?;
            let snapshot = daemon.switch.slow_path().published.newest();
            let in_port = datapath_port(&snapshot, bridge.index, PortNo(key.in_port.get()));
            Ok(TraceInput { bridge: bridge.index, in_port, key, invalid_options: false })
        }
    }
}

/// Returns the key of a packet with these fields, of whose VLAN tags only `vlan-limit` are parsed.
fn as_received(key: Key) -> Key {
    let limit = extract::vlan_limit();
    if !key.vlans.iter().skip(limit).any(|vlan| vlan.tci.get() & VLAN_CFI != 0) {
        return key;
    }
    let mut received = extract::key_of(flow::compose(&key, &[]).data(), key.in_port.get());
    received.set_metadata(&key);
    received
}

/// Returns true for the datapath's name, whole or only the part after the `@` (where `ovs-` may be
/// left out), or for such a name of a type that one of its bridges has.
fn is_datapath(daemon: &Daemon, name: &str) -> bool {
    let short = name.strip_prefix("ovs-").unwrap_or(name);
    let types: &[&str] = match short {
        "netdev" => &["netdev"],
        "system" => &["", "system"],
        "dummy" => &["dummy"],
        _ => &[],
    };
    name == daemon.switch.datapath().name()
        || short == datapath_type(daemon)
        || daemon.configuration.has_bridge_of_type(types)
}

fn locate_in_datapath(daemon: &Daemon, key: Key) -> Result<TraceInput, String> {
    let slow = daemon.switch.slow_path();
    let in_port = datapath::PortNo(key.in_port.get());
    let snapshot = slow.published.newest();
    match bridge::translate::locate(&snapshot, &key, &slow.recirc) {
        Ok(place) => Ok(TraceInput {
            bridge: place.bridge,
            in_port,
            key: place.key,
            invalid_options: place.invalid_options,
        }),
        Err(LocateError::UnknownPort(number)) => {
            Err(format!("no OpenFlow port for datapath port {number}"))
        }
        Err(error @ LocateError::NoTunnelPort) => {
            slow.warn_no_tunnel_port(&key, daemon.clock.now());
            Err(error.to_string())
        }
        Err(LocateError::UnknownRecirculation(id)) => {
            Err(format!("no recirculation data for recirc_id {id:#x}"))
        }
    }
}

/// Returns the packet's key, with the metadata of the flow that was given with the packet.
fn key_of(packet: &Packet, flow: &Key) -> Key {
    let mut key = Key {
        recirc_id: flow.recirc_id,
        dp_hash: flow.dp_hash,
        skb_priority: flow.skb_priority,
        pkt_mark: flow.pkt_mark,
        tunnel: flow.tunnel,
        ..flow::extract::key_of(packet.data(), flow.in_port.get())
    };
    key.set_connection(flow);
    key
}

/// A packet that looks like `key`.
fn generate(key: &Key, arguments: &Arguments<'_>) -> Packet {
    match (&arguments.payload, arguments.payload_len) {
        (Some(payload), _) => compose(key, payload),
        (None, Some(len)) => compose(key, &(0..=255u8).cycle().take(len).collect::<Vec<u8>>()),
        (None, None) => compose(key, &flow::PAYLOAD),
    }
}

/// Refuses actions that do not fit the packet (`-consistent`).
fn check_consistency(input: &TraceInput, actions: &[Action]) -> Result<(), String> {
    use openflow::action::{CheckContext, check};
    let mut matching = flow::Match::new(&input.key, &flow::text::packet_mask(&input.key));
    matching.set(flow::Field::InPortOxm, input.key.in_port.get().into());
    let context = CheckContext {
        version: Version::V11,
        max_ports: PortNo::MAX,
        table_id: None,
        n_tables: Some(255),
    };
    check(actions, &matching, &context).map_err(|error| error.to_string())
}
