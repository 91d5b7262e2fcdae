// SPDX-License-Identifier: Apache-2.0
//! Actions as text.

use super::operand::c_hex;
use super::{
    BUNDLE_ALGORITHMS, HASH_FIELDS, MULTIPATH_ALGORITHMS, REASONS, ct, encap, learn, name_of,
};
use crate::PortNo;
use crate::action::{
    Action, Bundle, Controller, ObservationId, SampleDirection, SetSpelling, loads,
};
use packet::Mac;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Names of ports by number; `None` prints the number.
type Ports<'a> = &'a dyn Fn(u32) -> Option<String>;

/// The list after `actions=`: actions with commas between them, `drop` for none.
pub fn format_actions(actions: &[Action], ports: Ports<'_>) -> String {
    let mut out = String::new();
    put_list(actions, ports, &mut out);
    out
}

/// One action.
pub fn format_action(action: &Action, ports: Ports<'_>) -> String {
    let mut out = String::new();
    put(action, ports, &mut out);
    out
}

fn put_list(actions: &[Action], ports: Ports<'_>, out: &mut String) {
    if actions.is_empty() {
        out.push_str("drop");
    }
    for (i, action) in actions.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        put(action, ports, out);
    }
}

/// A reserved port's name, else the caller's, else the number.
fn port_text(port: PortNo, ports: Ports<'_>) -> String {
    match port.reserved_name() {
        Some(name) => name.to_string(),
        None => ports(port.0).unwrap_or_else(|| port.to_string()),
    }
}

fn dotted(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(".")
}

fn numbers<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn put(action: &Action, ports: Ports<'_>, out: &mut String) {
    // Writing to a String does not fail.
    let _ = match action {
        Action::Output { port, max_len } => match port.reserved_name() {
            Some(name) if *port == PortNo::CONTROLLER => write!(out, "{name}:{max_len}"),
            Some(name) => write!(out, "{name}"),
            None => write!(out, "output:{}", port_text(*port, ports)),
        },
        Action::OutputReg { src, .. } => write!(out, "output:{src}"),
        Action::OutputTrunc { port, max_len } => {
            write!(out, "output(port={},max_len={max_len})", port_text(*port, ports))
        }
        Action::Controller(c) => {
            put_controller(c, out);
            Ok(())
        }
        Action::Enqueue { port, queue } => {
            write!(out, "enqueue:{}:{queue}", port_text(*port, ports))
        }
        Action::Bundle(b) => {
            put_bundle(b, ports, out);
            Ok(())
        }
        Action::Group(id) => write!(out, "group:{id}"),
        Action::SetField { field, value, mask, spelled: SetSpelling::SetField } => {
            let value = field.format_value(*value, *mask, ports);
            write!(out, "set_field:{value}->{}", field.name())
        }
        Action::SetOption(set) => {
            let value = set.field.format_wide(&set.value, &set.mask);
            write!(out, "set_field:{value}->{}", set.field.name())
        }
        Action::DeleteField(field) => write!(out, "delete_field:{}", field.name()),
        Action::SetTunnel { id, .. } => write!(out, "{}:{}", action.keyword(), c_hex((*id).into())),
        Action::SetField { field, value, mask, spelled: SetSpelling::Load } => {
            let parts = loads(*field, *value, *mask)
                .map(|(dst, value)| format!("load:{}->{dst}", c_hex(value.into())));
            out.push_str(&parts.collect::<Vec<_>>().join(","));
            Ok(())
        }
        Action::Move { src, dst } => write!(out, "move:{src}->{dst}"),
        Action::StackPush(part) => write!(out, "push:{part}"),
        Action::StackPop(part) => write!(out, "pop:{part}"),
        Action::SetVlanVid { vid, .. } => write!(out, "{}:{vid}", action.keyword()),
        Action::SetVlanPcp { pcp, .. } => write!(out, "{}:{pcp}", action.keyword()),
        Action::PushVlan { tpid } => write!(out, "push_vlan:0x{tpid:04x}"),
        Action::SetEthSrc(mac) => write!(out, "mod_dl_src:{}", Mac(*mac)),
        Action::SetEthDst(mac) => write!(out, "mod_dl_dst:{}", Mac(*mac)),
        Action::SetIpv4Src(ip) => write!(out, "mod_nw_src:{}", Ipv4Addr::from(*ip)),
        Action::SetIpv4Dst(ip) => write!(out, "mod_nw_dst:{}", Ipv4Addr::from(*ip)),
        Action::SetIpDscp(v) | Action::SetIpEcn(v) | Action::SetIpTtl(v) => {
            write!(out, "{}:{v}", action.keyword())
        }
        Action::SetL4Src(v) | Action::SetL4Dst(v) => write!(out, "{}:{v}", action.keyword()),
        Action::PushMpls { ethertype } | Action::PopMpls { ethertype } => {
            write!(out, "{}:0x{ethertype:04x}", action.keyword())
        }
        Action::SetMplsLabel(v) => write!(out, "set_mpls_label({v})"),
        Action::SetMplsTc(v) => write!(out, "set_mpls_tc({v})"),
        Action::SetMplsTtl(v) => write!(out, "set_mpls_ttl({v})"),
        Action::DecTtl { controllers } if controllers[..] == [0] => write!(out, "dec_ttl"),
        Action::DecTtl { controllers } => write!(out, "dec_ttl({})", numbers(controllers)),
        Action::SetQueue(id) => write!(out, "set_queue:{id}"),
        Action::FinTimeout { idle, hard } => {
            let mut parts = Vec::new();
            for (name, seconds) in [("idle_timeout", idle), ("hard_timeout", hard)] {
                if *seconds != 0 {
                    parts.push(format!("{name}={seconds}"));
                }
            }
            write!(out, "fin_timeout({})", parts.join(","))
        }
        Action::Resubmit { port: Some(port), table: None, .. } => {
            write!(out, "resubmit:{}", port_text(*port, ports))
        }
        Action::Resubmit { port, table, original_tuple } => {
            let port = port.map_or(String::new(), |p| port_text(p, ports));
            let table = table.map_or(String::new(), |t| t.to_string());
            let ct = if *original_tuple { ",ct" } else { "" };
            write!(out, "resubmit({port},{table}{ct})")
        }
        Action::Learn(l) => {
            learn::put(l, ports, out);
            Ok(())
        }
        Action::Conjunction { id, clause, clauses } => {
            write!(out, "conjunction({id},{}/{clauses})", u16::from(*clause) + 1)
        }
        Action::Multipath(m) => write!(
            out,
            "multipath({},{},{},{},{},{})",
            name_of(&HASH_FIELDS, &m.fields),
            m.basis,
            name_of(&MULTIPATH_ALGORITHMS, &m.algorithm),
            u32::from(m.max_link) + 1,
            m.arg,
            m.dst
        ),
        Action::Note(data) => write!(out, "note:{}", dotted(data)),
        Action::Sample {
            probability,
            collector_set,
            obs_domain,
            obs_point,
            sampling_port,
            direction,
        } => {
            let _ =
                write!(out, "sample(probability={probability},collector_set_id={collector_set}");
            for (name, id) in [("obs_domain_id", obs_domain), ("obs_point_id", obs_point)] {
                let _ = match id {
                    ObservationId::Number(number) => write!(out, ",{name}={number}"),
                    ObservationId::Field(src) => write!(out, ",{name}={src}"),
                };
            }
            if *sampling_port != PortNo::NONE {
                let _ = write!(out, ",sampling_port={}", port_text(*sampling_port, ports));
            }
            write!(
                out,
                "{})",
                match direction {
                    SampleDirection::Default => "",
                    SampleDirection::Ingress => ",ingress",
                    SampleDirection::Egress => ",egress",
                }
            )
        }
        Action::Ct(action) => {
            ct::put(action, |nested, out| put_list(nested, ports, out), out);
            Ok(())
        }
        Action::Encap(action) => {
            encap::put(action, out);
            Ok(())
        }
        Action::Decap { packet_type } => {
            encap::put_decap(*packet_type, out);
            Ok(())
        }
        Action::Nat(nat) => write!(out, "{}", ct::nat_text(nat)),
        Action::Clone(nested) | Action::WriteActions(nested) => {
            let _ = write!(out, "{}(", action.keyword());
            put_list(nested, ports, out);
            write!(out, ")")
        }
        Action::CheckPktLarger { len, dst } => write!(out, "check_pkt_larger({len})->{dst}"),
        Action::Meter(id) => write!(out, "meter:{id}"),
        Action::WriteMetadata { value, mask: u64::MAX } => {
            write!(out, "write_metadata:{}", c_hex((*value).into()))
        }
        Action::WriteMetadata { value, mask } => {
            let (value, mask) = (c_hex((*value).into()), c_hex((*mask).into()));
            write!(out, "write_metadata:{value}/{mask}")
        }
        Action::GotoTable(table) => write!(out, "goto_table:{table}"),
        Action::PopVlan { .. }
        | Action::DecMplsTtl
        | Action::DecNshTtl
        | Action::DebugSlow
        | Action::DebugRecirc
        | Action::PopQueue
        | Action::Exit
        | Action::CtClear
        | Action::ClearActions => write!(out, "{}", action.keyword()),
    };
}

fn put_controller(c: &Controller, out: &mut String) {
    let plain = c.controller_id == 0 && c.reason == 1 && c.userdata.is_empty() && !c.pause;
    if plain && c.meter_id == u32::MAX {
        let _ = write!(out, "CONTROLLER:{}", c.max_len);
        return;
    }
    let mut parts = Vec::new();
    if c.reason != 1 {
        parts.push(match REASONS.get(usize::from(c.reason)) {
            Some(name) => format!("reason={name}"),
            // OVS has no word for its own two kinds of table miss.
            None if c.reason <= 7 => "reason=".to_string(),
            None => format!("reason={}", c.reason),
        });
    }
    if c.max_len != u16::MAX {
        parts.push(format!("max_len={}", c.max_len));
    }
    if c.controller_id != 0 {
        parts.push(format!("id={}", c.controller_id));
    }
    if !c.userdata.is_empty() {
        parts.push(format!("userdata={}", dotted(&c.userdata)));
    }
    if c.pause {
        parts.push("pause".to_string());
    }
    if c.meter_id != u32::MAX {
        parts.push(format!("meter_id={}", c.meter_id));
    }
    let _ = write!(out, "controller({})", parts.join(","));
}

fn put_bundle(b: &Bundle, ports: Ports<'_>, out: &mut String) {
    let members: Vec<_> = b.members.iter().map(|p| port_text(*p, ports)).collect();
    let _ = write!(
        out,
        "{}({},{},{},ofport,{}members:{})",
        if b.dst.is_some() { "bundle_load" } else { "bundle" },
        name_of(&HASH_FIELDS, &b.fields),
        b.basis,
        name_of(&BUNDLE_ALGORITHMS, &b.algorithm),
        b.dst.map_or(String::new(), |dst| format!("{dst},")),
        members.join(",")
    );
}
