// SPDX-License-Identifier: Apache-2.0
//! Output of `ofproto/trace` for a translation.
//!
//! Translation reports its steps into a [`Tracer`] as a tree; [`Tracer::render`] prints it in OVS's
//! format, so that people and scripts read the same lines: bridges underlined, tables as
//! ` 0. match, priority N`, actions indented below them, remarks as ` -> text`, warnings as
//! ` >> text`, errors as ` >>>> text <<<<`.
//!
//! The last item of a list is not indented when it only continues elsewhere (a table, a bridge). So
//! a chain of resubmits at the ends of rules stays at the left.

use crate::recirc::RecircRef;
use crate::rule::Rule;
use crate::snapshot::{BridgeIndex, BridgeView, Snapshot};
use crate::translation::Translation;
use flow::text::{format_key, format_match, format_megaflow};
use flow::{Field, Key, Mask, Match, Subfield};
use openflow::PortNo;
use openflow::action::{Action, Nat};
use std::fmt::Write as _;

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `bridge("NAME")`, underlined.
    Bridge,
    /// A table lookup, or the action set.
    Table,
    /// A thawed pipeline.
    Thaw,
    /// A bucket of a group.
    Bucket,
    /// An action.
    Action,
    /// ` -> text`.
    Detail,
    /// ` >> text`.
    Warning,
    /// ` >>>> text <<<<`.
    Error,
}

impl Kind {
    /// Returns true for lines that never continue the list that they are in.
    fn is_leaf(self) -> bool {
        !matches!(self, Kind::Bridge | Kind::Table | Kind::Thaw)
    }
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    text: String,
    children: Vec<usize>,
}

/// Collects what one translation reports.
#[derive(Debug, Default)]
pub struct Tracer {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    /// From a root to the node whose children are added.
    path: Vec<usize>,
    final_key: Option<Key>,
    dry_run: bool,
    /// Ports are shown by name, not by number.
    by_name: bool,
    mask_reasons: MaskReasons,
    forks: Vec<Fork>,
}

/// A tracked copy of the packet that a `ct(table=N)` sends back to the tables.
#[derive(Debug)]
pub struct Fork {
    /// The key of the copy, with the OpenFlow `in_port` and the recirculation id, as it was before
    /// the tracker saw it.
    pub key: Key,
    /// The address translation.
    pub nat: Option<Nat>,
    /// Keeps the frozen pipeline.
    pub(crate) recirc: RecircRef,
}

impl Fork {
    /// Returns the id under which the frozen pipeline is found as long as the fork exists.
    pub fn recirc_id(&self) -> u32 {
        self.recirc.id()
    }
}

/// For each bit of the packet: the part of the pipeline that examined it first. Every megaflow of
/// the packet is exact in these bits.
#[derive(Debug, Default)]
struct MaskReasons {
    /// Bits in which every megaflow is exact.
    first: Mask,
    /// Bits that are accounted for.
    seen: Mask,
    /// New bits by node, in order.
    of: Vec<(usize, Mask)>,
}

/// Bits of a megaflow's mask, with the reason for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskReason {
    /// The rule (as in the trace), or another part of the pipeline that examined the bits.
    pub by: String,
    /// Bits that no earlier part had examined.
    pub mask: Mask,
}

impl Tracer {
    /// Returns an empty tracer.
    pub fn new() -> Tracer {
        Tracer::default()
    }

    /// Returns an empty tracer that shows ports by name (`ofproto/trace --names`).
    pub fn with_names() -> Tracer {
        Tracer { by_name: true, ..Tracer::default() }
    }

    /// Returns the names under which texts show the ports of `bridge`; none when ports are shown by
    /// number.
    pub fn names<'b>(&self, bridge: Option<&'b BridgeView>) -> PortNames<'b> {
        PortNames(bridge.filter(|_| self.by_name))
    }

    /// Adds a line at the present place and returns its number.
    pub(crate) fn add(&mut self, kind: Kind, text: String) -> usize {
        let id = self.nodes.len();
        self.nodes.push(Node { kind, text, children: Vec::new() });
        match self.path.last().and_then(|parent| self.nodes.get_mut(*parent)) {
            Some(parent) => parent.children.push(id),
            None => self.roots.push(id),
        }
        id
    }

    /// Adds a line and makes it the present place.
    pub(crate) fn enter(&mut self, kind: Kind, text: String) {
        let id = self.add(kind, text);
        self.path.push(id);
    }

    /// Starts a translation with `mask`, the bits in which every megaflow is exact.
    pub(crate) fn begin(&mut self, mask: &Mask) {
        self.mask_reasons = MaskReasons { first: *mask, seen: *mask, of: Vec::new() };
    }

    /// Credits the bits that are new in `mask` to the present node.
    pub(crate) fn looked(&mut self, mask: &Mask) {
        let new = mask.minus(&self.mask_reasons.seen);
        if new.is_wildcard() {
            return;
        }
        self.mask_reasons.seen.union(&new);
        let is_place = |id: &usize| {
            self.nodes.get(*id).is_some_and(|n| matches!(n.kind, Kind::Table | Kind::Bridge))
        };
        if let Some(place) = self.path.iter().rev().copied().find(is_place) {
            self.mask_reasons.of.push((place, new));
        }
    }

    /// Returns the reason for each bit of the megaflow's `mask`, in the order of examination.
    pub fn mask_reasons(&self, mask: &Mask) -> Vec<MaskReason> {
        let of = self.mask_reasons.of.iter().map(|(node, looked)| {
            (self.nodes.get(*node).map_or("", |n| n.text.trim_start()), looked)
        });
        let all = std::iter::once(("every megaflow", &self.mask_reasons.first))
            .chain(of)
            .chain(std::iter::once(("what must hold for the above", mask)));
        let mut out: Vec<MaskReason> = Vec::new();
        let mut left = *mask;
        for (by, looked) in all {
            let here = left.minus(&left.minus(looked));
            left = left.minus(&here);
            match out.iter_mut().find(|l| l.by == by) {
                _ if here.is_wildcard() => {}
                Some(reason) => reason.mask.union(&here),
                None => out.push(MaskReason { by: by.to_owned(), mask: here }),
            }
        }
        out
    }

    /// Goes back to the place before the last [`Tracer::enter`].
    pub(crate) fn leave(&mut self) {
        self.path.pop();
    }

    /// Records a copy that will be recirculated.
    pub(crate) fn fork(&mut self, fork: Fork) {
        self.forks.push(fork);
    }

    /// Takes the tracked copies of the packet that come back, in the order in which they leave.
    pub fn take_forks(&mut self) -> Vec<Fork> {
        std::mem::take(&mut self.forks)
    }

    /// Records the end of the translation. `dry_run` is true for a translation without side
    /// effects.
    pub(crate) fn finish(&mut self, key: &Key, dry_run: bool) {
        self.final_key = Some(*key);
        self.dry_run = dry_run;
    }

    /// Returns the tree alone.
    pub(crate) fn tree(&self) -> String {
        let mut out = String::new();
        self.print(&mut out, &self.roots, 0);
        out
    }

    fn print(&self, out: &mut String, list: &[usize], level: usize) {
        for (i, id) in list.iter().enumerate() {
            let Some(node) = self.nodes.get(*id) else { continue };
            let more = usize::from(i + 1 < list.len() || node.kind.is_leaf());
            let indent = " ".repeat((level + more) * 4);
            let text = &node.text;
            let _ = match node.kind {
                Kind::Detail => writeln!(out, "{indent} -> {text}"),
                Kind::Warning => writeln!(out, "{indent} >> {text}"),
                Kind::Error => writeln!(out, "{indent} >>>> {text} <<<<"),
                Kind::Bridge => {
                    let line = "-".repeat(text.chars().count());
                    writeln!(out, "\n{indent}{text}\n{indent}{line}")
                }
                Kind::Table | Kind::Thaw | Kind::Bucket | Kind::Action => {
                    writeln!(out, "{indent}{text}")
                }
            };
            self.print(out, &node.children, level + 2 * more);
        }
    }

    /// Returns all output after the `Flow:` line: the tree, the final flow, the megaflow, the
    /// datapath actions, and the reason for a failed translation. `key` is the translated key, with
    /// its OpenFlow in_port, in `bridge` of `snapshot`.
    pub fn render(
        &self,
        key: &Key,
        translation: &Translation,
        snapshot: &Snapshot,
        bridge: BridgeIndex,
    ) -> String {
        let names = self.names(snapshot.bridge(bridge).map(|b| &**b));
        let names = |number| names.name(number);
        let mut out = self.tree();
        out.push_str("\nFinal flow: ");
        let mut last = self.final_key.unwrap_or(*key);
        last.actset_output = key.actset_output;
        if last == *key {
            out.push_str("unchanged\n");
        } else {
            let _ = writeln!(out, "{}", format_key(&last, &names));
        }
        let _ = writeln!(out, "Megaflow: {}", megaflow_text(key, &translation.mask, &names));
        let datapath_names = |port| datapath_name(snapshot, port);
        let style = datapath::text::Style {
            port_name: self.by_name.then_some(&datapath_names),
            dry_run: self.dry_run,
        };
        let _ = writeln!(
            out,
            "Datapath actions: {}",
            datapath::text::format(&translation.actions, style)
        );
        if let Some(reason) = translation.slow_path_reason() {
            let _ = write!(
                out,
                "This flow is handled by the userspace slow path because it:\n  - {}.\n",
                slow_path_text(reason)
            );
        }
        if let Some(error) = translation.error {
            let _ = writeln!(out, "Translation failed ({error}), packet is dropped.");
        }
        out
    }
}

/// Returns the sentence for a reason of the slow path, as OVS has it.
fn slow_path_text(reason: &str) -> String {
    match reason {
        "action" => "Uses action(s) not supported by datapath".to_owned(),
        protocol => format!("Consists of {} packets", protocol.to_uppercase()),
    }
}

/// Returns the megaflow as OVS prints it: without the fact that there is no VLAN header.
fn megaflow_text(key: &Key, mask: &Mask, names: &dyn Fn(u32) -> Option<String>) -> String {
    let mut mask = *mask;
    for (m, k) in mask.0.vlans.iter_mut().zip(&key.vlans) {
        if k.tci.get() == 0 {
            *m = flow::Vlan::default();
        }
    }
    format_megaflow(&Match::new(key, &mask), names)
}

/// The names of a bridge's OpenFlow ports, for texts.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortNames<'a>(Option<&'a BridgeView>);

impl PortNames<'_> {
    /// Returns the name of port `number`, in double quotes unless it reads as one word; `None` when
    /// the port is shown by number.
    pub fn name(self, number: u32) -> Option<String> {
        let name = &self.0?.ports.get(&PortNo(number))?.name;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let word = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain);
        Some(if word { name.clone() } else { format!("{name:?}") })
    }
}

/// Returns the name of a port of the datapath.
fn datapath_name(snapshot: &Snapshot, port: datapath::PortNo) -> Option<String> {
    let mut tunnels = snapshot.tunnels.listening.listeners().iter();
    if let Some(tunnel) = tunnels.find(|listener| listener.number == port) {
        return Some(tunnel.name.clone());
    }
    let (bridge, number) = snapshot.ports.get(&port)?;
    Some(snapshot.bridge(*bridge)?.ports.get(number)?.name.clone())
}

/// Formats a rule as ` 0. ip,in_port=1, priority 100, cookie 0x5`, with the number of the table of
/// the lookup.
pub(crate) fn rule_text(rule: &Rule, table: u8, names: PortNames<'_>) -> String {
    let mut out = format!("{table:2}. ");
    let matching = format_match(&rule.matching.expand(), &|number| names.name(number));
    if !matching.is_empty() {
        let _ = write!(out, "{matching}, ");
    }
    let _ = write!(out, "priority {}", rule.priority);
    if rule.cookie != 0 {
        let _ = write!(out, ", cookie {:#x}", rule.cookie);
    }
    out
}

/// Formats a rule of a conjunction as `conj. priority=100,ip,nw_src=10.0.0.1`.
pub(crate) fn conjunction_text(rule: &Rule, names: PortNames<'_>) -> String {
    format!("conj. {}", rule.match_text(&|number| names.name(number)))
}

/// Formats the present value of a subfield, as in `NXM_NX_REG0[0..1] is now 0x1`.
pub(crate) fn subfield_text(subfield: &Subfield, key: &Key) -> String {
    let value = subfield.load(key);
    let whole = subfield.start == 0 && subfield.bits == subfield.field.width();
    let text = match subfield.field.option() {
        Some(_) if whole => {
            let value = subfield.field.load_wide(key);
            subfield.field.format_wide(&value, &subfield.field.all_ones_wide())
        }
        _ if whole => value_text(subfield.field, value),
        _ => hexadecimal(value),
    };
    format!("{subfield} is now {text}")
}

fn hexadecimal(value: u128) -> String {
    if value == 0 { "0".to_string() } else { format!("{value:#x}") }
}

fn value_text(field: Field, value: u128) -> String {
    use flow::field::Format;
    let bytes = value.to_be_bytes();
    match field.def().format {
        Format::Ethernet => {
            let parts: Vec<String> = bytes.iter().skip(10).map(|b| format!("{b:02x}")).collect();
            parts.join(":")
        }
        Format::Ipv4 => std::net::Ipv4Addr::from_bits(value as u32).to_string(),
        Format::Ipv6 => std::net::Ipv6Addr::from_bits(value).to_string(),
        Format::Decimal => value.to_string(),
        Format::Port10 => PortNo::from_u16(value as u16).to_string(),
        Format::Port11 => PortNo(value as u32).to_string(),
        _ => hexadecimal(value),
    }
}

/// Formats an action as ovs-ofctl prints it.
pub(crate) fn action_text(action: &Action, names: PortNames<'_>) -> String {
    openflow::text::format_action(action, &|number| names.name(number))
}

/// Formats several actions, separated by commas.
pub(crate) fn actions_text(actions: &[Action], names: PortNames<'_>) -> String {
    openflow::text::format_actions(actions, &|number| names.name(number))
}

#[cfg(test)]
mod tests;
