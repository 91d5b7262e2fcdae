// SPDX-License-Identifier: Apache-2.0
//! Decodes the cells of a `struct program` into actions. This gives the actions of flows that
//! another daemon installed.
//!
//! The decoded actions have the same effect as the encoded ones, but may have another form. A
//! nested list at the end of a list becomes part of that list, and actions that never run are left
//! out. Actions from `tnl_push` on are a `clone`, as translation writes them.

use std::sync::Arc;

use datapath::{Action, DropReason, Masked, PortNo, PushedNsh, Set};
use flow::Nsh;
use packet::NshHeader;

use crate::encode::{ct, instruction_cells};
use crate::layout::{
    CELLS_TOTAL, HeaderOp, OUTPUT_BOND, OUTPUT_UP, Op, PUSH_OF_BARE, TUNNEL_BARE, TunnelHeader,
};

/// Returns the header of a tunnel with a number.
pub type HeaderOf<'a> = &'a dyn Fn(u32) -> Option<TunnelHeader>;

/// Returns the actions of a program. Total: for cells that are no valid program, it returns the
/// actions up to the first defect.
pub fn actions(cells: &[u64; CELLS_TOTAL], header_of: HeaderOf<'_>) -> Vec<Action> {
    list(cells, 0, cells.len(), header_of)
}

/// Returns the actions from the instruction at `cell` on, at which packets go up: an [`Op::Ct`], an
/// [`Op::TunPush`], an [`Op::TunRoom`] or one that pushes or pops a header in front. `None`: there is another
/// one.
pub(crate) fn actions_from(
    cells: &[u64; CELLS_TOTAL],
    cell: u32,
    header_of: HeaderOf<'_>,
) -> Option<Vec<Action>> {
    let at = usize::try_from(cell).ok()?;
    let goes_up = matches!(
        Instruction::read(cells, at)?.op,
        Op::Ct | Op::TunPush | Op::TunRoom | Op::Header | Op::PushMpls | Op::PopMpls
    );
    goes_up.then(|| list(cells, at, cells.len(), header_of))
}

/// Returns the number of the sample that the instruction at `cell` takes. `None`: it takes none.
pub(crate) fn sample_at(cells: &[u64; CELLS_TOTAL], cell: u32) -> Option<u32> {
    let instruction = Instruction::read(cells, usize::try_from(cell).ok()?)?;
    let is_sample = instruction.op == Op::Output && instruction.b & OUTPUT_UP != 0;
    is_sample.then_some(instruction.b & !OUTPUT_UP)
}

/// Decodes the list that begins at `at` and goes on to `end`, unless an action ends it before.
fn list(cells: &[u64], mut at: usize, end: usize, header_of: HeaderOf<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    while at < end {
        let Some(i) = Instruction::read(cells, at) else { break };
        at += i.cells;
        let landing = at.saturating_add(i.a.into()).min(end);
        match i.op {
            Op::End => break,
            Op::Copies | Op::TunRoom => {}
            // Programs do not have the contents of samples.
            Op::Output if i.b & OUTPUT_UP != 0 => {}
            Op::Sample => {
                let nested = list(cells, at, landing, header_of);
                actions.push(Action::Sample { probability: i.b, actions: nested });
                at = landing;
            }
            Op::CheckLen => {
                actions.push(Action::CheckPktLen {
                    len: i.b as u16, // it was one
                    greater: list(cells, landing, end, header_of),
                    not_greater: list(cells, at, landing, header_of),
                });
                break;
            }
            Op::TunPush => {
                let Some((push, is_bare)) = i.push(header_of) else { break };
                if is_bare {
                    actions.push(Action::PopEth);
                }
                let mut nested = vec![push];
                nested.extend(list(cells, at, end, header_of));
                actions.push(Action::Clone(nested));
                break;
            }
            _ => {
                actions.extend(i.action());
                if matches!(i.op, Op::Drop | Op::Recirc) || (i.op == Op::Output && i.a == 1) {
                    break;
                }
            }
        }
    }
    actions
}

/// Reads operands in the order in which they lie in memory.
struct Operands<'a>(&'a [u64]);

impl Operands<'_> {
    /// Bytes `at`.. of all operands.
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let byte = |i: usize| self.0.get(i / 8).map_or(0, |cell| cell.to_ne_bytes()[i % 8]);
        std::array::from_fn(|i| byte(at + i))
    }

    fn masked<const N: usize>(&self, value: usize, mask: usize) -> Masked<[u8; N]> {
        Masked { value: self.bytes(value), mask: self.bytes(mask) }
    }

    /// A value, followed by its mask.
    fn octet(&self, at: usize) -> Masked<u8> {
        let [value, mask] = self.bytes(at);
        Masked { value, mask }
    }

    fn short(&self, at: usize) -> Masked<u16> {
        let [value, mask] = [at, at + 2].map(|at| u16::from_be_bytes(self.bytes(at)));
        Masked { value, mask }
    }

    fn long(&self, at: usize) -> Masked<u32> {
        let [value, mask] = [at, at + 4].map(|at| u32::from_be_bytes(self.bytes(at)));
        Masked { value, mask }
    }
}

struct Instruction<'a> {
    op: Op,
    /// How many it takes.
    cells: usize,
    a: u16,
    b: u32,
    operands: Operands<'a>,
}

impl Instruction<'_> {
    fn read(cells: &[u64], at: usize) -> Option<Instruction<'_>> {
        let (first, rest) = cells.get(at..)?.split_first()?;
        let (op, length) = instruction_cells(*first)?;
        let operands = Operands(rest.get(..length - 1)?);
        // Halves and a quarter of the cell.
        let (a, b) = ((first >> 16) as u16, (first >> 32) as u32);
        Some(Instruction { op, cells: length, a, b, operands })
    }

    /// Decodes an action that contains no other actions.
    fn action(&self) -> Option<Action> {
        Some(match self.op {
            Op::Output if self.b & OUTPUT_BOND != 0 => Action::LbOutput(self.b & !OUTPUT_BOND),
            Op::Output => Action::Output(PortNo(self.b)),
            Op::Drop => Action::Drop(DropReason::from_number(self.b)?),
            Op::Recirc => Action::Recirc(self.b),
            Op::PushVlan => {
                // Below 2^16, as it was written.
                Action::PushVlan { tpid: self.a, tci: self.b as u16 | flow::VLAN_CFI }
            }
            Op::PopVlan => Action::PopVlan,
            Op::PushMpls => Action::PushMpls { lse: self.b, ethertype: self.a },
            Op::PopMpls => Action::PopMpls { ethertype: self.a },
            Op::Hash => Action::Hash { symmetric: self.a != 0, basis: self.b },
            Op::Trunc => Action::Trunc(self.b),
            Op::Meter => Action::Meter(self.b),
            Op::Ct => Action::Ct(Box::new(ct::read(self.a, self.b, self.operands.0))),
            Op::CtClear => Action::CtClear,
            Op::Header => self.header()?,
            _ => Action::Set(self.set()?),
        })
    }

    /// Decodes [`Op::TunPush`]. Also: the packet loses its Ethernet header before.
    fn push(&self, header_of: HeaderOf<'_>) -> Option<(Action, bool)> {
        let entry = header_of(self.b)?;
        let header = Arc::new(entry.header()?);
        let ports = *self.operands.0.first()?;
        let of_bare = ports as u32 & PUSH_OF_BARE != 0; // the low half
        let [tunnel_port, out_port] =
            [ports as u32 & !PUSH_OF_BARE, (ports >> 32) as u32].map(PortNo); // halves
        let push = Action::TunnelPush { header, tunnel_port, out_port };
        Some((push, entry.flags & TUNNEL_BARE != 0 && !of_bare))
    }

    /// Decodes [`Op::Header`].
    fn header(&self) -> Option<Action> {
        let o = &self.operands;
        let [op, _] = self.a.to_le_bytes();
        Some(match HeaderOp::ALL.get(usize::from(op))? {
            // Contexts that do not change have no operands, which read as zero.
            HeaderOp::SetNsh => Action::Set(Set::Nsh {
                flags: o.octet(0),
                ttl: o.octet(2),
                path: o.long(8),
                context: std::array::from_fn(|i| o.long(16 + 8 * i)),
            }),
            HeaderOp::PushNsh => self.pushed_nsh(),
            HeaderOp::PopNsh => Action::PopNsh,
            HeaderOp::PushEth => Action::PushEth { dst: o.bytes(0), src: o.bytes(6) },
            HeaderOp::PopEth => Action::PopEth,
            HeaderOp::AddMpls => {
                let ethertype = *o.0.first()? as u16; // it was one
                Action::AddMpls { lse: self.b, ethertype }
            }
        })
    }

    /// Decodes the push of a Network Service Header, from its bytes.
    fn pushed_nsh(&self) -> Action {
        let o = &self.operands;
        let header = NshHeader {
            first: u16::from_be_bytes(o.bytes(0)).into(),
            md_type: o.bytes::<1>(2)[0],
            next: o.bytes::<1>(3)[0],
            path: u32::from_be_bytes(o.bytes(4)).into(),
        };
        let is_first_type = header.md_type == NshHeader::MD_TYPE_1;
        let contexts = (self.b as usize).saturating_sub(size_of::<NshHeader>());
        let bytes = match header.md_type {
            NshHeader::MD_TYPE_2 => contexts.min(o.0.len() * 8),
            _ => 0,
        };
        let metadata = (0..bytes).map(|i| o.bytes::<1>(8 + i)[0]).collect();
        let context = |i| if is_first_type { u32::from_be_bytes(o.bytes(8 + 4 * i)) } else { 0 };
        let fields = Nsh {
            flags: header.flags(),
            ttl: header.ttl(),
            mdtype: header.md_type,
            np: header.next,
            path: header.path,
            context: std::array::from_fn(|i| context(i).into()),
        };
        Action::PushNsh(Box::new(PushedNsh { fields, metadata }))
    }

    fn set(&self) -> Option<Set> {
        let o = &self.operands;
        Some(match self.op {
            Op::SetEth => Set::Ethernet { dst: o.masked(0, 16), src: o.masked(6, 22) },
            Op::SetIpv4 => Set::Ipv4 {
                src: o.masked(0, 8),
                dst: o.masked(4, 12),
                tos: o.octet(16),
                ttl: o.octet(18),
            },
            Op::SetIpv6 => Set::Ipv6 {
                src: o.masked(0, 16),
                dst: o.masked(32, 48),
                label: o.long(64),
                tclass: o.octet(72),
                hlimit: o.octet(74),
            },
            Op::SetTcp => Set::Tcp { src: o.short(0), dst: o.short(4) },
            Op::SetUdp => Set::Udp { src: o.short(0), dst: o.short(4) },
            Op::SetSctp => Set::Sctp { src: o.short(0), dst: o.short(4) },
            Op::SetIcmp => {
                let [kind, kind_mask, code, code_mask] = self.b.to_ne_bytes();
                Set::Icmp {
                    kind: Masked { value: kind, mask: kind_mask },
                    code: Masked { value: code, mask: code_mask },
                    v6: self.a != 0,
                }
            }
            Op::SetArp => Set::Arp {
                op: Masked { value: self.a, mask: self.b as u16 }, // it was one
                spa: o.masked(0, 8),
                tpa: o.masked(4, 12),
                sha: o.masked(16, 32),
                tha: o.masked(22, 38),
            },
            Op::SetNd => {
                Set::Nd { target: o.masked(0, 16), sll: o.masked(32, 40), tll: o.masked(48, 56) }
            }
            Op::SetNdExt => {
                let [value, mask] = self.a.to_le_bytes();
                Set::NdExtensions { reserved: o.long(0), options_type: Masked { value, mask } }
            }
            Op::SetMpls => Set::Mpls(o.long(0)),
            Op::SetPriority => Set::Priority(self.b),
            Op::SetMark => {
                let both = o.0.first()?;
                Set::Mark(Masked { value: *both as u32, mask: (both >> 32) as u32 }) // halves
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Effect, encode};
    use proptest::prelude::*;

    fn there_and_back(actions: &[Action]) -> Vec<Action> {
        let encoded = encode(actions).unwrap();
        let Effect::Program(cells) = &encoded.effect else { panic!("{actions:?}") };
        let header_of = |number: u32| encoded.headers.get(number as usize).copied();
        let back = super::actions(cells, &header_of);
        let again = encode(&back).unwrap();
        assert_eq!((again.hooks, again.flags, &again.ports), {
            (encoded.hooks, encoded.flags, &encoded.ports)
        });
        back
    }

    fn output(port: u32) -> Action {
        Action::Output(PortNo(port))
    }

    fn push(text: &str) -> Vec<Action> {
        datapath::text::parse(&format!("clone({text})"), &|_| None).unwrap()
    }

    fn ct(text: &str) -> Action {
        let parsed = datapath::text::parse(text, &|_| None).unwrap();
        let [action] = <[Action; 1]>::try_from(parsed).unwrap();
        action
    }

    #[test]
    fn a_list_goes_on_at_certain_instructions_alone() {
        let set = Action::Set(Set::Priority(7));
        let actions = [set.clone(), ct("ct(zone=1)"), ct("ct(commit,mark=1)"), set, output(2)];
        let encoded = encode(&actions).unwrap();
        let Effect::Program(cells) = &encoded.effect else { panic!() };
        let from = |cell| super::actions_from(cells, cell, &|_| None);
        assert_eq!(from(1), Some(actions[1..].to_vec()));
        assert_eq!(from(2), Some(actions[2..].to_vec()));
        for other in [0, 4, 5, 6, CELLS_TOTAL as u32, u32::MAX] {
            assert_eq!(from(other), None, "{other}");
        }
    }

    #[test]
    fn lists_come_back() {
        let port = |value| Masked { value, mask: 0xffff };
        let mac = |value| Masked { value: [value; 6], mask: [0xff; 6] };
        let address = |value| Masked { value: [value; 4], mask: [0xff, 0xff, 0xff, 0] };
        let wide = |value| Masked { value: [value; 16], mask: [0xff; 16] };
        let octet = |value| Masked { value, mask: 0xf0 };
        for actions in [
            vec![output(2), output(3)],
            vec![Action::LbOutput(4)],
            vec![Action::LbOutput(4), Action::PopVlan, Action::LbOutput(5)],
            vec![output(2), Action::PopVlan, output(3)],
            vec![Action::PushVlan { tpid: 0x88a8, tci: 0x7005 }, output(3)],
            vec![Action::PushMpls { lse: 0x1234_5678, ethertype: 0x8848 }, output(3)],
            vec![Action::Set(Set::Mpls(Masked { value: 0x1000, mask: 0xffff_f000 })), output(3)],
            vec![Action::PopMpls { ethertype: 0x800 }, output(3)],
            vec![Action::Hash { symmetric: true, basis: 9 }, Action::Recirc(77)],
            vec![Action::Trunc(100), output(4)],
            vec![Action::Meter(3), output(4)],
            vec![output(1), Action::Drop(DropReason::TranslationError)],
            vec![Action::Set(Set::Ethernet { src: mac(1), dst: mac(2) }), output(1)],
            vec![
                Action::Set(Set::Ipv4 {
                    src: address(0x12),
                    dst: address(0x34),
                    tos: octet(0x20),
                    ttl: octet(0x40),
                }),
                output(1),
            ],
            vec![
                Action::Set(Set::Ipv6 {
                    src: wide(1),
                    dst: wide(2),
                    label: Masked { value: 0x5_0000, mask: 0xf_0000 },
                    tclass: octet(0x10),
                    hlimit: octet(0x30),
                }),
                output(1),
            ],
            vec![Action::Set(Set::Tcp { src: port(1), dst: port(2) }), output(1)],
            vec![Action::Set(Set::Udp { src: port(3), dst: Masked::default() }), output(1)],
            vec![Action::Set(Set::Sctp { src: port(1), dst: port(2) }), output(1)],
            vec![
                Action::Set(Set::Icmp { kind: octet(0x80), code: octet(0x10), v6: true }),
                output(1),
            ],
            vec![
                Action::Set(Set::Arp {
                    op: port(2),
                    spa: address(1),
                    tpa: address(2),
                    sha: mac(3),
                    tha: mac(4),
                }),
                output(1),
            ],
            vec![Action::Set(Set::Nd { target: wide(9), sll: mac(1), tll: mac(2) }), output(1)],
            vec![
                Action::Set(Set::NdExtensions {
                    reserved: Masked { value: 0x8000_0000, mask: 0xc000_0000 },
                    options_type: octet(0x10),
                }),
                output(1),
            ],
            vec![
                Action::Set(Set::Nsh {
                    flags: octet(0x10),
                    ttl: octet(0x20),
                    path: Masked { value: 0x123_4500, mask: 0xfff_ff00 },
                    context: [Masked::default(); 4],
                }),
                output(1),
            ],
            vec![
                Action::Set(Set::Nsh {
                    flags: Masked::default(),
                    ttl: Masked::default(),
                    path: Masked::default(),
                    context: [1, 2, 3, 4].map(|value| Masked { value, mask: 0xf }),
                }),
                output(1),
            ],
            vec![Action::Set(Set::Priority(7)), output(1)],
            vec![Action::Set(Set::Mark(Masked { value: 0x12, mask: 0xff })), output(1)],
            vec![output(5), Action::Sample { probability: 7, actions: vec![output(6)] }],
            vec![Action::Sample { probability: 7, actions: vec![output(6)] }, output(5)],
            vec![Action::CtClear, output(2)],
            vec![ct("ct"), ct("ct(commit,zone=65535,timeout=4095,mark=0x1/0xf)"), output(2)],
            vec![ct("ct(force_commit,zone=1,label=0x10000000000000002/0x30000000000000003,nat)")],
            vec![ct("ct(commit,nat(src=10.0.0.1-10.0.0.9:1-65535,random))"), output(2)],
            vec![ct("ct(commit,nat(dst=[fc00::1]-[fc00::9]:80,persistent))"), output(2)],
            vec![ct("ct(commit,nat(src=10.0.0.1-10.0.0.9,hash))"), output(2)],
            vec![ct("ct(commit,nat(src))"), Action::Recirc(7)],
            vec![Action::CheckPktLen {
                len: 1500,
                greater: vec![Action::PopVlan, output(2)],
                not_greater: vec![output(2), output(3)],
            }],
        ] {
            assert_eq!(there_and_back(&actions), actions);
        }
    }

    #[test]
    fn headers_of_tunnels_come_back() {
        let eth = "eth(dst=aa:55:00:00:00:01,src=aa:55:00:00:00:02,dl_type=0x0800)";
        let ip = "ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0x8,ttl=64,frag=0x4000)";
        let vxlan = format!(
            "tnl_push(tnl_port(8),header(size=50,type=4,{eth},{ip},udp(src=0,dst=4789,csum=0xffff),\
             vxlan(flags=0x8000000,vni=0x7b)),out_port(9))"
        );
        let geneve = format!(
            "tnl_push(tnl_port(7),header(size=58,type=5,{eth},{ip},udp(src=0,dst=6081,csum=0x0),\
             geneve(crit,vni=0x7b,options({{class=0x102,type=0x80,len=4,0x10002}}))),out_port(9))"
        );
        let gre = format!(
            "tnl_push(tnl_port(7),header(size=42,type=3,{eth},{},gre((flags=0x2000,proto=0x6558),\
             key=0x1c8)),out_port(9))",
            ip.replace("17", "47")
        );
        let ipv6 =
            "ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=5,proto=17,tclass=0x4,hlimit=64)";
        let wide = format!(
            "tnl_push(tnl_port(7),header(size=70,type=4,{},{ipv6},udp(src=0,dst=4789,csum=0xffff),\
             vxlan(flags=0x8000000,vni=0x7b)),out_port(9))",
            eth.replace("0800", "86dd")
        );
        for text in [&vxlan, &geneve, &gre, &wide] {
            let actions = push(&format!("{text},push_vlan(vid=5,pcp=0),1"));
            assert_eq!(there_and_back(&actions), actions);
        }
        let two = push(&format!("{vxlan},clone({geneve},3)"));
        assert_eq!(there_and_back(&two), two);
        // Outputs come first, and a packet that goes up at the instruction has the rest.
        let [copy] = <[Action; 1]>::try_from(push(&format!("{vxlan},1"))).unwrap();
        assert_eq!(there_and_back(&[copy.clone(), output(2)]), [output(2), copy.clone()]);
        let encoded = encode(&[output(2), copy.clone()]).unwrap();
        let Effect::Program(cells) = &encoded.effect else { panic!() };
        let from = |cell| super::actions_from(cells, cell, &|_| Some(encoded.headers[0]));
        assert_eq!((from(0), from(1), from(2)), (None, Some(vec![copy]), None));
    }

    #[test]
    fn what_was_nested_at_the_end_is_part_of_the_list() {
        let nested = [output(2), Action::Clone(vec![Action::PopVlan, output(3)])];
        assert_eq!(there_and_back(&nested), [output(2), Action::PopVlan, output(3)]);
        let never = Action::Sample { probability: 0, actions: vec![output(4)] };
        assert_eq!(there_and_back(&[output(2), output(3), never]), [output(2), output(3)]);
    }

    proptest! {
        #[test]
        fn any_cells_are_read(cells in proptest::array::uniform32(any::<u64>()), small: bool) {
            let mut all = [0u64; CELLS_TOTAL];
            for (to, from) in all.iter_mut().zip(cells) {
                *to = if small { from & 0x0000_0001_0007_0f1f } else { from };
            }
            actions(&all, &|_| None);
            (0..40).for_each(|cell| drop(actions_from(&all, cell, &|_| None)));
        }
    }
}
