// SPDX-License-Identifier: Apache-2.0
//! The table of Geneve options. The places of options are those of the process, so these tests run
//! apart from the others.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use flow::tun_metadata::Wide;
use flow::{OptionsError, TlvError, TlvMapping, TlvTable, Tunnel};

const A: TlvMapping = TlvMapping { class: 0x102, kind: 0x80, bytes: 4 };
const B: TlvMapping = TlvMapping { class: 0xffff, kind: 1, bytes: 8 };

// Places are those of the process: each test has fields of its own.

#[test]
fn options_are_read_and_written() {
    let mut table = TlvTable::default();
    table.add(40, A).unwrap();
    table.add(41, B).unwrap();
    let mut raw = Tunnel::NONE;
    raw.id.set(7);
    let tlvs =
        [1, 2, 0x80, 1, 0xa, 0xb, 0xc, 0xd, 0, 9, 3, 0, 0xff, 0xff, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8];
    assert!(raw.set_raw_options(&tlvs));
    let decoded = table.decode(&raw).unwrap();
    assert_eq!(decoded.id.get(), 7);
    assert_eq!(decoded.present.get(), 3 << 40);
    assert_eq!(decoded.option(40), Wide::from_u128(0x0a0b_0c0d));
    assert_eq!(decoded.option(41), Wide::from_u128(0x0102_0304_0506_0708));
    // The option that no field stands for is left out.
    let (encoded, critical) = table.encode(&decoded);
    assert_eq!(encoded, [&tlvs[..8], &tlvs[12..]].concat());
    assert!(critical);

    let mut mask = Tunnel::NONE;
    mask.set_option(41, &Wide::from_u128(0xff00));
    mask.set_present(41, true);
    let mask = table.encode_mask(&mask, &raw);
    assert_eq!(mask.options_len, 0xff);
    let header = [0xff, 0xff, 0xff, 0x1f];
    let expected = [&header[..], &[0; 4], &header, &header, &[0, 0, 0, 0, 0, 0, 0xff, 0]].concat();
    assert_eq!(mask.options[..tlvs.len()], expected);

    // The absence of options is exact, too.
    let mask = table.encode_mask(&Tunnel::NONE, &Tunnel::NONE);
    assert_eq!((mask.options_len, mask.present.get()), (0xff, 0));
}

#[test]
fn options_that_are_not_valid_are_refused() {
    let mut table = TlvTable::default();
    table.add(42, TlvMapping { class: 1, kind: 1, bytes: 4 }).unwrap();
    for (tlvs, error) in [
        (&[0, 1, 1][..], OptionsError::CutOff),
        (&[0, 1, 1, 1, 0, 0, 0], OptionsError::CutOff),
        (&[0, 1, 1, 0], OptionsError::Length),
        (&[0, 1, 0x81, 0], OptionsError::Critical),
    ] {
        let mut raw = Tunnel::NONE;
        assert!(raw.set_raw_options(tlvs));
        assert_eq!(table.decode(&raw), Err(error), "{tlvs:?}");
        // Another bridge may have found them to be valid.
        assert_eq!(table.decode_known(&raw), Tunnel::NONE, "{tlvs:?}");
    }
}

#[test]
fn mappings_that_do_not_fit_are_refused() {
    let mut table = TlvTable::default();
    let option = |kind, bytes| TlvMapping { class: 1, kind, bytes };
    table.add(43, option(1, 0)).unwrap();
    table.remove(43);
    assert_eq!(table.add(43, option(1, 6)), Err(TlvError::Invalid));
    assert_eq!(table.add(43, option(1, 128)), Err(TlvError::Invalid));
    assert_eq!(table.add(64, option(1, 4)), Err(TlvError::Invalid));
    table.add(43, option(1, 4)).unwrap();
    assert_eq!(table.add(43, option(2, 4)), Err(TlvError::AlreadyMapped(43)));
    assert_eq!(table.add(44, option(1, 4)), Err(TlvError::Duplicate { class: 1, kind: 1 }));
    table.remove(43);
    assert_eq!(table.fields(), 0);
    table.add(44, option(1, 4)).unwrap();
}
