// SPDX-License-Identifier: Apache-2.0
//! The actions of a filter as what the program does with a packet.

use crate::layout::{self, flags, verdict};
use crate::matching::{Match, field};
use datapath_tc::act::{Act, Direction, Edit, Layer, checksum};

/// Most tags that a rule takes off or puts on.
const MAX_TAGS: usize = 2;

/// Flags of checksums.
const SUMS: u8 = flags::SUM_IPV4 | flags::SUM_TCP | flags::SUM_UDP | flags::SUM_ICMP;

/// Devices as targets of redirects.
pub trait Targets {
    /// Returns the length in bytes of the longest frame that XDP may send by a device.
    ///
    /// # Errors
    ///
    /// The reason why traffic control must send to it.
    fn longest(&self, ifindex: u32) -> Result<u32, String>;
}

/// The effect of a rule on its packets: the fields of [`layout::Rule`] that are its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect(pub layout::Rule);

/// The end of a filter's actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is dropped or sent.
    Ends(Effect),
    /// It meets the filters of a chain, unchanged.
    Goto(u32),
}

/// Returns the effect of actions on packets with this match. The program edits headers, then takes tags
/// off, then puts tags on, and then sends.
///
/// # Errors
///
/// The reason why traffic control must run them.
pub fn compile(acts: &[Act], matching: &Match, targets: &dyn Targets) -> Result<Verdict, String> {
    let mut rule = layout::Rule::default();
    for (number, act) in acts.iter().enumerate() {
        let is_last = number + 1 == acts.len();
        let has_tags = rule.pops != 0 || rule.pushes != 0;
        match act {
            Act::Drop => {
                // The kernel also edits what it drops; no packet shows it.
                let rule = layout::Rule { verdict: verdict::DROP, ..layout::Rule::default() };
                return Ok(Verdict::Ends(Effect(rule)));
            }
            Act::Goto(chain) if number == 0 => return Ok(Verdict::Goto(*chain)),
            Act::Goto(_) => return Err("it goes to a chain after other actions".into()),
            Act::Send { ifindex, direction: Direction::Egress, last: true } => {
                let longest = targets.longest(*ifindex)?;
                rule.ifindex = *ifindex;
                rule.longest = longest.saturating_sub(4 * u32::from(rule.pushes));
                rule.verdict = verdict::REDIRECT;
                return Ok(Verdict::Ends(Effect(rule)));
            }
            Act::Send { last: false, .. } => return Err("XDP makes no copies".into()),
            Act::Send { .. } => return Err("it gives packets to the host (mirred ingress)".into()),
            Act::Edit(_) | Act::Checksum(_) if has_tags => {
                return Err("it edits headers after VLAN tags".into());
            }
            Act::Edit(_) if rule.flags & SUMS != 0 => {
                return Err("it edits headers after their checksums".into());
            }
            Act::Edit(edits) => {
                for one in edits {
                    edit(&mut rule, one, matching)?;
                }
            }
            Act::Checksum(which) => sum(&mut rule, *which, matching)?,
            Act::PopVlan if rule.pushes > 0 || usize::from(rule.pops) == MAX_TAGS => {
                return Err("it takes VLAN tags off in an order that XDP does not run".into());
            }
            Act::PopVlan => rule.pops += 1,
            Act::PushVlan { tpid, vid, priority } => {
                let tag = rule.push.get_mut(usize::from(rule.pushes));
                let tag = tag.ok_or("it puts more than two VLAN tags on")?;
                let tci = u16::from(*priority & 7) << 13 | (vid & 0xfff);
                *tag = [tpid.to_be_bytes(), tci.to_be_bytes()];
                rule.pushes += 1;
            }
            Act::PopMpls { .. }
            | Act::PushMpls { .. }
            | Act::SetMpls(_)
            | Act::SetTunnel(_)
            | Act::ReleaseTunnel
            | Act::Ct(_)
            | Act::ClearCt
            | Act::Police(_)
            | Act::ToHost => return Err(format!("XDP does not run the action {}", act.kind())),
        }
        if is_last {
            break;
        }
    }
    Err("it passes packets to the host".into())
}

/// Merges value and mask of an edit into those of a field.
fn merge(to: (&mut [u8], &mut [u8]), value: &[u8], mask: &[u8]) {
    let slots = to.0.iter_mut().zip(to.1).zip(value.iter().zip(mask));
    for ((to, to_mask), (value, mask)) in slots {
        *to = (*to & !mask) | (value & mask);
        *to_mask |= mask;
    }
}

fn edit(rule: &mut layout::Rule, edit: &Edit, matching: &Match) -> Result<(), String> {
    let Edit { layer, offset, value, mask } = edit;
    let other = || format!("XDP does not edit byte {offset} of {layer:?} headers");
    if value.iter().zip(mask).any(|(value, mask)| value & !mask != 0) {
        return Err("it inverts bits".into());
    }
    let ethertype = matching.known::<2>(field::ETHERTYPE);
    let proto = matching.known::<1>(field::IP_PROTO);
    let is_known = match layer {
        Layer::Ethernet => true,
        Layer::Ipv4 => ethertype == Some([0x08, 0x00]),
        Layer::Ipv6 => ethertype == Some([0x86, 0xdd]),
        Layer::Tcp => proto == Some([6]),
        Layer::Udp => proto == Some([17]),
    };
    if !is_known {
        return Err(format!("it edits {layer:?} headers of packets that may have none"));
    }
    // One byte of the four: only its bits may be set.
    let only = |byte: usize| mask.iter().enumerate().all(|(n, mask)| n == byte || *mask == 0);
    let words = |first: u32, bytes: u32| {
        let at = offset.checked_sub(first).filter(|at| *at < bytes && at % 4 == 0)?;
        Some(at as usize..at as usize + 4)
    };
    let (to, flag) = match (layer, offset) {
        (Layer::Ethernet, _) => {
            let range = words(0, 12).ok_or_else(other)?;
            ((&mut rule.eth_value[range.clone()], &mut rule.eth_mask[range]), flags::EDIT_ETH)
        }
        (Layer::Ipv4, 0) if only(1) => {
            one_byte(&mut rule.tos, value[1], mask[1]);
            rule.flags |= flags::EDIT_NET;
            return Ok(());
        }
        (Layer::Ipv4, 8) if only(0) => {
            one_byte(&mut rule.ttl, value[0], mask[0]);
            rule.flags |= flags::EDIT_NET;
            return Ok(());
        }
        (Layer::Ipv6, 4) if only(3) => {
            one_byte(&mut rule.ttl, value[3], mask[3]);
            rule.flags |= flags::EDIT_NET;
            return Ok(());
        }
        (Layer::Ipv4, 12) => ((&mut rule.src_value[..4], &mut rule.src_mask[..4]), flags::EDIT_NET),
        (Layer::Ipv4, 16) => ((&mut rule.dst_value[..4], &mut rule.dst_mask[..4]), flags::EDIT_NET),
        (Layer::Ipv6, 8..24) => {
            let range = words(8, 16).ok_or_else(other)?;
            ((&mut rule.src_value[range.clone()], &mut rule.src_mask[range]), flags::EDIT_NET)
        }
        (Layer::Ipv6, 24..40) => {
            let range = words(24, 16).ok_or_else(other)?;
            ((&mut rule.dst_value[range.clone()], &mut rule.dst_mask[range]), flags::EDIT_NET)
        }
        (Layer::Tcp | Layer::Udp, 0) => {
            let ([v0, v1, v2, v3], [m0, m1, m2, m3]) = (*value, *mask);
            for (port, value, mask) in
                [(&mut rule.sport, [v0, v1], [m0, m1]), (&mut rule.dport, [v2, v3], [m2, m3])]
            {
                let [to, to_mask] = port;
                merge((to, to_mask), &value, &mask);
            }
            rule.flags |= flags::EDIT_L4;
            return Ok(());
        }
        _ => return Err(other()),
    };
    merge(to, value, mask);
    rule.flags |= flag;
    Ok(())
}

fn one_byte(to: &mut [u8; 2], value: u8, mask: u8) {
    let [to, to_mask] = to;
    merge((std::slice::from_mut(to), std::slice::from_mut(to_mask)), &[value], &[mask]);
}

/// Adds the checksums that follow edits. The kernel drops a packet whose protocol the action does not
/// find, so its presence must be certain.
fn sum(rule: &mut layout::Rule, which: u32, matching: &Match) -> Result<(), String> {
    let ethertype = matching.known::<2>(field::ETHERTYPE);
    if ![Some([0x08, 0x00]), Some([0x86, 0xdd])].contains(&ethertype) {
        return Err("it computes checksums of packets that may not be of IP".into());
    }
    for (bit, flag) in [
        (checksum::IPV4, flags::SUM_IPV4),
        (checksum::TCP, flags::SUM_TCP),
        (checksum::UDP, flags::SUM_UDP),
        (checksum::ICMP, flags::SUM_ICMP),
    ] {
        if which & bit != 0 {
            rule.flags |= flag;
        }
    }
    let known = checksum::IPV4 | checksum::TCP | checksum::UDP | checksum::ICMP | checksum::IGMP;
    match which & !known {
        0 => Ok(()),
        _ => Err("it computes checksums of other protocols".into()),
    }
}
