// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

/// Two ends of a link that is checked every 10 ms.
struct Link {
    ends: [Session; 2],
    now: i64,
    /// Packets of end 0 that went over the link.
    sent: usize,
    is_cut: bool,
}

impl Link {
    fn new(a: Settings, b: Settings) -> Link {
        let end = |settings, id| Session::new(settings, id, Millis(0));
        Link { ends: [end(a, 1), end(b, 2)], now: 0, sent: 0, is_cut: false }
    }

    fn run(&mut self, ms: i64) {
        for _ in 0..ms / 10 {
            self.now += 10;
            for from in 0..2 {
                let mut packet = self.ends[from].run(Millis(self.now), 1 << 31);
                let mut to = 1 - from;
                while let Some(p) = packet.take().filter(|_| !self.is_cut) {
                    self.sent += usize::from(to == 1);
                    let received = ControlPacket::decode(&p.encode()).expect("it is valid");
                    packet = self.ends[to].receive(&received, Millis(self.now));
                    to = 1 - to;
                }
            }
        }
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state, self.ends[1].state]
    }

    fn status(&self, end: usize) -> Status {
        self.ends[end].status(Millis(self.now))
    }
}

fn settings(min_rx: u32, min_tx: u32) -> Settings {
    Settings { min_rx, min_tx, ..Settings::default() }
}

#[test]
fn two_ends_come_up_and_notice_a_cut() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    assert!(!link.status(0).is_forwarding);
    link.run(4_000);
    assert_eq!(link.states(), [State::Up; 2]);
    let status = link.status(0);
    assert_eq!((status.min_tx, status.tx_interval, status.rx_interval), (100, 100, 100));
    assert_eq!((status.flags, status.flaps), (Flags(0), 1), "the poll is over");
    assert_eq!((status.remote.discriminator, status.remote.multiplier), (2, 3));
    let before = link.sent;
    link.run(10_000);
    assert!((100..=140).contains(&(link.sent - before)), "{}", link.sent - before);
    link.is_cut = true;
    link.run(200);
    assert_eq!(link.states(), [State::Up; 2], "three packets may be missing");
    link.run(150);
    assert_eq!(link.states(), [State::Down; 2]);
    let status = link.status(1);
    assert_eq!(status.diagnostic, Diagnostic::EXPIRED);
    assert_eq!((status.min_tx, status.flaps, status.is_forwarding), (1000, 2, false));
    link.is_cut = false;
    link.run(4_000);
    assert_eq!(link.states(), [State::Up; 2]);
}

#[test]
fn the_slower_end_sets_the_pace() {
    let mut link = Link::new(settings(100, 100), settings(500, 300));
    link.run(6_000);
    assert_eq!(link.states(), [State::Up; 2]);
    let status = link.status(0);
    assert_eq!((status.tx_interval, status.rx_interval), (500, 300));
    let status = link.status(1);
    assert_eq!((status.tx_interval, status.rx_interval), (300, 500));
}

#[test]
fn a_changed_interval_is_polled() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    let now = Millis(link.now);
    link.ends[0].configure(settings(1000, 100), now);
    assert!(link.ends[0].flags.contains(Flags::POLL));
    assert_eq!(link.ends[0].min_rx, 1000, "a longer wait holds at once");
    link.run(1_000);
    assert!(!link.ends[0].flags.contains(Flags::POLL));
    assert_eq!(link.status(1).tx_interval, 1000);
    link.run(5_000);
    assert_eq!(link.states(), [State::Up; 2]);
    let now = Millis(link.now);
    link.ends[0].configure(settings(100, 100), now);
    assert_eq!(link.ends[0].min_rx, 1000, "until the other end knows");
    link.run(500);
    assert_eq!((link.ends[0].min_rx, link.status(1).tx_interval), (100, 100));
    assert_eq!(link.status(0).flaps, 1);
}

#[test]
fn a_neighbour_that_goes_down_is_followed() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    let end = link.ends[1].clone();
    link.ends[1] = Session::new(settings(100, 100), 9, Millis(link.now));
    // The new session knows no discriminator: the old one goes down with it, and up again.
    assert_ne!(end.discriminator, link.ends[1].discriminator);
    link.run(5_000);
    assert_eq!((link.states(), link.status(0).flaps), ([State::Up; 2], 3));
}

#[test]
fn a_joined_path_that_is_down_stops_the_other_end() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    let joined = Settings { is_joined_path_down: true, ..settings(100, 100) };
    link.ends[0].configure(joined, Millis(link.now));
    link.run(500);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!([link.status(0).is_forwarding, link.status(1).is_forwarding], [true, false]);
    assert_eq!(link.status(1).remote.diagnostic, Diagnostic::CONCATENATED_PATH_DOWN);
    link.ends[0].configure(settings(100, 100), Millis(link.now));
    link.run(500);
    assert!(link.status(1).is_forwarding);
}

#[test]
fn received_data_keeps_a_port_forwarding() {
    let receiving = Settings { forwards_if_receiving: true, ..settings(100, 100) };
    let mut link = Link::new(receiving, settings(100, 100));
    link.run(4_000);
    link.is_cut = true;
    for packets in 0..10 {
        let now = Millis(link.now);
        link.ends[0].note_received(packets, now);
        link.run(100);
    }
    assert_eq!(link.states(), [State::Down; 2]);
    assert_eq!([link.status(0).is_forwarding, link.status(1).is_forwarding], [true, false]);
    let idle = Millis(link.now + 3_000);
    assert!(!link.ends[0].is_forwarding(idle));
}

#[test]
fn forwarding_can_be_forced() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    link.ends[0].force_forwarding(Some(false), Millis(link.now));
    assert!(!link.status(0).is_forwarding);
    assert_eq!(link.status(0).flaps, 1, "as in Open vSwitch");
    link.ends[0].force_forwarding(None, Millis(link.now));
    assert!(link.status(0).is_forwarding);
}

#[test]
fn packets_are_spread() {
    let mut session = Session::new(settings(100, 1000), 1, Millis(0));
    assert_eq!((session.jittered(0), session.jittered(u32::MAX)), (750, 999));
    session.settings.multiplier = 1;
    assert_eq!((session.jittered(0), session.jittered(u32::MAX)), (750, 899));
    assert_eq!(session.deadline(), Millis(0));
    assert!(session.run(Millis(0), 0).is_some());
    assert!(session.run(Millis(749), 0).is_none());
    assert!(session.run(Millis(750), 0).is_some());
}

proptest! {
    /// Whatever is received, a session stays within its bounds.
    #[test]
    fn any_packets(packets in prop::collection::vec((any::<[u8; 24]>(), 0i64..5000), 0..50)) {
        let mut session = Session::new(settings(100, 100), 5, Millis(0));
        let mut now = 0;
        for (mut bytes, wait) in packets {
            (bytes[0], bytes[3]) = (0x20 | bytes[0] & 0x1f, 24);
            now += wait;
            if let Ok(packet) = ControlPacket::decode(&bytes) {
                session.receive(&packet, Millis(now));
            }
            session.run(Millis(now), now as u32);
            let status = session.status(Millis(now));
            prop_assert!(status.next_tx > Millis(now) || status.remote.min_rx == 0);
            prop_assert!(status.state != State::Up || status.detect > Millis(now));
            prop_assert!(status.state == State::Up || status.min_tx >= 1000);
        }
    }
}
