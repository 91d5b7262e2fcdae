// SPDX-License-Identifier: Apache-2.0
//! Ingress policing by the kernel's TC, for interfaces whose packets do not come to the switch: one
//! filter `matchall` with a policer for bytes, for packets, or both.
//!
//! The filter is the first of the ingress, where Open vSwitch has it, and packets within the limits go
//! on to the filters of others. Its handle says whose it is. The qdisc stays while it has filters.

use crate::filter::{
    ClsactHook, RTM_DELQDISC, RTM_DELTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER, TCA_KIND, has_filter,
};
use crate::link::LinkClient;
use crate::netlink::{NLM_F_ACK, Request};
use crate::police::{Onward, Policer, Rate, TICKS};
use crate::policer::Policing;
use ::netlink::attribute::{nest, put};
use ::netlink::message::{NLM_F_CREATE, NLM_F_EXCL};
use std::io;

const TCA_OPTIONS: u16 = 2;
/// `TCA_MATCHALL_ACT`
const ACTIONS: u16 = 2;
/// `TCA_ACT_KIND` and `TCA_ACT_OPTIONS`
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
/// `TC_H_CLSACT`, and the handle of the qdisc there.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`
const INGRESS: u32 = 0xffff_fff2;
/// Priority 1, and `ETH_P_ALL` in network byte order.
const PLACE: u32 = 1 << 16 | (0x0003_u16.to_be() as u32);
/// The filter's handle: "slip".
const HANDLE: u32 = 0x736c_6970;

/// Limits the packets that come in by interface `index`. Without a limit the filter goes.
///
/// # Errors
///
/// The kernel's error. `EEXIST` or `EINVAL` when another program has a filter of priority 1.
pub fn set(client: &LinkClient, index: u32, policing: Policing) -> io::Result<()> {
    remove(client, index)?;
    let policers = policers(policing);
    if policers.is_empty() {
        return Ok(());
    }
    let qdisc = request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, [index, CLSACT_HANDLE, CLSACT, 0])
        .attribute(TCA_KIND, b"clsact\0");
    match client.request(qdisc, |_, _| {}) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = Vec::new();
    nest(&mut options, ACTIONS, |actions| {
        for (n, policer) in (1..).zip(&policers) {
            let is_last = usize::from(n) == policers.len();
            nest(actions, n, |action| {
                put(action, ACTION_KIND, b"police\0");
                let onward = if is_last { Onward::Filter } else { Onward::Action };
                nest(action, ACTION_OPTIONS, |options| policer.write(options, onward));
            });
        }
    });
    let filter =
        request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, [index, HANDLE, INGRESS, PLACE])
            .attribute(TCA_KIND, b"matchall\0")
            .attribute(TCA_OPTIONS, &options);
    client.request(filter, |_, _| {})
}

/// Removes the filter, and the qdisc when no filter is left.
fn remove(client: &LinkClient, index: u32) -> io::Result<()> {
    let filter = request(RTM_DELTFILTER, 0, [index, HANDLE, INGRESS, PLACE])
        .attribute(TCA_KIND, b"matchall\0");
    match client.request(filter, |_, _| {}) {
        Ok(()) => {}
        // There is no such filter, no qdisc, or no filter of this kind.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    for hook in [ClsactHook::Ingress, ClsactHook::Egress] {
        if has_filter(client, index, hook)? {
            return Ok(());
        }
    }
    let qdisc = request(RTM_DELQDISC, 0, [index, CLSACT_HANDLE, CLSACT, 0]);
    client.request(qdisc, |_, _| {})
}

/// A request with a `struct tcmsg`: interface, handle, parent and info.
fn request(kind: u16, flags: u16, [index, handle, parent, info]: [u32; 4]) -> Request {
    let words = [0, index, handle, parent, info];
    Request::new(kind, flags | NLM_F_ACK, &words.map(u32::to_ne_bytes).concat())
}

/// Returns the policers of the limits.
fn policers(policing: Policing) -> Vec<Policer> {
    let ticks = |burst: u64, rate: u64| (burst * TICKS).checked_div(rate).unwrap_or(u64::MAX);
    let bytes = policing.bits().map(|(rate, burst)| Policer {
        index: 0,
        rate: Rate::Bytes(rate / 8),
        burst: ticks(burst, rate).min(u32::MAX.into()),
    });
    let packets = policing.packets().map(|(rate, burst)| Policer {
        index: 0,
        rate: Rate::Packets(rate),
        burst: ticks(burst, rate),
    });
    bytes.into_iter().chain(packets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_policers() {
        let rate = Policing { rate_kbps: 8_000, burst_kb: 4_000, ..Policing::default() };
        let half_a_second = TICKS / 2;
        let bytes = Policer { index: 0, rate: Rate::Bytes(1_000_000), burst: half_a_second };
        assert_eq!(policers(rate), [bytes]);
        let both = Policing { rate_kpkts: 2, burst_kpkts: 1, ..rate };
        let packets = Policer { index: 0, rate: Rate::Packets(2_000), burst: half_a_second };
        assert_eq!(policers(both), [bytes, packets]);
        assert_eq!(policers(Policing::default()), []);
        let slow = Policing { rate_kbps: 1, ..Policing::default() };
        assert_eq!(policers(slow)[0].burst, u32::MAX.into(), "the kernel's field has 32 bits");
    }
}
