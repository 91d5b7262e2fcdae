// SPDX-License-Identifier: Apache-2.0
//! Selection of the address and ports of network address translation.
//!
//! A candidate is a reply tuple. The table's creation decides whether it is free: no port is
//! reserved beforehand, so threads, BPF programs and processes allocate from the same ranges
//! without a lock.

use crate::conn::Direction;
use crate::creation::{CreateError, NewConn};
use crate::epoch::Pinned;
use crate::layout::flags;
use crate::table::{Found, Table};
use crate::ticks::Ticks;
use crate::tuple::{Icmp, Ports, Tuple};
use packet::ip_proto;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address that NAT changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manip {
    /// The source of the original direction.
    Src,
    /// The destination of the original direction.
    Dst,
}

/// The choice within a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selection {
    /// The action does not say; as [`Selection::Hash`].
    #[default]
    Default,
    /// By a hash of the tuple.
    Hash,
    /// At random.
    Random,
}

/// The range of an address translation: `nat(src=A-B:P-Q)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NatRange {
    /// The address that changes.
    pub manip: Manip,
    /// First and last address. Zero as the first one leaves the address alone, and changes ports
    /// only when the tuple is taken. `None` as zero.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// First and last port.
    pub ports: Option<(u16, u16)>,
    /// The choice within the range.
    pub selection: Selection,
    /// The address depends on the source address alone, also after a restart.
    pub persistent: bool,
}

/// NAT of a `ct` action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nat {
    /// Apply the translation that the connection has.
    Existing,
    /// Give a new connection a translation.
    Range(NatRange),
}

/// Ports that one series of tries covers.
const TRIES: u32 = 128;
/// Series get shorter by half down to this length.
const MIN_TRIES: u32 = 16;

/// Ports from which a replacement for `port` comes, so that its class stays.
fn class_of(port: u16) -> (u16, u16) {
    match port {
        0..512 => (1, 511),
        512..1024 => (600, 1023),
        _ => (1024, u16::MAX),
    }
}

/// Returns the address of a range at `hash`.
fn pick(low: IpAddr, high: IpAddr, hash: u32) -> Option<IpAddr> {
    match (low, high) {
        (IpAddr::V4(low), IpAddr::V4(high)) => {
            let span = u64::from(high.to_bits().checked_sub(low.to_bits())?) + 1;
            let offset = (u64::from(hash) % span) as u32;
            Some(IpAddr::V4(Ipv4Addr::from_bits(low.to_bits() + offset)))
        }
        (IpAddr::V6(low), IpAddr::V6(high)) => {
            // Ranges beyond 32 bits use their first 2^32 addresses.
            let span = high.to_bits().checked_sub(low.to_bits())?.min(u32::MAX.into()) + 1;
            let offset = u128::from(hash) % span;
            Some(IpAddr::V6(Ipv6Addr::from_bits(low.to_bits() + offset)))
        }
        _ => None,
    }
}

/// The selection for one connection.
struct Choice<'a> {
    range: &'a NatRange,
    hash: u32,
    /// The reply tuple with the new address.
    reply: Tuple,
}

impl<'a> Choice<'a> {
    fn new(table: &Table, original: &Tuple, range: &'a NatRange) -> Option<Choice<'a>> {
        let hash = match range.selection {
            Selection::Random => fastrand::u32(..),
            Selection::Default | Selection::Hash if range.persistent => {
                persistent_hash(original.src)
            }
            Selection::Default | Selection::Hash => table.hash(&original.canonical()?),
        };
        let reply = original.reversed();
        let old = match range.manip {
            Manip::Src => original.src,
            Manip::Dst => original.dst,
        };
        let address = match range.addresses {
            Some((low, high)) if !low.is_unspecified() => pick(low, high, hash)?,
            _ => old,
        };
        if address.is_ipv4() != old.is_ipv4() {
            return None;
        }
        let reply = match range.manip {
            Manip::Src => Tuple { dst: address, ..reply },
            Manip::Dst => Tuple { src: address, ..reply },
        };
        Some(Choice { range, hash, reply })
    }

    /// Calls `attempt` with source ports: of the range, or else the packet's own and then others of
    /// its class.
    fn source_ports<T>(&self, own: u16, mut attempt: impl FnMut(u16) -> Option<T>) -> Option<T> {
        if let (Manip::Src, Some((low, high))) = (self.range.manip, self.range.ports) {
            return search(spread(low, high, self.hash), low, high, attempt);
        }
        let (low, high) = class_of(own);
        attempt(own).or_else(|| search(own.saturating_add(1), low, high, attempt))
    }

    /// Calls `attempt` with candidates until it returns a value.
    fn candidates<T>(&self, mut attempt: impl FnMut(Tuple) -> Option<T>) -> Option<T> {
        let reply = self.reply;
        match reply.ports {
            Ports::Icmp(icmp) => {
                // Another identifier only when this one is taken.
                search(icmp.id, 0, u16::MAX, |id| {
                    attempt(Tuple { ports: Ports::Icmp(Icmp { id, ..icmp }), ..reply })
                })
            }
            Ports::Pair { .. } if !has_ports(reply.proto) => attempt(reply),
            // The reply comes from the destination port and goes to the source port.
            Ports::Pair { src: dport, dst: sport } => {
                let with = |src, dst| Tuple { ports: Ports::Pair { src, dst }, ..reply };
                let mut dport = dport;
                if let (Manip::Dst, Some((low, high))) = (self.range.manip, self.range.ports) {
                    dport = spread(low, high, self.hash);
                    let found = search(dport, low, high, |port| attempt(with(port, sport)));
                    if found.is_some() {
                        return found;
                    }
                }
                self.source_ports(sport, |port| attempt(with(dport, port)))
            }
        }
    }
}

fn has_ports(proto: u8) -> bool {
    matches!(proto, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
}

/// Returns the port of a range at `hash`.
fn spread(low: u16, high: u16, hash: u32) -> u16 {
    let span = u32::from(high.max(low) - low) + 1;
    low + (hash % span) as u16
}

/// Returns a hash without a seed.
fn persistent_hash(address: IpAddr) -> u32 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let mixed = (bits as u64 ^ (bits >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// Tries ports from `first` on, around the end of `low..=high`: a series of [`TRIES`], and then
/// shorter ones from random starts.
fn search<T>(
    first: u16,
    low: u16,
    high: u16,
    mut attempt: impl FnMut(u16) -> Option<T>,
) -> Option<T> {
    let span = u32::from(high.max(low) - low) + 1;
    let mut start = u32::from(first.saturating_sub(low)) % span;
    let mut tries = TRIES.min(span);
    loop {
        for step in 0..tries {
            let found = attempt(low + ((start + step) % span) as u16);
            if found.is_some() {
                return found;
            }
        }
        if tries == span || tries <= MIN_TRIES {
            return None;
        }
        tries /= 2;
        start = fastrand::u32(..span);
    }
}

/// Why a connection with NAT was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatError {
    /// No candidate of the range is free.
    Exhausted,
    /// Another error of the table.
    Create(CreateError),
}

impl Table {
    /// Makes a connection with a translation of `range`; `new` is one without.
    ///
    /// # Errors
    ///
    /// No tuple of the range is free, or no connection can be made.
    pub fn create_with_nat<'t>(
        &'t self,
        pinned: &Pinned<'_>,
        new: &NewConn,
        range: &NatRange,
        now: Ticks,
    ) -> Result<Found<'t>, NatError> {
        let bad = NatError::Create(CreateError::BadTuple);
        let choice = Choice::new(self, &new.original, range).ok_or(bad)?;
        let original = new.original.canonical().ok_or(bad)?;
        let flag = match range.manip {
            Manip::Src => flags::NAT_SRC,
            Manip::Dst => flags::NAT_DST,
        };
        let made = choice.candidates(|reply| {
            let key = reply.canonical()?;
            if self.find(&key, now).is_some() {
                return None;
            }
            let new = NewConn { reply, flags: new.flags | flag, ..*new };
            match self.create(pinned, &new, now) {
                Ok(found) => Some(Ok(found)),
                // When the original tuple is taken no candidate can succeed.
                Err(CreateError::Clash) if self.find(&original, now).is_none() => None,
                Err(error) => Some(Err(NatError::Create(error))),
            }
        });
        made.unwrap_or(Err(NatError::Exhausted))
    }

    /// Makes a connection that is not translated, unless its reply tuple is taken: then its source
    /// port changes (ICMP: the identifier).
    ///
    /// # Errors
    ///
    /// As [`Table::create_with_nat`].
    pub fn create_with_null_nat<'t>(
        &'t self,
        pinned: &Pinned<'_>,
        new: &NewConn,
        now: Ticks,
    ) -> Result<Found<'t>, NatError> {
        match self.create(pinned, new, now) {
            Err(CreateError::Clash) => {
                let range = NatRange {
                    manip: Manip::Src,
                    addresses: None,
                    ports: None,
                    selection: Selection::Hash,
                    persistent: false,
                };
                self.create_with_nat(pinned, new, &range, now)
            }
            other => other.map_err(NatError::Create),
        }
    }
}

impl Found<'_> {
    /// Returns the tuple that packets of this direction have after the translation.
    pub fn translated(&self) -> Option<Tuple> {
        match self.direction {
            Direction::Original => self.conn.reply(self.head).map(|reply| reply.reversed()),
            Direction::Reply => self.conn.original(self.head).map(|original| original.reversed()),
        }
    }
}

#[cfg(test)]
mod tests;
