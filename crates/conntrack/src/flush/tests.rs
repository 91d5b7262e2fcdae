// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::tracker::Request;
use crate::tracker::tests::{Bed, commit, frame, udp};
use proptest::prelude::*;

fn flush(bed: &Bed, flush: &Flush) -> Result<(), NotFound> {
    let mut worker = bed.tracker.table().worker();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = bed.tracker.flush(&worker.pin(), flush, at, bed.now)?;
    }
    Ok(())
}

/// Three connections in zones 1, 2 and 3 with marks 1, 2 and 3; and a ping in zone 0.
fn bed() -> Bed {
    let bed = Bed::new();
    for zone in 1..4u16 {
        let mark = Some((zone.into(), u32::MAX));
        let label = Some((u128::from(zone) << 64, u128::MAX));
        bed.ct(udp(1, 2, (zone, 2), b""), &Request { mark, label, ..commit(zone) });
    }
    bed.ct(frame(1, 2).icmp(8, 0, 0x0007_0001).finish().split_off(14), &commit(0));
    bed
}

fn conns(bed: &Bed) -> u64 {
    bed.tracker.table().counts().conns()
}

fn parse(text: &str) -> TupleFilter {
    TupleFilter::parse(text).unwrap()
}

#[test]
fn filters_of_all_kinds() {
    for (wanted, left) in [
        (Flush::default(), 0),
        (Flush { zone: Some(2), ..Flush::default() }, 3),
        (Flush { zone: Some(9), ..Flush::default() }, 4),
        (Flush { mark: Some((1, 1)), ..Flush::default() }, 2),
        (Flush { label: Some((2 << 64, u128::MAX)), ..Flush::default() }, 3),
        (Flush { original: parse("ct_nw_src=10.1.1.1"), ..Flush::default() }, 0),
        (Flush { original: parse("ct_nw_proto=17,ct_tp_src=3"), ..Flush::default() }, 3),
        (Flush { reply: parse("ct_nw_proto=17,ct_tp_dst=3"), ..Flush::default() }, 3),
        (Flush { original: parse("ct_nw_proto=1,icmp_id=7"), ..Flush::default() }, 3),
        (Flush { original: parse("ct_nw_proto=1,icmp_id=8"), ..Flush::default() }, 4),
    ] {
        let bed = bed();
        assert_eq!(conns(&bed), 4);
        assert_eq!(flush(&bed, &wanted), Ok(()));
        assert_eq!(conns(&bed), left, "{wanted:?}");
    }
}

#[test]
fn a_whole_tuple_is_looked_up_in_either_direction() {
    let bed = bed();
    let there =
        parse("ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2");
    let back =
        parse("ct_nw_src=10.1.1.2,ct_nw_dst=10.1.1.1,ct_nw_proto=17,ct_tp_src=2,ct_tp_dst=2");
    // Without a zone it is zone 0.
    assert_eq!(flush(&bed, &Flush { original: there, ..Flush::default() }), Err(NotFound));
    assert_eq!(flush(&bed, &Flush { zone: Some(1), original: there, ..Flush::default() }), Ok(()));
    assert_eq!(flush(&bed, &Flush { zone: Some(2), original: back, ..Flush::default() }), Ok(()));
    let ping = parse(
        "ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=1,icmp_type=8,icmp_code=0,icmp_id=7",
    );
    assert_eq!(flush(&bed, &Flush { original: ping, ..Flush::default() }), Ok(()));
    assert_eq!(flush(&bed, &Flush { original: ping, ..Flush::default() }), Err(NotFound));
    assert_eq!(conns(&bed), 1);
}

#[test]
fn errors_have_the_texts_of_open_vswitch() {
    for (text, error) in [
        ("ct_tp_src=1", "port is set without protocol"),
        ("ct_nw_foo=1", "invalid conntrack tuple field: ct_nw_foo"),
        ("ct_nw_proto=", "field ct_nw_proto missing value"),
        ("ct_nw_src=x", "failed to parse field ct_nw_src"),
        ("ct_nw_proto=17,icmp_id=3", "invalid L4 fields"),
        ("ct_nw_src=10.1.1.1,ct_ipv6_src=fc00::1", "the L3 protocol does not match fc00::1"),
        ("ct_nw_proto=256", "failed to parse field ct_nw_proto"),
    ] {
        assert_eq!(TupleFilter::parse(text).unwrap_err().to_string(), error, "{text}");
    }
}

#[test]
fn words_of_a_command() {
    let parsed = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        Flush::parse(&words).map_err(|error| error.to_string())
    };
    assert_eq!(parsed(""), Ok(Flush::default()));
    let original = parse("ct_nw_src=10.1.1.1,ct_nw_proto=17");
    let reply = parse("ct_nw_proto=17,ct_tp_dst=3");
    assert_eq!(
        parsed("zone=5 mark=0x11/0xff labels=3 ct_nw_src=10.1.1.1,ct_nw_proto=17 ct_tp_dst=3"),
        Ok(Flush {
            zone: Some(5),
            mark: Some((0x11, 0xff)),
            label: Some((3, u128::MAX)),
            original,
            reply
        })
    );
    assert_eq!(parsed("mark=7"), Ok(Flush { mark: Some((7, u32::MAX)), ..Flush::default() }));
    assert_eq!(parsed("mark=7/0 labels=1/0"), Ok(Flush::default()));
    for (text, error) in [
        ("zone=x", "failed to parse zone"),
        ("zone=", "failed to parse zone"),
        ("zone=65536", "failed to parse zone"),
        ("mark=x", "failed to parse mark"),
        ("mark=1/0x100000000", "failed to parse mark"),
        ("zone=1 labels=1/", "failed to parse labels"),
        ("zone=3 zone=3", "invalid conntrack tuple field: zone"),
        ("foo zone=3", "field foo missing value"),
        ("ct_nw_src=1.1.1.1 ct_nw_src=1.1.1.1 x", "invalid arguments"),
        ("ct_nw_src=1.1.1.1 ct_ipv6_src=::1", "the L3 protocol does not match ::1"),
        ("ct_nw_src=1.1.1.1 ct_tp_src=1", "port is set without protocol"),
    ] {
        assert_eq!(parsed(text), Err(error.to_owned()), "{text}");
    }
}

proptest! {
    #[test]
    fn any_words(words in proptest::collection::vec("(zone|mark|labels|x)?=?[0-9a-fx/]{0,9}", 0..5)) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _ = Flush::parse(&words);
    }

    #[test]
    fn any_text(text in "[a-z0-9_=,.: x]{0,60}|(ct_nw_src|ct_tp_src|icmp_id|ct_nw_proto)=[0-9.:a-fx]{0,8}") {
        let _ = TupleFilter::parse(&text);
    }
}
