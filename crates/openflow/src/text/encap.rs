// SPDX-License-Identifier: Apache-2.0
//! `encap(...)` and `decap(...)`.

use super::error::{TextError, err};
use super::operand::{c_hex, number};
use super::token::Tokens;
use crate::action::{Action, Encap, EncapHeader, EncapProperty, USE_NEXT_PROTOCOL};
use std::fmt::Write;

/// Most digits of a TLV's value that ovs-ofctl reads.
const TLV_DIGITS: usize = 251;
/// Number of namespaces of packet types (enum ofp_header_type_namespaces).
const NAMESPACES: u16 = 5;

/// Reads what is in the parentheses of `encap`.
pub(super) fn parse(text: &str) -> Result<Action, TextError> {
    let Some(token) = Tokens::new(text).next() else {
        return err(format!("Missing encap hdr: {text}"));
    };
    let header = EncapHeader::ALL.into_iter().find(|h| h.name() == token.key);
    let Some(header) = header else {
        return err(format!("Encap hdr not supported: {}", token.value));
    };
    let mut properties = Vec::new();
    for token in Tokens::new(token.value) {
        let read: fn(&str) -> Result<EncapProperty, TextError> = match (header, token.key) {
            (EncapHeader::Nsh, "md_type") => metadata_type,
            (EncapHeader::Nsh, "tlv") => tlv,
            (_, key) => return err(format!("Invalid property: {key}")),
        };
        if token.value.is_empty() {
            return err("Value missing for encap property");
        }
        properties.push(read(token.value)?);
    }
    Ok(Action::Encap(Box::new(Encap { header, header_bytes: 0, properties })))
}

fn metadata_type(text: &str) -> Result<EncapProperty, TextError> {
    match number(text, "md_type")? {
        md_type @ 1..=2 => Ok(EncapProperty::MetadataType(md_type)),
        _ => err("invalid md_type"),
    }
}

/// Reads `0xCLASS,TYPE,0xVALUE`.
fn tlv(text: &str) -> Result<EncapProperty, TextError> {
    let parts = || {
        let (class, rest) = text.strip_prefix("0x")?.split_once(',')?;
        let (kind, value) = rest.split_once(",0x")?;
        let end = value.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(value.len());
        let digits = value.get(..end.min(TLV_DIGITS))?;
        let class = u16::from_str_radix(class, 16).ok()?;
        let value = digits.as_bytes().chunks_exact(2).map(|pair| {
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
        });
        let value = value.collect::<Option<Vec<u8>>>()?;
        (!digits.is_empty()).then_some(EncapProperty::Tlv {
            class,
            kind: kind.parse().ok()?,
            value,
        })
    };
    parts().ok_or_else(|| TextError(format!("Invalid NSH TLV header: {text}")))
}

/// Reads what is in the parentheses of `decap`.
pub(super) fn parse_decap(text: &str) -> Result<Action, TextError> {
    let Some(token) = Tokens::new(text).next() else {
        return Ok(Action::Decap { packet_type: USE_NEXT_PROTOCOL });
    };
    if token.key != "packet_type" {
        return err(format!("Invalid decap argument: {}", token.key));
    }
    let mut parts = Tokens::new(token.value);
    let mut part = |name: &str| match parts.next().filter(|token| token.key == name) {
        Some(token) => number::<u16>(token.value, name),
        None => err(format!("Missing packet_type attribute {name}")),
    };
    let namespace = part("ns")?;
    if namespace >= NAMESPACES {
        return err(format!("Unsupported ns value: {namespace}"));
    }
    let packet_type = u32::from(namespace) << 16 | u32::from(part("type")?);
    Ok(Action::Decap { packet_type })
}

/// Writes an `encap`.
pub(super) fn put(encap: &Encap, out: &mut String) {
    let properties: Vec<String> = encap.properties.iter().map(property_text).collect();
    let _ = match properties.is_empty() {
        true => write!(out, "encap({})", encap.header.name()),
        false => write!(out, "encap({}({}))", encap.header.name(), properties.join(",")),
    };
}

fn property_text(property: &EncapProperty) -> String {
    match property {
        EncapProperty::MetadataType(md_type) => format!("md_type={md_type}"),
        EncapProperty::Tlv { class, kind, value } => {
            // As a number, as in OVS: leading zeros are left out, and are lost to a reader.
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            let number = match digits.trim_start_matches('0') {
                "" => "0".to_string(),
                digits => format!("0x{digits}"),
            };
            format!("tlv(0x{class:04x},{kind},{number})")
        }
    }
}

/// Writes a `decap`.
pub(super) fn put_decap(packet_type: u32, out: &mut String) {
    let _ = match packet_type {
        USE_NEXT_PROTOCOL => write!(out, "decap()"),
        _ => {
            let (namespace, kind) = (packet_type >> 16, packet_type & 0xffff);
            write!(out, "decap(packet_type(ns={namespace},type={}))", c_hex(kind.into()))
        }
    };
}
