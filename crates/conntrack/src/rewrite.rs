// SPDX-License-Identifier: Apache-2.0
//! The change of a packet from one tuple to another: addresses, ports and checksums, also in the
//! packet that an ICMP error quotes.

use crate::extract::{Extracted, Family};
use crate::tuple::{Ports, Tuple};
use packet::checksum::{sctp, update, update_unfinished};
use packet::{FromBytes, Ipv6Header, ip_proto};
use std::net::IpAddr;

/// The transport checksum of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumState {
    /// The field has its value.
    Finished,
    /// The field has the sum of the pseudo header; a device or a receiver completes it.
    Unfinished,
}

/// Offsets of the fields that NAT changes.
struct Fields {
    family: Family,
    l3: usize,
    l4: usize,
    proto: u8,
}

fn octets(address: IpAddr) -> ([u8; 16], usize) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => {
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, 4)
        }
        IpAddr::V6(address) => (address.octets(), 16),
    }
}

/// Stores `new` at `at`, and returns the old bytes. `None`: the field is outside.
fn replace<const N: usize>(bytes: &mut [u8], at: usize, new: [u8; N]) -> Option<[u8; N]> {
    let field: &mut [u8; N] = bytes.get_mut(at..at.checked_add(N)?)?.try_into().ok()?;
    Some(std::mem::replace(field, new))
}

/// Changes the checksum at `at` by the change of covered bytes. A field outside is left out.
fn adjust(bytes: &mut [u8], at: usize, change: impl Fn(u16) -> u16) {
    if let Some(&[high, low]) = bytes.get(at..at + 2) {
        let new = change(u16::from_be_bytes([high, low]));
        replace(bytes, at, new.to_be_bytes());
    }
}

impl Fields {
    /// Returns the offset of the transport checksum, if the protocol has an Internet checksum.
    fn checksum(&self) -> Option<usize> {
        match self.proto {
            ip_proto::TCP => Some(self.l4 + 16),
            ip_proto::UDP => Some(self.l4 + 6),
            ip_proto::ICMP | ip_proto::ICMPV6 => Some(self.l4 + 2),
            _ => None,
        }
    }

    /// Returns true when the transport checksum covers the addresses.
    fn covers_addresses(&self) -> bool {
        self.proto != ip_proto::ICMP
    }

    /// Changes the transport checksum for covered bytes.
    fn adjust_transport(&self, bytes: &mut [u8], old: &[u8], new: &[u8], state: Change) {
        let Some(at) = self.checksum() else { return };
        let is_udp = self.proto == ip_proto::UDP;
        let is_zero = bytes.get(at..at + 2) == Some(&[0, 0]);
        if is_udp && is_zero && state != Change::UnfinishedPseudo {
            return; // the datagram has no checksum
        }
        adjust(bytes, at, |sum| match state {
            Change::Finished => match update(sum, old, new) {
                0 if is_udp => 0xffff,
                sum => sum,
            },
            Change::UnfinishedPseudo => update_unfinished(sum, old, new),
            Change::UnfinishedData => sum,
        });
    }

    /// Replaces an address: the source, or the destination.
    fn set_address(
        &self,
        bytes: &mut [u8],
        side: Side,
        new: IpAddr,
        state: ChecksumState,
    ) -> Option<()> {
        let (new, len) = octets(new);
        let at = self.l3
            + match (self.family, side) {
                (Family::V4, Side::Src) => 12,
                (Family::V4, Side::Dst) => 16,
                (Family::V6, Side::Src) => 8,
                (Family::V6, Side::Dst) => 24,
            };
        let new = new.get(..len)?;
        let field = bytes.get_mut(at..at + len)?;
        let mut old = [0; 16];
        let old = old.get_mut(..len)?;
        old.copy_from_slice(field);
        field.copy_from_slice(new);
        if self.family == Family::V4 {
            adjust(bytes, self.l3 + 10, |sum| update(sum, old, new));
        }
        if self.covers_addresses() {
            let change = match state {
                ChecksumState::Finished => Change::Finished,
                ChecksumState::Unfinished => Change::UnfinishedPseudo,
            };
            self.adjust_transport(bytes, old, new, change);
        }
        Some(())
    }

    /// Replaces 16 bits of the transport header at `offset`.
    fn set_port(
        &self,
        bytes: &mut [u8],
        offset: usize,
        new: u16,
        state: ChecksumState,
    ) -> Option<()> {
        let new = new.to_be_bytes();
        let old = replace(bytes, self.l4 + offset, new)?;
        let change = match state {
            ChecksumState::Finished => Change::Finished,
            ChecksumState::Unfinished => Change::UnfinishedData,
        };
        self.adjust_transport(bytes, &old, &new, change);
        Some(())
    }

    /// Changes all that differs between two tuples.
    fn translate(
        &self,
        bytes: &mut [u8],
        from: &Tuple,
        to: &Tuple,
        state: ChecksumState,
    ) -> Option<()> {
        if from.src != to.src {
            self.set_address(bytes, Side::Src, to.src, state)?;
        }
        if from.dst != to.dst {
            self.set_address(bytes, Side::Dst, to.dst, state)?;
        }
        match (from.ports, to.ports) {
            (Ports::Pair { src, dst }, Ports::Pair { src: new_src, dst: new_dst }) => {
                if src != new_src {
                    self.set_port(bytes, 0, new_src, state)?;
                }
                if dst != new_dst {
                    self.set_port(bytes, 2, new_dst, state)?;
                }
            }
            (Ports::Icmp(old), Ports::Icmp(new)) => {
                if old.id != new.id {
                    self.set_port(bytes, 4, new.id, state)?;
                }
            }
            (Ports::Pair { .. }, Ports::Icmp(_)) | (Ports::Icmp(_), Ports::Pair { .. }) => {
                return None;
            }
        }
        Some(())
    }
}

/// The meaning of a change for an Internet checksum.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The field covers the bytes.
    Finished,
    /// The field is the sum of the pseudo header, which has the bytes.
    UnfinishedPseudo,
    /// The field is the sum of the pseudo header, which lacks the bytes.
    UnfinishedData,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Src,
    Dst,
}

/// Changes the packet `bytes`, which begins with its IP header and has the tuple
/// `extracted.tuple`, to have the tuple `to`. Of an ICMP error, that changes the inner packet, and
/// each outer address whose counterpart differs. Checksums follow. The ICMP checksum of an error is
/// finished afterwards, also when `state` says otherwise.
///
/// Returns `None`, with parts of the packet changed, for offsets outside the packet or tuples of
/// different kinds; that cannot be when `extracted` is that of `bytes` and `to` is of a connection
/// which has `extracted.tuple`.
pub fn rewrite(
    bytes: &mut [u8],
    family: Family,
    extracted: &Extracted,
    to: &Tuple,
    state: ChecksumState,
) -> Option<()> {
    let bytes = bytes.get_mut(..extracted.end)?;
    let from = &extracted.tuple;
    let Some(inner) = extracted.inner else {
        let fields = Fields { family, l3: 0, l4: extracted.l4, proto: from.proto };
        fields.translate(bytes, from, to, state)?;
        if from.proto == ip_proto::SCTP
            && from.ports != to.ports
            && state == ChecksumState::Finished
        {
            let sum = sctp(bytes.get(extracted.l4..)?)?;
            replace(bytes, extracted.l4 + 8, sum)?;
        }
        return Some(());
    };
    // The inner packet went the other way.
    let fields = Fields { family, l3: inner.l3, l4: inner.l4, proto: inner.tuple.proto };
    fields.translate(bytes, &inner.tuple, &to.reversed(), ChecksumState::Finished)?;
    let outer = Fields { family, l3: 0, l4: extracted.l4, proto: 0 };
    if from.src != to.src {
        outer.set_address(bytes, Side::Src, to.src, state)?;
    }
    if from.dst != to.dst {
        outer.set_address(bytes, Side::Dst, to.dst, state)?;
    }
    finish_icmp(bytes, family, extracted.l4)
}

/// Computes the checksum of an ICMP message from scratch.
fn finish_icmp(bytes: &mut [u8], family: Family, l4: usize) -> Option<()> {
    replace(bytes, l4 + 2, [0, 0])?;
    let message = bytes.get(l4..)?;
    let mut sum = match family {
        Family::V4 => packet::checksum::Sum::default(),
        Family::V6 => {
            let (ip, _) = Ipv6Header::ref_from_prefix(bytes).ok()?;
            ip.pseudo_sum(ip_proto::ICMPV6, u32::try_from(message.len()).ok()?)
        }
    };
    sum.add(message);
    let sum = sum.finish();
    replace(bytes, l4 + 2, sum.to_be_bytes()).map(|_| ())
}

#[cfg(test)]
mod tests;
