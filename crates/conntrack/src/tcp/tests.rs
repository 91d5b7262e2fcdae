// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::conn::Direction::{Original, Reply};
use proptest::prelude::*;

fn segment(flags: u16, seq: u32, ack: u32, data_len: u32) -> TcpSegment {
    TcpSegment { seq, ack, flags, window: 1000, data_len, window_shift: None }
}

/// A connection after its handshake: the client's next number is 101, the server's 501.
fn established(scale: Option<u8>) -> TcpConn {
    let with_scale = |segment| TcpSegment { window_shift: scale, ..segment };
    let mut conn = TcpConn::begin(&with_scale(segment(SYN, 100, 0, 0)));
    let on = SequenceCheck::On;
    let reply = conn.update(&with_scale(segment(SYN | ACK, 500, 101, 0)), Reply, on);
    assert_eq!((reply.update, reply.timeout), (Update::Established, Some(Timeout::TcpSynRecv)));
    let done = conn.update(&segment(ACK, 101, 501, 0), Original, on);
    assert_eq!((done.update, done.timeout), (Update::Established, Some(Timeout::TcpEstablished)));
    assert!(conn.is_assured());
    conn
}

fn update(
    conn: &mut TcpConn,
    segment: TcpSegment,
    direction: Direction,
) -> (Update, Option<Timeout>) {
    let result = conn.update(&segment, direction, SequenceCheck::On);
    (result.update, result.timeout)
}

#[test]
fn open_and_close() {
    let mut conn = established(None);
    assert_eq!(conn.state(), TcpState::Established);
    let first = update(&mut conn, segment(FIN | ACK, 101, 501, 0), Original);
    assert_eq!(first, (Update::Established, Some(Timeout::TcpFinWait)));
    let second = update(&mut conn, segment(FIN | ACK, 501, 102, 0), Reply);
    assert_eq!(second, (Update::Established, Some(Timeout::TcpTimeWait)));
    let last = update(&mut conn, segment(ACK, 102, 502, 0), Original);
    assert_eq!(last, (Update::Established, Some(Timeout::TcpClose)));
    assert_eq!(conn.peers.map(|peer| peer.state), [TcpState::FinWait2; 2]);
    // Then a SYN begins another connection.
    let again = update(&mut conn, segment(SYN, 9000, 0, 0), Original);
    assert_eq!(again.0, Update::Another);
}

#[test]
fn a_resent_syn_is_still_new() {
    let mut conn = TcpConn::begin(&segment(SYN, 100, 0, 0));
    let again = update(&mut conn, segment(SYN, 100, 0, 0), Original);
    assert_eq!(again, (Update::StillNew, Some(Timeout::TcpSynSent)));
    assert!(!conn.is_assured());
}

#[test]
fn segments_outside_the_window_are_invalid() {
    let on = SequenceCheck::On;
    let mut conn = established(None);
    let before = conn;
    for bad in [
        segment(ACK, 5000, 501, 10),                      // past the window
        segment(ACK, 101u32.wrapping_sub(2000), 501, 10), // more than one window back
        segment(ACK, 101, 501 + 200_000, 10),             // acknowledges data that was not sent
        segment(RST, 300, 0, 0),                          // not the next number
    ] {
        let result = conn.update(&bad, Original, on);
        assert_eq!((result.update, result.in_window), (Update::Invalid, false), "{bad:?}");
        assert_eq!(conn, before);
        let mut lax = before;
        let result = lax.update(&bad, Original, SequenceCheck::Off);
        assert_eq!((result.update, result.in_window), (Update::Established, false));
    }
    assert_eq!(update(&mut conn, segment(ACK, 101, 501, 900), Original).0, Update::Established);
    let reset = update(&mut conn, segment(RST, 1001, 0, 0), Original);
    assert_eq!(reset, (Update::Established, Some(Timeout::TcpClose)));
    assert_eq!(conn.state(), TcpState::TimeWait);
}

#[test]
fn the_first_segment_of_a_peer_leaves_its_numbers_even_when_invalid() {
    let mut conn = TcpConn::begin(&segment(SYN, 100, 0, 0));
    conn.peers[1].allowed = 0x4000_0000;
    // It acknowledges data that was not sent.
    let far = conn.update(&segment(ACK, 60_000, 900_000, 0), Reply, SequenceCheck::On);
    assert_eq!((far.update, far.in_window), (Update::Invalid, false));
    assert_eq!((conn.peers[1].state, conn.peers[1].sent), (TcpState::SynSent, 60_000));
}

#[test]
fn scaled_windows_allow_more() {
    let far = segment(ACK, 101 + 60_000, 501, 10);
    let mut scaled = established(Some(7));
    // The server's next segment announces 1000 << 7 bytes.
    assert_eq!(update(&mut scaled, segment(ACK, 501, 101, 0), Reply).0, Update::Established);
    assert_eq!(update(&mut scaled, far, Original).0, Update::Established);
    let mut plain = established(None);
    assert_eq!(update(&mut plain, segment(ACK, 501, 101, 0), Reply).0, Update::Established);
    assert_eq!(update(&mut plain, far, Original).0, Update::Invalid);
}

#[test]
fn picked_up_connections_are_liberal() {
    let mut conn = TcpConn::begin(&segment(ACK, 7000, 9000, 100));
    assert_eq!(conn.peers[0].scale, Scale::Unknown);
    assert_eq!(update(&mut conn, segment(ACK, 9000, 7100, 1000), Reply).0, Update::Established);
    assert_eq!(update(&mut conn, segment(ACK, 7100, 10_000, 500), Original).0, Update::Established);
    assert_eq!(conn.state(), TcpState::Established);
}

#[test]
fn flags_decide_what_may_begin() {
    for flags in [SYN, ACK, ACK | PSH, RST, FIN | ACK, RST | ACK] {
        assert!(may_begin(&segment(flags, 1, 1, 0)), "{flags:#x}");
    }
    for flags in [0, SYN | ACK, SYN | FIN, SYN | RST, FIN, PSH, URG | RST] {
        assert!(!may_begin(&segment(flags, 1, 1, 0)), "{flags:#x}");
    }
    let mut conn = established(None);
    assert_eq!(update(&mut conn, segment(FIN, 101, 0, 0), Original).0, Update::Invalid);
}

proptest! {
    #[test]
    fn words_keep_the_state(words in any::<[u64; 3]>()) {
        let state = TcpConn::from_words(words);
        prop_assert_eq!(TcpConn::from_words(state.to_words()), state);
    }

    #[test]
    fn any_segments_of_any_state(
        words in any::<[u64; 3]>(),
        segments in proptest::collection::vec(
            (any::<u32>(), any::<u32>(), 0u16..64, any::<u16>(), 0u32..70_000,
             proptest::option::of(0u8..=14), any::<bool>(), any::<bool>()), 1..20),
    ) {
        let mut conn = TcpConn::from_words(words);
        for (seq, ack, flags, window, data_len, window_shift, reply, on) in segments {
            let segment = TcpSegment { seq, ack, flags, window, data_len, window_shift };
            let check = if on { SequenceCheck::On } else { SequenceCheck::Off };
            let before = conn;
            let result =
                conn.update(&segment, if reply { Reply } else { Original }, check);
            let sender = before.peers[usize::from(reply)];
            let is_first = sender.state < TcpState::SynSent;
            match result.update {
                Update::Another => prop_assert_eq!(conn, before),
                Update::Invalid if !is_first => prop_assert_eq!(conn, before),
                _ => {}
            }
        }
    }
}
