// SPDX-License-Identifier: Apache-2.0
//! Messages about rules.

use super::address_of;
use crate::netlink::{attributes, text_of, u32_of};
use underlay::{Cidr, Origin, Rule, RuleAction};

// include/uapi/linux/fib_rules.h
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_BLACKHOLE: u8 = 6;
const FR_ACT_UNREACHABLE: u8 = 7;
const FR_ACT_PROHIBIT: u8 = 8;
const FIB_RULE_INVERT: u32 = 2;
/// An option that is not set.
const UNSET: u32 = u32::MAX;
/// Bytes of `struct fib_rule_hdr`.
const FIXED: usize = 12;

/// Parses an `RTM_NEWRULE` or `RTM_DELRULE` payload. `None`: truncated, or a rule that cannot decide
/// for packets that this host sends without a socket: it selects by an input device other than `lo`,
/// an output device, ports, or something that is not known here.
pub(super) fn parse(payload: &[u8]) -> Option<Rule> {
    // struct fib_rule_hdr: family, dst_len, src_len, tos, table, res1, res2, action, flags(4)
    let [family, to_length, from_length, tos, table, _, _, action, flags @ ..] =
        *payload.first_chunk::<FIXED>()?;
    let is_ipv6 = match i32::from(family) {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    let mut rule = Rule::to_table(Origin::System, is_ipv6, 0, u32::from(table));
    let mut table = u32::from(table);
    let (mut mark, mut mask) = (0, None);
    for (kind, value) in attributes(payload.get(FIXED..)?) {
        match kind {
            FRA_DST => rule.to = Some(Cidr::new(address_of(family, value)?, to_length)?),
            FRA_SRC => rule.from = Some(Cidr::new(address_of(family, value)?, from_length)?),
            // The kernel sends packets of its own as if they came from lo.
            FRA_IIFNAME if text_of(value) == "lo" => {}
            FRA_PRIORITY => rule.priority = u32_of(value)?,
            FRA_FWMARK => mark = u32_of(value)?,
            FRA_FWMASK => mask = Some(u32_of(value)?),
            FRA_SUPPRESS_PREFIXLEN => {
                let length = u32_of(value)?;
                let all = || u8::try_from(length).unwrap_or(u8::MAX);
                rule.suppressed_length = (length != UNSET).then(all);
            }
            FRA_SUPPRESS_IFGROUP if u32_of(value)? == UNSET => {}
            FRA_TABLE => table = u32_of(value)?,
            // Tunnels' packets are the daemon's, whose user is root.
            FRA_UID_RANGE if value.starts_with(&[0; 4]) => {}
            FRA_FLOW | FRA_PROTOCOL => {}
            // A later kernel may name selectors that are not used.
            _ if value.iter().all(|byte| *byte == 0) => {}
            _ => return None,
        }
    }
    let is_marked = mark != 0 || mask.is_some_and(|m| m != 0);
    rule.mark = is_marked.then_some((mark, mask.unwrap_or(u32::MAX)));
    rule.is_inverted = u32::from_ne_bytes(flags) & FIB_RULE_INVERT != 0;
    rule.action = match action {
        FR_ACT_TO_TBL => RuleAction::Table(table),
        FR_ACT_BLACKHOLE | FR_ACT_UNREACHABLE | FR_ACT_PROHIBIT => RuleAction::Refuse,
        _ => return None,
    };
    (tos == 0).then_some(rule)
}
