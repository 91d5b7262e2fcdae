// SPDX-License-Identifier: Apache-2.0
//! Actions of NSH.

use super::parse::{Item, ParseError, Parser, Result};
use super::{Parts, put};
use crate::{Action, Masked, PushedNsh, Set, nsh::MOST_METADATA};
use flow::Nsh;
use packet::NshHeader;
use std::fmt::Write as _;

/// Names of the four contexts.
const CONTEXTS: [&str; 4] = ["c1", "c2", "c3", "c4"];
/// Service path identifier of a path.
const SPI: u32 = 0xffff_ff00;

/// Writes `push_nsh(...)`.
pub(super) fn push(out: &mut String, pushed: &PushedNsh) {
    let Nsh { flags, ttl, mdtype, np, path, context } = &pushed.fields;
    let (spi, si) = (path.get() >> 8, path.get() & 0xff);
    put!(out, "push_nsh(flags={flags},ttl={ttl},mdtype={mdtype},np={np},spi={spi:#x},si={si}");
    match *mdtype {
        NshHeader::MD_TYPE_1 => {
            for (name, context) in CONTEXTS.iter().zip(context) {
                put!(out, ",{name}={:#x}", context.get());
            }
        }
        NshHeader::MD_TYPE_2 => {
            let digits: String = pushed.metadata.iter().map(|b| format!("{b:02x}")).collect();
            // As a number, as in OVS.
            match digits.trim_start_matches('0') {
                "" => out.push_str(",md2=0"),
                digits => put!(out, ",md2=0x{digits}"),
            }
        }
        _ => out.push_str(",<error: unknown mdtype>"),
    }
    out.push(')');
}

/// Writes the parts of `set(nsh(...))`.
pub(super) fn set(
    p: &mut Parts<'_>,
    [flags, ttl]: [&Masked<u8>; 2],
    path: &Masked<u32>,
    context: &[Masked<u32>; 4],
) {
    byte(p, "flags", flags);
    byte(p, "ttl", ttl);
    let spi = Masked { value: path.value >> 8, mask: path.mask >> 8 };
    word(p, "spi", &spi, u32::MAX >> 8);
    byte(p, "si", &Masked { value: path.value as u8, mask: path.mask as u8 }); // the low bytes
    for (name, context) in CONTEXTS.iter().zip(context) {
        word(p, name, context, u32::MAX);
    }
}

fn byte(p: &mut Parts<'_>, name: &str, m: &Masked<u8>) {
    let (value, mask) = (m.value, m.mask);
    match mask == u8::MAX {
        true => p.part(name, true, true, value, mask),
        false => {
            let (value, shown) = (format_args!("{value:#04x}"), format_args!("{mask:#04x}"));
            p.part(name, false, mask != 0, value, shown);
        }
    }
}

fn word(p: &mut Parts<'_>, name: &str, m: &Masked<u32>, full: u32) {
    let (value, mask) = (m.value, m.mask);
    let (shown, shown_mask) = (format_args!("{value:#x}"), format_args!("{mask:#010x}"));
    p.part(name, mask == full, mask != 0, shown, shown_mask);
}

impl Parser<'_> {
    /// Reads `push_nsh(...)`; what is not given is as in OVS.
    pub(super) fn push_nsh(&mut self) -> Result<Action> {
        let (ttl, mdtype, np) = (63, NshHeader::MD_TYPE_1, NshHeader::NEXT_ETHERNET);
        let (path, context) = (0xff.into(), Default::default());
        let mut fields = Nsh { flags: 0, ttl, mdtype, np, path, context };
        let mut metadata = Vec::new();
        for item in self.items()? {
            let bad = |problem: &str| ParseError { at: item.at, problem: problem.to_owned() };
            let path = fields.path.get();
            match item.name {
                "flags" => fields.flags = self.named(&item, "flags")?,
                "ttl" => fields.ttl = self.named(&item, "ttl")?,
                "mdtype" => {
                    fields.mdtype = self.named(&item, "mdtype")?;
                    if !matches!(fields.mdtype, NshHeader::MD_TYPE_1 | NshHeader::MD_TYPE_2) {
                        return Err(bad("mdtype is 1 or 2"));
                    }
                }
                "np" => fields.np = self.named(&item, "np")?,
                "spi" => match self.named::<u32>(&item, "spi")? {
                    spi if spi > SPI >> 8 => return Err(bad("spi has 24 bits")),
                    spi => fields.path.set(path & !SPI | spi << 8),
                },
                "si" => fields.path.set(path & SPI | u32::from(self.named::<u8>(&item, "si")?)),
                "md2" if fields.mdtype == NshHeader::MD_TYPE_2 => {
                    metadata = metadata_of(item.value).ok_or_else(|| bad("md2 is no metadata"))?;
                }
                name if fields.mdtype == NshHeader::MD_TYPE_1 => {
                    let mut contexts = CONTEXTS.iter().zip(&mut fields.context);
                    let Some((_, context)) = contexts.find(|(n, _)| **n == name) else {
                        return self.unknown(&item, "push_nsh");
                    };
                    context.set(self.named(&item, name)?);
                }
                _ => return self.unknown(&item, "push_nsh"),
            }
        }
        Ok(Action::PushNsh(Box::new(PushedNsh { fields, metadata })))
    }

    /// Reads the parts of `set(nsh(...))`.
    pub(super) fn set_nsh(&self, items: &[Item<'_>]) -> Result<Set> {
        let (mut flags, mut ttl, mut path) = Default::default();
        let mut context = [Masked::default(); 4];
        for item in items {
            let Masked { value, mask }: Masked<u32> = path;
            match item.name {
                "flags" => flags = self.byte(item)?,
                "ttl" => ttl = self.byte(item)?,
                "spi" => {
                    let spi = self.bits(item, SPI >> 8)?;
                    path = Masked {
                        value: value & !SPI | spi.value << 8,
                        mask: mask & !SPI | spi.mask << 8,
                    };
                }
                "si" => {
                    let si = self.bits(item, !SPI)?;
                    path = Masked { value: value & SPI | si.value, mask: mask & SPI | si.mask };
                }
                name => match CONTEXTS.iter().zip(&mut context).find(|(n, _)| **n == name) {
                    Some((_, context)) => *context = self.bits(item, u32::MAX)?,
                    None => return self.unknown(item, "nsh"),
                },
            }
        }
        Ok(Set::Nsh { flags, ttl, path, context })
    }
}

/// Reads `0xDIGITS`, two digits a byte, with zeros up to whole words; `0` is no byte.
fn metadata_of(text: &str) -> Option<Vec<u8>> {
    if text == "0" {
        return Some(Vec::new());
    }
    let digits = text.strip_prefix("0x").filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let pairs = digits.as_bytes().chunks_exact(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let mut bytes = bytes.collect::<Option<Vec<u8>>>()?;
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    (bytes.len() <= MOST_METADATA).then_some(bytes)
}
