// SPDX-License-Identifier: Apache-2.0
//! Helpers: packets of control connections make expectations, and have the addresses in their data
//! translated.

use crate::conn::{Direction, Helper};
use crate::counters::Counter;
use crate::expectations::{Expectation, Translation};
use crate::extensions::Skew;
use crate::extract::Family;
use crate::ftp::{self, Mode};
use crate::layout::flags;
use crate::nat::Manip;
use crate::rewrite::ChecksumState;
use crate::segment::TcpSegment;
use crate::table::Found;
use crate::tftp;
use crate::ticks::Ticks;
use crate::tracker::{Packet, Tracker, ct_state};
use crate::tuple::{Ports, Tuple};
use packet::checksum::{Sum, internet, update_u32};
use packet::{FromBytes, Ipv4Header, Ipv6Header, UdpHeader, ip_proto};
use std::net::IpAddr;
use std::ops::Range;

/// A replacement of a part of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes to replace, from the IP header on.
    pub at: Range<usize>,
    /// Their replacement.
    pub with: Vec<u8>,
}

impl Edit {
    /// Returns the packet `bytes`, from its IP header to the end of the IP packet, after the
    /// replacement, with lengths and checksums of IP and TCP. `l4` is the offset of the TCP header.
    /// `None`: the offsets are outside, or the packet would be too long.
    pub fn apply(&self, bytes: &[u8], family: Family, l4: usize) -> Option<Vec<u8>> {
        let mut new = Vec::with_capacity(bytes.len() + self.with.len());
        new.extend_from_slice(bytes.get(..self.at.start)?);
        new.extend_from_slice(&self.with);
        new.extend_from_slice(bytes.get(self.at.end..)?);
        let transport_len = u32::try_from(new.len().checked_sub(l4)?).ok()?;
        let pseudo: Sum = match family {
            Family::V4 => {
                let len = u16::try_from(new.len()).ok()?;
                let (ip, _) = Ipv4Header::mut_from_prefix(&mut new).ok()?;
                ip.total_len.set(len);
                ip.checksum.set(0);
                let pseudo = ip.pseudo_sum(transport_len);
                let sum = internet(new.get(..l4)?);
                new.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
                pseudo
            }
            Family::V6 => {
                let len = u16::try_from(new.len().checked_sub(size_of::<Ipv6Header>())?).ok()?;
                let (ip, _) = Ipv6Header::mut_from_prefix(&mut new).ok()?;
                ip.payload_len.set(len);
                ip.pseudo_sum(ip_proto::TCP, transport_len)
            }
        };
        new.get_mut(l4 + 16..l4 + 18)?.fill(0);
        let mut sum = pseudo;
        sum.add(new.get(l4..)?);
        let sum = sum.finish();
        new.get_mut(l4 + 16..l4 + 18)?.copy_from_slice(&sum.to_be_bytes());
        Some(new)
    }
}

/// Adds to a number of the TCP header at `at`. The checksum follows, unless it is unfinished.
fn add(bytes: &mut [u8], l4: usize, at: usize, more: i32, state: ChecksumState) -> Option<u32> {
    let field: &mut [u8; 4] = bytes.get_mut(l4 + at..l4 + at + 4)?.try_into().ok()?;
    let old = u32::from_be_bytes(*field);
    let new = old.wrapping_add_signed(more);
    *field = new.to_be_bytes();
    if state == ChecksumState::Finished {
        let field: &mut [u8; 2] = bytes.get_mut(l4 + 16..l4 + 18)?.try_into().ok()?;
        *field = update_u32(u16::from_be_bytes(*field), old, new).to_be_bytes();
    }
    Some(new)
}

/// Offsets of the sequence and the acknowledgement number in the TCP header.
const SEQ: usize = 4;
const ACK: usize = 8;

impl Tracker {
    /// Returns the segment with the numbers of the peer whose data was changed, which the state
    /// machine follows. Where the action translates the packet, and no earlier action did, changes
    /// the numbers in the packet, too.
    pub(crate) fn unskew(&self, found: &Found<'_>, ctx: &mut Packet<'_, '_>) -> Option<TcpSegment> {
        let mut segment = ctx.extracted.segment?;
        if !found.head.has(flags::DAEMON) {
            return Some(segment);
        }
        let Some(skew) = self.table().skew(found.conn) else {
            return Some(segment);
        };
        let (at, more) = if found.direction == skew.direction {
            (SEQ, skew.bytes)
        } else if segment.has(packet::tcp_flags::ACK) {
            (ACK, skew.bytes.wrapping_neg())
        } else {
            return Some(segment);
        };
        let was_translated = ctx.meta.state & (ct_state::SNAT | ct_state::DNAT) != 0;
        match (at, was_translated) {
            (SEQ, true) => segment.seq = segment.seq.wrapping_add_signed(-more),
            (ACK, false) => segment.ack = segment.ack.wrapping_add_signed(more),
            _ => {}
        }
        if ctx.translates && !was_translated {
            add(ctx.packet.bytes, ctx.extracted.l4, at, more, ctx.packet.checksum);
            ctx.done.changed = true;
        }
        Some(segment)
    }

    /// Lets the helper of a connection read a packet.
    pub(crate) fn help(&self, found: &Found<'_>, ctx: &mut Packet<'_, '_>, now: Ticks) {
        if ctx.extracted.inner.is_some() || ctx.meta.state & ct_state::INV != 0 {
            return;
        }
        let expected = match found.conn.class().helper {
            Some(Helper::Ftp) => self.help_ftp(found, ctx),
            Some(Helper::Tftp) => self.help_tftp(found, ctx),
            None => None,
        };
        if let Some(expectation) = expected
            && self.expectations.add(self.table(), expectation, now).is_err()
        {
            self.counters().add(Counter::ExpectationsFull);
        }
    }

    fn help_ftp(&self, found: &Found<'_>, ctx: &mut Packet<'_, '_>) -> Option<Expectation> {
        let segment = ctx.extracted.segment?;
        let start = ctx.extracted.end.checked_sub(segment.data_len as usize)?;
        let data = ctx.packet.bytes.get(start..ctx.extracted.end)?;
        let announcement = match ftp::decode(data) {
            Ok(announcement) => announcement?,
            Err(ftp::Malformed) => {
                self.refuse(ctx);
                return None;
            }
        };
        let sender = match announcement.mode {
            Mode::Active => Direction::Original,
            Mode::Passive => Direction::Reply,
        };
        if found.direction != sender {
            return None; // a client's reply, or a server's command
        }
        let (original, reply) = (found.conn.original(found.head)?, found.conn.reply(found.head)?);
        // The address of the sender, as the sender and as its peer have it.
        let (own, seen) = match announcement.mode {
            Mode::Active => (original.src, reply.dst),
            Mode::Passive => (reply.src, original.dst),
        };
        if let Some(address) = &announcement.address {
            if address.address != own && address.address != seen {
                // The address of a third host (RFC 2577, 3).
                self.refuse(ctx);
                return None;
            }
            let is_translated = ctx.meta.state & (ct_state::SNAT | ct_state::DNAT) != 0;
            if address.address != seen && is_translated {
                let with = address.text_of(seen)?.into_bytes();
                let bytes = with.len() as i32 - address.at.len() as i32;
                let at = start + address.at.start..start + address.at.end;
                ctx.done.edit = Some(Edit { at, with });
                let skew = Skew { bytes, direction: found.direction };
                self.table().add_skew(found.conn, found.head, skew);
            }
        }
        let to_client = Ports::Pair { src: 0, dst: announcement.port };
        let tuple = match announcement.mode {
            Mode::Active => Tuple { ports: to_client, ..reply },
            Mode::Passive => Tuple { ports: to_client, ..original },
        };
        let translation = match (announcement.mode, manip(found)) {
            (_, None) => None,
            // The server connects to the translated address of the client.
            (Mode::Active, Some(Manip::Src)) => Some((Manip::Dst, original.src)),
            // The server connects from the address that the client knows.
            (Mode::Active, Some(Manip::Dst)) => Some((Manip::Src, original.dst)),
            (Mode::Passive, Some(Manip::Src)) => Some((Manip::Src, reply.dst)),
            (Mode::Passive, Some(Manip::Dst)) => Some((Manip::Dst, reply.src)),
        };
        Some(self.expectation(found, &original, tuple, translation, None))
    }

    fn help_tftp(&self, found: &Found<'_>, ctx: &Packet<'_, '_>) -> Option<Expectation> {
        let start = ctx.extracted.l4 + size_of::<UdpHeader>();
        let data = ctx.packet.bytes.get(start..ctx.extracted.end)?;
        if found.direction != Direction::Original || !tftp::is_request(data) {
            return None;
        }
        let (original, reply) = (found.conn.original(found.head)?, found.conn.reply(found.head)?);
        // The server answers from another port to the port of the request.
        let (Ports::Pair { dst, .. }, Ports::Pair { src: client_port, .. }) =
            (reply.ports, original.ports)
        else {
            return None;
        };
        let tuple = Tuple { ports: Ports::Pair { src: 0, dst }, ..reply };
        let (translation, port) = match manip(found) {
            None => (None, None),
            Some(Manip::Src) => (Some((Manip::Dst, original.src)), Some(client_port)),
            Some(Manip::Dst) => (Some((Manip::Src, original.dst)), None),
        };
        Some(self.expectation(found, &original, tuple, translation, port))
    }

    fn expectation(
        &self,
        found: &Found<'_>,
        original: &Tuple,
        tuple: Tuple,
        translation: Option<(Manip, IpAddr)>,
        port: Option<u16>,
    ) -> Expectation {
        Expectation {
            tuple,
            parent: found.conn.id(found.head),
            parent_tuple: *original,
            mark: found.conn.mark(),
            label: found.conn.label(),
            translation: translation.map(|(manip, address)| Translation { manip, address, port }),
        }
    }

    /// Makes a control packet invalid.
    fn refuse(&self, ctx: &mut Packet<'_, '_>) {
        self.counters().add(Counter::InvalidFtp);
        ctx.done.failure = Some(Counter::InvalidFtp);
        let translated = ctx.meta.state & (ct_state::SNAT | ct_state::DNAT);
        ctx.meta.state = ct_state::INV | ct_state::TRK | translated;
    }
}

fn manip(found: &Found<'_>) -> Option<Manip> {
    if found.head.has(flags::NAT_SRC) {
        Some(Manip::Src)
    } else {
        found.head.has(flags::NAT_DST).then_some(Manip::Dst)
    }
}
