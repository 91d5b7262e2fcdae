// SPDX-License-Identifier: Apache-2.0
//! The action `ct` as an instruction, and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conntrack::{Commit, Manip, Nat, NatRange, Request, Selection};
use datapath::Refusal;

use crate::layout::{
    CT_OP_ADDRESSES, CT_OP_COMMIT, CT_OP_DST, CT_OP_FORCE, CT_OP_HASH, CT_OP_IPV6, CT_OP_LABEL,
    CT_OP_MARK, CT_OP_NAT, CT_OP_PERSISTENT, CT_OP_PORTS, CT_OP_RANDOM, CT_OP_SRC,
};

/// An encoded `ct`: the fields of the first cell, and the operands.
pub(super) struct Encoded {
    pub(super) a: u16,
    pub(super) b: u32,
    pub(super) operands: Vec<u64>,
}

/// Encodes a `ct`.
///
/// # Errors
///
/// Refuses a helper: programs do not look into the data of packets.
pub(super) fn encode(request: &Request) -> Result<Encoded, Refusal> {
    if request.helper.is_some() {
        return Err(Refusal::CtHelper);
    }
    let mut a = match request.commit {
        Commit::No => 0,
        Commit::Yes => CT_OP_COMMIT,
        Commit::Force => CT_OP_COMMIT | CT_OP_FORCE,
    };
    let mut operands = Vec::new();
    if let Some((value, mask)) = request.mark {
        a |= CT_OP_MARK;
        operands.push(u64::from(value & mask) | u64::from(mask) << 32);
    }
    if let Some((value, mask)) = request.label {
        a |= CT_OP_LABEL;
        operands.extend([value & mask, mask].into_iter().flat_map(halves));
    }
    match &request.nat {
        None => {}
        Some(Nat::Existing) => a |= CT_OP_NAT,
        Some(Nat::Range(range)) => a |= CT_OP_NAT | encode_range(range, &mut operands)?,
    }
    let b = u32::from(request.zone) | u32::from(request.policy) << 16;
    Ok(Encoded { a, b, operands })
}

fn halves(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

fn encode_range(range: &NatRange, operands: &mut Vec<u64>) -> Result<u16, Refusal> {
    let mut a = match range.manip {
        Manip::Src => CT_OP_SRC,
        Manip::Dst => CT_OP_DST,
    };
    match range.addresses {
        None => {}
        Some((IpAddr::V4(low), IpAddr::V4(high))) => {
            a |= CT_OP_ADDRESSES;
            operands.push(u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32);
        }
        Some((IpAddr::V6(low), IpAddr::V6(high))) => {
            a |= CT_OP_ADDRESSES | CT_OP_IPV6;
            operands.extend([low, high].into_iter().flat_map(|address| halves(address.to_bits())));
        }
        Some(_) => return Err(Refusal::UnsupportedAction), // of two families
    }
    if let Some((low, high)) = range.ports {
        a |= CT_OP_PORTS;
        operands.push(u64::from(low) | u64::from(high) << 16);
    }
    a |= match range.selection {
        Selection::Default => 0,
        Selection::Hash => CT_OP_HASH,
        Selection::Random => CT_OP_RANDOM,
    };
    if range.persistent {
        a |= CT_OP_PERSISTENT;
    }
    Ok(a)
}

/// Returns the number of operands of a `ct` with these flags.
pub(crate) const fn operands(a: u16) -> usize {
    let mut cells = 0;
    if a & CT_OP_MARK != 0 {
        cells += 1;
    }
    if a & CT_OP_LABEL != 0 {
        cells += 4;
    }
    if a & CT_OP_ADDRESSES != 0 {
        cells += if a & CT_OP_IPV6 != 0 { 4 } else { 1 };
    }
    if a & CT_OP_PORTS != 0 {
        cells += 1;
    }
    cells
}

/// Decodes a `ct`. Total: bits that mean nothing are left out.
pub(crate) fn read(a: u16, b: u32, operands: &[u64]) -> Request {
    let mut operands = operands.iter().copied();
    let mut next = || operands.next().unwrap_or_default();
    let has = |flag: u16| a & flag != 0;
    let mut request = Request {
        zone: b as u16, // halves
        policy: (b >> 16) as u16,
        ..Request::default()
    };
    request.commit = match (has(CT_OP_COMMIT), has(CT_OP_FORCE)) {
        (false, _) => Commit::No,
        (true, false) => Commit::Yes,
        (true, true) => Commit::Force,
    };
    if has(CT_OP_MARK) {
        let both = next();
        request.mark = Some((both as u32, (both >> 32) as u32));
    }
    let wide = |next: &mut dyn FnMut() -> u64| u128::from(next()) | u128::from(next()) << 64;
    if has(CT_OP_LABEL) {
        request.label = Some((wide(&mut next), wide(&mut next)));
    }
    let addresses = match (has(CT_OP_ADDRESSES), has(CT_OP_IPV6)) {
        (false, _) => None,
        (true, false) => {
            let both = next();
            let address = |bits: u64| IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
            Some((address(both), address(both >> 32)))
        }
        (true, true) => {
            let mut address = || IpAddr::V6(Ipv6Addr::from_bits(wide(&mut next)));
            Some((address(), address()))
        }
    };
    let ports = has(CT_OP_PORTS).then(|| {
        let both = next();
        (both as u16, (both >> 16) as u16)
    });
    let manip = match (has(CT_OP_SRC), has(CT_OP_DST)) {
        (true, _) => Some(Manip::Src),
        (false, true) => Some(Manip::Dst),
        (false, false) => None,
    };
    let selection = match (has(CT_OP_RANDOM), has(CT_OP_HASH)) {
        (true, _) => Selection::Random,
        (false, true) => Selection::Hash,
        (false, false) => Selection::Default,
    };
    let persistent = has(CT_OP_PERSISTENT);
    let nat = match manip {
        None => Nat::Existing,
        Some(manip) => Nat::Range(NatRange { manip, addresses, ports, selection, persistent }),
    };
    request.nat = has(CT_OP_NAT).then_some(nat);
    request
}
