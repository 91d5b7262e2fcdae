// SPDX-License-Identifier: Apache-2.0
//! Tables of Geneve options: changes by NXT_TLV_TABLE_MOD, options read and written by the table, and
//! masks of options, next to a plain model.
//!
//! An input is a list of steps: a change, whose mappings follow their number, or the options of a
//! packet, which follow their length.

use crate::input::{Input, with_true_length};
use flow::{OptionsError, TlvError, TlvMapping, TlvTable, Tunnel};
use openflow::message::{Body, Message, Protocol, TlvMap, TlvTableCommand, TlvTableMod};
use tunnel::Tlvs;

/// Steps that one input may make.
const MAX_STEPS: usize = 16;
/// Fields of a table, and bytes of all of its options.
const FIELDS: usize = 64;
const MOST: usize = flow::OPTIONS_BYTES;

/// The mappings, by fields.
type Model = [Option<TlvMapping>; FIELDS];

const NO_MAPPING: Model = [None; FIELDS];

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (mut table, mut model) = (TlvTable::default(), NO_MAPPING);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        if input.flag() {
            change(&mut input, &mut table, &mut model);
        } else {
            packet(&mut input, &table, &model);
        }
        let held: Vec<_> = table.iter().collect();
        let expected = model.iter().enumerate().filter_map(|(n, m)| Some((n, (*m)?)));
        assert_eq!(held, expected.collect::<Vec<_>>());
    }
}

/// Decodes a change, and applies it if it is well formed: all of it, or nothing.
fn change(input: &mut Input<'_>, table: &mut TlvTable, model: &mut Model) {
    let version = input.version();
    let command = input.below(4) as u8; // the last one is unknown
    let count = input.below(9);
    // Header, the number of Nicira, the subtype, the command and 6 octets of zero.
    let mut message = vec![version.wire(), 4, 0, 0, 0, 0, 0, 1];
    message.extend([0, 0, 0x23, 0x20, 0, 0, 0, 24, 0, command, 0, 0, 0, 0, 0, 0]);
    for _ in 0..count {
        let [class, kind, length, index] = [(); 4].map(|()| input.byte());
        message.extend([class >> 4, class & 15, kind, length, index >> 7, index & 0x7f, 0, 0]);
    }
    let decoded = Message::decode(&with_true_length(&message), &Protocol::new(version));
    let Ok(Message { body: Body::TlvTableMod(wanted), .. }) = decoded else { return };
    assert_eq!(wanted.mappings.len(), count);
    let (mut next, mut next_model) = (table.clone(), *model);
    if apply(&wanted, &mut next, &mut next_model) {
        (*table, *model) = (next, next_model);
    }
}

/// Returns false when a mapping is refused.
fn apply(wanted: &TlvTableMod, table: &mut TlvTable, model: &mut Model) -> bool {
    for TlvMap { class, kind, len, index } in &wanted.mappings {
        let index = usize::from(*index);
        let mapping = TlvMapping { class: *class, kind: *kind, bytes: *len };
        match wanted.command {
            TlvTableCommand::Add => {
                let result = table.add(index, mapping);
                if result != expected(model, index, mapping) {
                    // Tables of other threads take room, too.
                    assert_eq!(result, Err(TlvError::TableFull));
                }
                if result.is_err() {
                    return false;
                }
                model[index] = Some(mapping);
            }
            TlvTableCommand::Delete => {
                table.remove(index);
                model[index] = None;
            }
            TlvTableCommand::Clear => {}
        }
    }
    if wanted.command == TlvTableCommand::Clear {
        table.clear();
        *model = NO_MAPPING;
    }
    true
}

/// Returns what the addition of a mapping gives, if there are no other tables.
fn expected(model: &Model, index: usize, mapping: TlvMapping) -> Result<(), TlvError> {
    let TlvMapping { class, kind, bytes } = mapping;
    if model[index].is_some() {
        return Err(TlvError::AlreadyMapped(index));
    }
    if model.iter().flatten().any(|m| (m.class, m.kind) == (class, kind)) {
        return Err(TlvError::Duplicate { class, kind });
    }
    let used: usize = model.iter().flatten().map(|m| usize::from(m.bytes)).sum();
    if used + usize::from(bytes) > MOST { Err(TlvError::TableFull) } else { Ok(()) }
}

/// Reads the options of a packet, writes them again, and changes bits that a mask leaves out.
fn packet(input: &mut Input<'_>, table: &TlvTable, model: &Model) {
    let wildcarded = input.long();
    let length = input.below(253);
    let mut raw = Tunnel::NONE;
    assert!(raw.set_raw_options(input.take(length)));
    let decoded = table.decode(&raw);
    let fields = read(&raw, model);
    match (&decoded, &fields) {
        (Ok(decoded), Ok(fields)) => same(decoded, fields),
        (Err(error), Err(expected)) => assert_eq!(error, expected),
        _ => panic!("{decoded:?}, but {fields:?}"),
    }
    let Ok(decoded) = decoded else { return };
    written(table, &decoded);

    // Packets that differ in bits that no decision was made about have the same fields.
    let mut mask = Tunnel::NONE;
    mask.present.set(table.fields());
    for (n, mapping) in table.iter() {
        if wildcarded >> n & 1 == 0 {
            mask.set_option(n, &flow::tun_metadata::Wide::ones(mapping.bytes.into()));
        }
    }
    let encoded = table.encode_mask(&mask, &raw);
    let mut other = raw;
    for (byte, mask) in other.options.iter_mut().zip(encoded.options).take(raw.raw_options().len())
    {
        *byte ^= !mask & input.byte();
    }
    let other = table.decode(&other).expect("its options are as valid");
    for (n, _) in table.iter() {
        assert_eq!(other.has_option(n), decoded.has_option(n), "tun_metadata{n}");
        if wildcarded >> n & 1 == 0 {
            assert_eq!(other.option(n), decoded.option(n), "tun_metadata{n}");
        }
    }
}

/// The values of fields.
type Fields = [Option<Vec<u8>>; FIELDS];

/// Returns the fields that a packet's options have.
fn read(raw: &Tunnel, model: &Model) -> Result<Fields, OptionsError> {
    let mut fields = [const { None }; FIELDS];
    for tlv in Tlvs::new(raw.raw_options()) {
        let tlv = tlv.map_err(|_| OptionsError::CutOff)?;
        let is_it =
            |m: &Option<TlvMapping>| m.is_some_and(|m| (m.class, m.kind) == (tlv.class, tlv.kind));
        match model.iter().position(is_it).map(|n| (n, model[n])) {
            Some((n, Some(mapping))) if usize::from(mapping.bytes) == tlv.data.len() => {
                fields[n] = Some(tlv.data.to_vec());
            }
            Some(_) => return Err(OptionsError::Length),
            None if tlv.is_critical() => return Err(OptionsError::Critical),
            None => {}
        }
    }
    Ok(fields)
}

#[track_caller]
fn same(decoded: &Tunnel, fields: &Fields) {
    for (n, value) in fields.iter().enumerate() {
        assert_eq!(decoded.has_option(n), value.is_some(), "tun_metadata{n}");
        if let Some(value) = value {
            assert_eq!(decoded.option(n).bytes(value.len()), value, "tun_metadata{n}");
        }
    }
}

/// Options that a table writes are those that it reads.
fn written(table: &TlvTable, decoded: &Tunnel) {
    let (bytes, is_critical) = table.encode(decoded);
    let all: Vec<_> = Tlvs::new(&bytes).map(|tlv| tlv.expect("a whole option")).collect();
    assert_eq!(is_critical, all.iter().any(tunnel::Tlv::is_critical));
    let mut raw = Tunnel::NONE;
    if !raw.set_raw_options(&bytes) {
        assert!(bytes.len() > 252);
        return;
    }
    let again = table.decode(&raw).expect("what was written is read");
    for (n, mapping) in table.iter() {
        assert_eq!(again.has_option(n), decoded.has_option(n));
        if decoded.has_option(n) {
            let bytes = usize::from(mapping.bytes);
            assert_eq!(again.option(n).bytes(bytes), decoded.option(n).bytes(bytes));
        }
    }
}

/// Seeds: a mapping as OVN has it, changes of no mappings, and packets with options.
pub fn seeds() -> Vec<Vec<u8>> {
    // Step, version, command, number of mappings; class, type, length, field.
    let ovn = [1, 2, 0, 1, 0x12, 0x80, 4, 0];
    let two = [1, 0, 0, 2, 0x01, 2, 124, 3, 0xff, 1, 0, 63];
    let (add_none, remove_none, clear) = ([1, 0, 0, 0], [1, 3, 1, 0], [1, 5, 2, 0]);
    let remove = [1, 0, 1, 1, 0, 0, 0, 0];
    // Step, wildcarded fields, length.
    let head = |wildcarded: u8, length: u8| [0, 0, 0, 0, 0, 0, 0, 0, wildcarded, length];
    let ovn_packet = [&head(0, 8)[..], &[1, 2, 0x80, 1, 0, 5, 0x80, 3]].concat();
    let twice =
        [&head(1, 16)[..], &[1, 2, 0x80, 1, 0, 5, 0x80, 3, 1, 2, 0x80, 1, 9, 9, 9, 9]].concat();
    let cut_off = [&head(0, 5)[..], &[1, 2, 0x80, 1, 9]].concat();
    vec![
        [&add_none[..], &remove_none, &clear].concat(),
        [&ovn[..], &ovn_packet, &remove, &ovn_packet].concat(),
        [&ovn[..], &twice, &[0xff; 16]].concat(),
        [&ovn[..], &cut_off, &two, &ovn, &clear, &two].concat(),
    ]
}
