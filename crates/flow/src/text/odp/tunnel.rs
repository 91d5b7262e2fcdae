// SPDX-License-Identifier: Apache-2.0
//! `tunnel(...)` of datapath syntax: the outer headers of a key, or of a `set`.
//!
//! As in OVS, addresses, the ToS and the ports are left out where they are zero, also where that is
//! exact, and `tun_id` stands for the flag `key`.

use super::format::Attribute;
use super::parse::{masked, masked_with};
use crate::field::flags::Flags;
use crate::field::value::{CHex, hex_text, integer};
use crate::{Mask, Tunnel};
use std::fmt::{Display, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::U16;

/// Bytes of an option's header.
const HEADER: usize = 4;

/// Formats the inside of `tunnel(...)`. Without a mask all fields are exact, as in a `set`; with
/// `verbose` fields that are wildcarded are shown, too. The options are those of a datapath's key
/// ([`Tunnel::raw_options`]).
pub fn format_tunnel(key: &Tunnel, mask: Option<&Tunnel>, verbose: bool) -> String {
    let is_set = mask.is_none();
    let (k, m) = (key, mask.unwrap_or(&Mask::EXACT.0.tunnel));
    let mut a = Attribute::new(verbose);
    let has_key = k.id.get() != 0 || k.flags.get() & Tunnel::KEY != 0;
    if has_key {
        // Zero is 0x0 here, unlike in other fields.
        let [value, mask] = [k.id.get(), m.id.get()].map(|id| format!("{id:#x}"));
        a.field("tun_id", value, m.id.get().into(), u64::MAX.into(), &mask);
    }
    if k.src.get() != 0 {
        a.ipv4("src", k.src.get(), m.src.get());
    }
    if k.dst.get() != 0 {
        a.ipv4("dst", k.dst.get(), m.dst.get());
    }
    if k.ipv6_src != [0; 16] {
        a.ipv6("ipv6_src", k.ipv6_src, m.ipv6_src);
    }
    if k.ipv6_dst != [0; 16] {
        a.ipv6("ipv6_dst", k.ipv6_dst, m.ipv6_dst);
    }
    if k.tos != 0 {
        a.hex("tos", k.tos.into(), m.tos.into(), 0xff);
    }
    a.dec("ttl", k.ttl.into(), m.ttl.into(), 0xff);
    if k.tp_src.get() != 0 {
        a.dec("tp_src", k.tp_src.get().into(), m.tp_src.get().into(), 0xffff);
    }
    if k.tp_dst.get() != 0 {
        a.dec("tp_dst", k.tp_dst.get().into(), m.tp_dst.get().into(), 0xffff);
    }
    let nested = |a: &mut Attribute, name: &str, fill: &dyn Fn(&mut Attribute)| {
        let mut inner = Attribute::new(verbose);
        fill(&mut inner);
        if inner.counts || verbose {
            a.counts |= inner.counts;
            a.word(&format!("{name}({})", inner.text));
        }
    };
    if k.gbp_id.get() != 0 || k.gbp_flags != 0 {
        nested(&mut a, "vxlan", &|a| {
            nested(a, "gbp", &|a| {
                a.dec("id", k.gbp_id.get().into(), m.gbp_id.get().into(), 0xffff);
                a.hex("flags", k.gbp_flags.into(), m.gbp_flags.into(), 0xff);
            });
        });
    }
    if k.options_len != 0 && (m.options_len != 0 || verbose) {
        a.counts = true;
        a.word(&format!("geneve({})", options(k, m, verbose)));
    }
    if matches!(k.erspan_ver, 1 | 2) {
        nested(&mut a, "erspan", &|a| {
            a.dec("ver", k.erspan_ver.into(), m.erspan_ver.into(), 0xff);
            if k.erspan_ver == 1 {
                let mask = m.erspan_idx.get();
                a.counts |= mask != 0;
                // As in OVS, with its mask always.
                let shown: &dyn Display = &CHex(mask);
                a.put("idx", CHex(k.erspan_idx.get()), (!is_set).then_some(shown));
            } else {
                a.dec("dir", k.erspan_dir.into(), m.erspan_dir.into(), 0xff);
                a.hex("hwid", k.erspan_hwid.into(), m.erspan_hwid.into(), 0xff);
            }
        });
    }
    if k.gtpu_flags != 0 && k.gtpu_msgtype != 0 {
        nested(&mut a, "gtpu", &|a| {
            a.hex("flags", k.gtpu_flags.into(), m.gtpu_flags.into(), 0xff);
            a.dec("msgtype", k.gtpu_msgtype.into(), m.gtpu_msgtype.into(), 0xff);
        });
    }
    let mut mask = m.flags.get() & Tunnel::ALL_FLAGS;
    if mask != Tunnel::ALL_FLAGS && !has_key {
        // As in OVS, where this flag is that there is a key.
        mask &= !Tunnel::KEY;
    }
    if mask != 0 || verbose {
        a.counts = true;
        a.word(&format!("flags({})", Flags::TUNNEL.text(k.flags.get(), mask)));
    }
    a.text
}

/// Formats the options of Geneve, each in braces.
fn options(k: &Tunnel, m: &Tunnel, verbose: bool) -> String {
    let mut out = String::new();
    let (mut key, mut mask) = (k.raw_options(), &m.options[..]);
    while let Some((&[class0, class1, kind, length], rest)) = key.split_first_chunk::<HEADER>() {
        let length = usize::from(length & 0x1f) * 4;
        let (Some((value, key_rest)), Some((header, mask_rest))) =
            (rest.split_at_checked(length), mask.split_first_chunk::<HEADER>())
        else {
            break;
        };
        let Some((value_mask, mask_rest)) = mask_rest.split_at_checked(length) else {
            break;
        };
        let [mask0, mask1, kind_mask, length_mask] = *header;
        let mut a = Attribute::new(verbose);
        let class = u16::from_be_bytes([class0, class1]);
        a.hex("class", class.into(), u16::from_be_bytes([mask0, mask1]).into(), 0xffff);
        a.hex("type", kind.into(), kind_mask.into(), 0xff);
        a.dec("len", length as u32, (length_mask & 0x1f).into(), 0x1f); // at most 124
        if length != 0 && (verbose || value_mask.iter().any(|byte| *byte != 0)) {
            let mut text = hex_text(value);
            if value_mask.iter().any(|byte| *byte != 0xff) {
                let _ = write!(text, "/{}", hex_text(value_mask)); // a String takes all writes
            }
            a.word(&text);
        }
        let _ = write!(out, "{{{}}}", a.text);
        (key, mask) = (key_rest, mask_rest);
    }
    out
}

/// Splits one item off a list: up to a comma that is not in parentheses.
fn item(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => return Some((text.get(..i)?, text.get(i + 1..)?)),
            _ => {}
        }
    }
    (depth == 0).then_some((text, ""))
}

/// The items of a list.
fn items(mut text: &str) -> impl Iterator<Item = Option<&str>> {
    std::iter::from_fn(move || {
        text = text.trim_start_matches([',', ' ']);
        if text.is_empty() {
            return None;
        }
        let found = item(text);
        text = found.map_or("", |(_, rest)| rest);
        Some(found.map(|(item, _)| item))
    })
}

/// Returns the number of bytes of the items of `tunnel(...)` in netlink's form: a header of four bytes,
/// and the value.
pub(super) fn attribute_bytes(body: &str) -> usize {
    let value = |item: &str| match item.split('=').next() {
        Some("tun_id") => 8,
        Some("ipv6_src" | "ipv6_dst") => 16,
        _ => 4,
    };
    items(body).flatten().map(|item| 4 + value(item)).sum()
}

/// Reads the inside of `tunnel(...)`: the key, and the mask of what is given. `None` for a text that
/// cannot be read.
pub fn parse_tunnel(body: &str) -> Option<(Tunnel, Tunnel)> {
    let (mut key, mut mask) = (Tunnel::NONE, Tunnel::NONE);
    let (k, m) = (&mut key, &mut mask);
    for item in items(body) {
        let item = item?;
        if let Some((name, inner)) = item.split_once('(')
            && !name.contains('=')
        {
            nested(name, inner.strip_suffix(')')?, k, m)?;
            continue;
        }
        let (name, value) = item.split_once('=')?;
        let number = |all: u128| masked(value, all);
        let v4 = || {
            let read = |t: &str| t.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
            masked_with(value, read, u32::MAX)
        };
        let v6 = || {
            let read = |t: &str| t.parse::<Ipv6Addr>().ok().map(|a| a.octets());
            masked_with(value, read, [0xff; 16])
        };
        // Each number fits its place.
        match name {
            "tun_id" => {
                let (v, mask) = number(u64::MAX.into())?;
                k.id.set(v as u64);
                m.id.set(mask as u64);
                add_flags(k, m, Tunnel::KEY, Tunnel::KEY);
            }
            "src" => set32(&mut k.src, &mut m.src, v4()?),
            "dst" => set32(&mut k.dst, &mut m.dst, v4()?),
            "ipv6_src" => (k.ipv6_src, m.ipv6_src) = v6()?,
            "ipv6_dst" => (k.ipv6_dst, m.ipv6_dst) = v6()?,
            "tos" => (k.tos, m.tos) = bytes(number(0xff)?),
            "ttl" => (k.ttl, m.ttl) = bytes(number(0xff)?),
            "tp_src" => set16(&mut k.tp_src, &mut m.tp_src, number(0xffff)?),
            "tp_dst" => set16(&mut k.tp_dst, &mut m.tp_dst, number(0xffff)?),
            _ => return None,
        }
    }
    Some((key, mask))
}

fn bytes((value, mask): (u128, u128)) -> (u8, u8) {
    (value as u8, mask as u8) // both fit
}

fn set16(key: &mut U16, mask: &mut U16, (value, bits): (u128, u128)) {
    key.set(value as u16); // both fit
    mask.set(bits as u16);
}

fn set32(
    key: &mut zerocopy::network_endian::U32,
    mask: &mut zerocopy::network_endian::U32,
    (value, bits): (u32, u32),
) {
    key.set(value);
    mask.set(bits);
}

fn add_flags(key: &mut Tunnel, mask: &mut Tunnel, flags: u16, bits: u16) {
    key.flags.set(key.flags.get() | flags);
    mask.flags.set(mask.flags.get() | bits);
}

/// Reads `geneve(...)` and its like.
fn nested(name: &str, body: &str, k: &mut Tunnel, m: &mut Tunnel) -> Option<()> {
    match name {
        "flags" if body.is_empty() => add_flags(k, m, 0, Tunnel::ALL_FLAGS),
        "flags" => {
            let (flags, bits) = Flags::TUNNEL.parse(body).ok()?;
            add_flags(k, m, flags, bits);
        }
        "geneve" => parse_options(body, k, m)?,
        "vxlan" => {
            let body = body.strip_prefix("gbp(")?.strip_suffix(')')?;
            fields(body, &mut |name, value| {
                match name {
                    "id" => set16(&mut k.gbp_id, &mut m.gbp_id, masked(value, 0xffff)?),
                    "flags" => (k.gbp_flags, m.gbp_flags) = bytes(masked(value, 0xff)?),
                    _ => return None,
                }
                Some(())
            })?;
        }
        "erspan" => fields(body, &mut |name, value| {
            match name {
                "ver" => (k.erspan_ver, m.erspan_ver) = bytes(masked(value, 0xff)?),
                "idx" => {
                    let (v, bits) = masked(value, u32::MAX.into())?;
                    set32(&mut k.erspan_idx, &mut m.erspan_idx, (v as u32, bits as u32)); // fit
                }
                "dir" => (k.erspan_dir, m.erspan_dir) = bytes(masked(value, 0xff)?),
                "hwid" => (k.erspan_hwid, m.erspan_hwid) = bytes(masked(value, 0xff)?),
                _ => return None,
            }
            Some(())
        })?,
        "gtpu" => fields(body, &mut |name, value| {
            match name {
                "flags" => (k.gtpu_flags, m.gtpu_flags) = bytes(masked(value, 0xff)?),
                "msgtype" => (k.gtpu_msgtype, m.gtpu_msgtype) = bytes(masked(value, 0xff)?),
                _ => return None,
            }
            Some(())
        })?,
        _ => return None,
    }
    Some(())
}

fn fields(body: &str, each: &mut dyn FnMut(&str, &str) -> Option<()>) -> Option<()> {
    body.split(',').filter(|item| !item.is_empty()).try_for_each(|item| {
        let (name, value) = item.split_once('=')?;
        each(name, value)
    })
}

/// The last bytes of a big-endian number, which fits them.
fn number_bytes(text: &str, length: usize) -> Option<Vec<u8>> {
    let digits = match text.strip_prefix("0x") {
        Some(digits) => digits.to_string(),
        None => format!("{:x}", integer(text)?),
    };
    let digits = digits.trim_start_matches('0');
    if digits.len() > 2 * length || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let digits = format!("{digits:0>width$}", width = 2 * length);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Reads options, each in braces.
fn parse_options(body: &str, k: &mut Tunnel, m: &mut Tunnel) -> Option<()> {
    let (mut key, mut mask) = (Vec::new(), Vec::new());
    let mut rest = body;
    while !rest.is_empty() {
        let (option, tail) = rest.strip_prefix('{')?.split_once('}')?;
        rest = tail;
        let (mut class, mut kind, mut length) = ((0, 0), (0, 0), (0, 0));
        let mut value = None;
        for item in option.split(',').filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                Some(("class", text)) => class = masked(text, 0xffff)?,
                Some(("type", text)) => kind = masked(text, 0xff)?,
                Some(("len", text)) => length = masked(text, 0xff)?,
                None if value.is_none() => value = Some(item),
                _ => return None,
            }
        }
        let bytes = usize::try_from(length.0).ok().filter(|n| *n <= 124 && n.is_multiple_of(4))?;
        let (value, value_mask) = match value.map(|v| v.split_once('/').unwrap_or((v, ""))) {
            None => (vec![0; bytes], vec![0; bytes]),
            Some((value, "")) => (number_bytes(value, bytes)?, vec![0xff; bytes]),
            Some((value, mask)) => (number_bytes(value, bytes)?, number_bytes(mask, bytes)?),
        };
        // Each number fits its place.
        key.extend((class.0 as u16).to_be_bytes());
        key.extend([kind.0 as u8, (bytes / 4) as u8]);
        key.extend(value);
        mask.extend((class.1 as u16).to_be_bytes());
        mask.extend([kind.1 as u8, length.1 as u8 & 0x1f]);
        mask.extend(value_mask);
    }
    (k.set_raw_options(&key) && m.set_raw_options(&mask)).then_some(())?;
    m.options_len = u8::MAX;
    Some(())
}
