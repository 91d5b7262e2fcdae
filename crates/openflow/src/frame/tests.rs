// SPDX-License-Identifier: Apache-2.0

use super::*;

const ECHO: [u8; 10] = [4, 2, 0, 10, 0, 0, 0, 1, 7, 8];

#[test]
fn messages_come_out_whole_whatever_the_pieces() {
    let mut stream = Vec::new();
    for _ in 0..5 {
        stream.extend_from_slice(&ECHO);
    }
    for piece in 1..=stream.len() {
        let mut frames = Frames::new();
        let mut got = Vec::new();
        for bytes in stream.chunks(piece) {
            frames.push(bytes);
            while let Some(message) = frames.next_message().expect("lengths are right") {
                got.push(message.to_vec());
            }
        }
        assert_eq!(got, vec![ECHO.to_vec(); 5], "pieces of {piece}");
        assert_eq!(frames.pending(), 0);
    }
}

#[test]
fn a_length_below_a_header_ends_the_stream() {
    for length in 0..8u8 {
        let mut frames = Frames::new();
        frames.push(&[4, 2, 0, length]);
        assert_eq!(frames.next_message(), Err(FrameError { length: u16::from(length) }));
        frames.push(&ECHO);
        assert!(frames.next_message().is_err());
    }
}

#[test]
fn split_stops_at_what_is_not_whole() {
    let mut bytes = ECHO.to_vec();
    bytes.extend_from_slice(&ECHO);
    bytes.extend_from_slice(&ECHO[..9]);
    assert_eq!(split(&bytes).count(), 2);
    assert_eq!(split(&[4, 2, 0, 3]).count(), 0);
}

fn versions(list: &[Version]) -> Versions {
    list.iter().copied().collect()
}

#[test]
fn hello_has_a_bitmap_only_when_it_says_more_than_the_header() {
    assert_eq!(hello(versions(&[Version::V10]), 1), [1, 0, 0, 8, 0, 0, 0, 1]);
    assert_eq!(
        hello(versions(&[Version::V10, Version::V13]), 2),
        [4, 0, 0, 16, 0, 0, 0, 2, 0, 1, 0, 8, 0, 0, 0, 0x12]
    );
    assert_eq!(hello(Versions::KNOWN, 1), [6, 0, 0, 8, 0, 0, 0, 1]);
}

#[test]
fn the_newest_common_version_is_agreed_on() {
    let ours = versions(&[Version::V10, Version::V13, Version::V14]);
    for (peer, agreed) in [
        (vec![Version::V10], Version::V10),
        (vec![Version::V10, Version::V13], Version::V13),
        (vec![Version::V14, Version::V15], Version::V14),
    ] {
        assert_eq!(negotiate(ours, &hello(versions(&peer), 1)), Negotiation::Agreed(agreed));
    }
    // Without a bitmap: every version up to the header's, also an unknown one.
    assert_eq!(negotiate(ours, &[9, 0, 0, 8, 0, 0, 0, 1]), Negotiation::Agreed(Version::V14));
    // With unknown elements.
    let strange = [4, 0, 0, 24, 0, 0, 0, 1, 0, 9, 0, 6, 1, 2, 0, 0, 0, 1, 0, 8, 0, 0, 0, 2];
    assert_eq!(negotiate(ours, &strange), Negotiation::Agreed(Version::V10));
}

#[test]
fn no_common_version() {
    let answer = negotiate(versions(&[Version::V13]), &hello(versions(&[Version::V10]), 5));
    let Negotiation::Failed { reply, reason } = answer else { panic!("{answer:?}") };
    assert_eq!(&reply[..12], &[1, 1, 0, reply.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        std::str::from_utf8(&reply[12..]),
        Ok("We support version 0x04, you support version 0x01, no common versions.")
    );
    assert_eq!(reason, "we support version 0x04 but peer supports version 0x01");
}

#[test]
fn incompatible_versions_get_the_bytes_that_ovs_sends() {
    let ours = versions(&[Version::V13, Version::V15]);
    for (peer, text) in [
        (&[2u8, 0, 0, 8, 0, 0, 0, 5][..], "version 0x02 and earlier"),
        (&[5, 0, 0, 16, 0, 0, 0, 5, 0, 1, 0, 8, 0, 0, 0, 0x2c], "versions 0x02, 0x03, 0x05"),
        (&[0xff, 0, 0, 16, 0, 0, 0, 5, 0, 1, 0, 8, 0, 0, 0, 0x0c], "versions 0x02, 0x03"),
    ] {
        let answer = negotiate(ours, peer);
        let Negotiation::Failed { reply, .. } = answer else { panic!("{answer:?}") };
        let expected =
            format!("We support versions 0x04, 0x06, you support {text}, no common versions.");
        assert_eq!(String::from_utf8_lossy(&reply[12..]), expected);
        assert_eq!(reply[0], peer[0].min(if peer[0] == 0xff { 3 } else { 5 }));
    }
}

#[test]
fn something_else_than_a_hello() {
    assert!(matches!(
        negotiate(Versions::KNOWN, &ECHO),
        Negotiation::NoHello { reason } if reason.contains("type 2")
    ));
    assert!(matches!(negotiate(Versions::KNOWN, &[]), Negotiation::NoHello { .. }));
}
