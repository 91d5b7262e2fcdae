// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

/// Two ends of a link that is checked every 10 ms.
struct Link {
    ends: [Session; 2],
    now: i64,
    /// Packets of end 0 that went over the link.
    sent: usize,
    /// Packets of any kind that end 0 has received.
    received: u64,
    is_cut: bool,
}

impl Link {
    fn new(a: Settings, b: Settings) -> Link {
        let end = |settings, id| Session::new("p", &settings, id, Moment::default());
        Link { ends: [end(a, 1), end(b, 2)], now: 0, sent: 0, received: 0, is_cut: false }
    }

    fn at(&self) -> Moment {
        Moment { now: Millis(self.now), received: self.received }
    }

    fn run(&mut self, ms: i64) {
        for _ in 0..ms / 10 {
            self.now += 10;
            for from in [0, 1, 0] {
                while self.ends[from].deadline() <= Millis(self.now) {
                    let at = self.at();
                    let Some(packet) = self.ends[from].run(at).filter(|_| !self.is_cut) else {
                        continue;
                    };
                    self.sent += usize::from(from == 0);
                    self.received += u64::from(from == 1);
                    let at = self.at();
                    self.ends[1 - from].receive(&packet.encode(), TTL, at);
                }
            }
        }
    }

    fn configure(&mut self, end: usize, settings: &Settings) {
        let at = self.at();
        self.ends[end].configure(settings, at);
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state, self.ends[1].state]
    }

    fn status(&mut self, end: usize) -> Status {
        let now = Millis(self.now);
        self.ends[end].status(now)
    }

    /// The value after `name` in the text of `bfd/show` of an end.
    fn shown(&mut self, end: usize, name: &str) -> String {
        let text = self.ends[end].details(Millis(self.now));
        let line = text.lines().find_map(|l| l.trim().strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
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
    for name in ["Local Minimum TX Interval", "Remote Minimum RX Interval"] {
        assert_eq!(link.shown(0, name), "100ms");
    }
    assert_eq!(link.shown(0, "TX Interval"), "Approx 100ms");
    assert_eq!((link.ends[0].flags, link.status(0).flaps), (Flags(0), 1), "no poll is left");
    let remote = link.ends[0].remote;
    assert_eq!((remote.discriminator, remote.multiplier), (2, 3));
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
    assert_eq!((status.flaps, status.is_forwarding), (2, false));
    assert_eq!(link.shown(1, "Local Minimum TX Interval"), "1000ms");
    link.is_cut = false;
    link.run(4_000);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!(link.status(1).diagnostic, Diagnostic::EXPIRED, "it stays, as in Open vSwitch");
}

#[test]
fn the_slower_end_sets_the_pace() {
    let mut link = Link::new(settings(100, 100), settings(500, 300));
    link.run(6_000);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!(link.shown(0, "TX Interval"), "Approx 500ms");
    assert_eq!(link.shown(0, "RX Interval"), "Approx 300ms");
    assert_eq!(link.shown(1, "TX Interval"), "Approx 300ms");
    assert_eq!(link.shown(1, "RX Interval"), "Approx 500ms");
}

#[test]
fn a_changed_interval_is_polled() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    link.configure(0, &settings(1000, 100));
    assert!(link.ends[0].is_polling());
    assert_eq!(link.ends[0].min_rx, 1000, "a longer wait holds at once");
    link.run(1_000);
    assert!(!link.ends[0].is_polling());
    assert_eq!(link.shown(1, "TX Interval"), "Approx 1000ms");
    link.run(5_000);
    assert_eq!(link.states(), [State::Up; 2]);
    link.configure(0, &settings(100, 100));
    assert_eq!(link.ends[0].min_rx, 1000, "until the other end knows");
    link.run(500);
    assert_eq!(link.ends[0].min_rx, 100);
    assert_eq!(link.shown(1, "TX Interval"), "Approx 100ms");
    assert_eq!(link.status(0).flaps, 1);
    // Polls of both ends at once both end.
    link.configure(0, &settings(200, 300));
    link.configure(1, &settings(400, 500));
    link.run(3_000);
    let intervals = link.ends.each_ref().map(|end| (end.min_rx, end.min_tx, end.flags.0));
    assert_eq!(intervals, [(200, 300, 0), (400, 500, 0)]);
}

#[test]
fn a_neighbour_that_starts_again_is_followed() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    let at = link.at();
    link.ends[1] = Session::new("p", &settings(100, 100), 9, at);
    // The new session knows no discriminator: the old one goes down with it, and up again.
    link.run(5_000);
    assert_eq!((link.states(), link.status(0).flaps), ([State::Up; 2], 3));
    assert_eq!(link.status(0).diagnostic, Diagnostic::NEIGHBOUR_DOWN);
}

#[test]
fn a_joined_path_that_is_down_stops_the_other_end() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    let joined = Settings { is_joined_path_down: true, ..settings(100, 100) };
    link.configure(0, &joined);
    link.run(500);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!([link.status(0).is_forwarding, link.status(1).is_forwarding], [true, false]);
    assert_eq!(link.status(1).remote_diagnostic, Diagnostic::CONCATENATED_PATH_DOWN);
    link.configure(0, &settings(100, 100));
    link.run(500);
    assert!(link.status(1).is_forwarding);
}

#[test]
fn received_packets_keep_a_port_forwarding() {
    let receiving = Settings { forwards_if_receiving: true, ..settings(100, 100) };
    let mut link = Link::new(receiving.clone(), settings(100, 100));
    link.run(4_000);
    link.is_cut = true;
    for _ in 0..80 {
        let now = Millis(link.now);
        link.ends[0].note_received(now);
        link.run(100);
    }
    assert_eq!(link.states(), [State::Down; 2]);
    assert_eq!([link.status(0).is_forwarding, link.status(1).is_forwarding], [true, false]);
    assert_eq!(link.status(0).flaps, 1);
    link.run(1_800);
    assert!(link.status(0).is_forwarding);
    link.run(200);
    assert!(!link.status(0).is_forwarding, "2 s without a packet");
    for _ in 0..5 {
        let now = Millis(link.now);
        link.ends[0].note_received(now);
        link.run(100);
    }
    assert!(!link.status(0).is_forwarding, "no control packet in 100 intervals");
    // Packets alone never bring a port up.
    let mut alone = Session::new("p", &receiving, 1, Moment::default());
    alone.note_received(Millis(10));
    assert!(!alone.is_forwarding(Millis(10)));
}

#[test]
fn an_idle_port_asks_for_fewer_packets() {
    let decaying = Settings { decay_min_rx: 3000, ..settings(300, 300) };
    let mut link = Link::new(decaying.clone(), settings(500, 500));
    link.run(2_000);
    assert_eq!(link.shown(0, "RX Interval"), "Approx 500ms");
    link.run(8_000);
    assert_eq!(link.shown(0, "RX Interval"), "Approx 3000ms");
    for _ in 0..60 {
        link.run(100);
        link.received += 10;
    }
    assert_eq!(link.shown(0, "RX Interval"), "Approx 500ms", "there is traffic");
    link.run(10_000);
    assert_eq!(link.shown(0, "RX Interval"), "Approx 3000ms");
    link.configure(0, &Settings { decay_min_rx: 0, ..decaying.clone() });
    link.run(4_000);
    assert_eq!(link.shown(0, "RX Interval"), "Approx 500ms");
    link.configure(0, &Settings { decay_min_rx: 200, ..decaying });
    assert!(!link.ends[0].counts_received());
    let lines = link.ends[0].take_lines();
    let refused = "p: decay_min_rx cannot be less than 300 ms";
    assert!(lines.iter().any(|l| l.level == Level::Warn && l.text == refused), "{lines:?}");
    assert_eq!((link.states(), link.status(0).flaps), ([State::Up; 2], 1));
}

#[test]
fn forwarding_can_be_forced() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    link.ends[0].force_forwarding(Some(false));
    assert!(!link.status(0).is_forwarding && link.ends[0].take_changed());
    assert_eq!(link.status(0).flaps, 1, "as in Open vSwitch");
    link.ends[0].force_forwarding(None);
    assert!(link.status(0).is_forwarding);
}

#[test]
fn packets_from_afar_and_for_others_change_nothing() {
    let mut link = Link::new(settings(100, 100), settings(100, 100));
    link.run(4_000);
    let mut packet = link.ends[1].packet();
    packet.state = State::Down;
    let (before, at) = (link.status(0), link.at());
    link.ends[0].take_lines();
    link.ends[0].receive(&packet.encode(), 254, at);
    assert!(link.ends[0].take_lines().is_empty());
    packet.your_discriminator = 77;
    link.ends[0].receive(&packet.encode(), TTL, at);
    link.ends[0].receive(&packet.encode()[..23], TTL, at);
    assert_eq!(link.status(0), before);
    let lines = link.ends[0].take_lines();
    assert!(lines[0].text.starts_with("p: Incorrect your_disc.\n  vers:1 diag:"), "{lines:?}");
    assert!(lines[1].text.contains("(only 23 bytes long, at least 24 required)"), "{lines:?}");
}

#[test]
fn packets_are_spread() {
    let mut session = Session::new("p", &settings(100, 1000), 1, Moment::default());
    for (multiplier, span) in [(3, 750..=1000), (1, 750..=900)] {
        session.settings.multiplier = multiplier;
        let mut waits = Vec::new();
        for _ in 0..300 {
            session.schedule();
            waits.push(session.next_tx - session.last_tx.0);
        }
        let bounds = [waits.iter().min(), waits.iter().max()].map(|wait| wait.unwrap().0);
        assert_eq!(bounds, [*span.start(), *span.end()]);
    }
    session.next_tx = Millis(0);
    let at = |now| Moment { now: Millis(now), received: 0 };
    assert!(session.run(at(10)).is_some());
    assert!(session.run(at(700)).is_none());
    assert!(session.run(at(1010)).is_some());
}

#[test]
fn texts_are_open_vswitchs() {
    let mut session = Session::new("p", &settings(1000, 100), 0xab, Moment::default());
    let want = "  Forwarding: false\n  Detect Multiplier: 3\n  Concatenated Path Down: false\n  \
                TX Interval: Approx 1000ms\n  RX Interval: Approx 1000ms\n  Detect Time: now -20ms\n  \
                Next TX Time: now -20ms\n  Last TX Time: now -20ms\n\n  Local Flags: none\n  \
                Local Session State: down\n  Local Diagnostic: No Diagnostic\n  \
                Local Discriminator: 0xab\n  Local Minimum TX Interval: 1000ms\n  \
                Local Minimum RX Interval: 1000ms\n\n  Remote Flags: none\n  \
                Remote Session State: down\n  Remote Diagnostic: No Diagnostic\n  \
                Remote Discriminator: 0x0\n  Remote Minimum TX Interval: 0ms\n  \
                Remote Minimum RX Interval: 1ms\n  Remote Detect Multiplier: 0\n";
    assert_eq!(session.details(Millis(20)), want);
    session.enter(State::Init, Diagnostic::NONE, Moment::default());
    let [line] = &session.take_lines()[..] else { panic!("one line") };
    let head =
        "p: BFD state change: down->init \"No Diagnostic\"->\"No Diagnostic\".\n  Forwarding: ";
    assert!(line.text.starts_with(head), "{line:?}");
}

proptest! {
    /// Whatever is received, a session stays within its bounds.
    #[test]
    fn any_packets(packets in prop::collection::vec((any::<[u8; 24]>(), 0i64..5000), 0..50)) {
        let mut session = Session::new("p", &settings(100, 100), 5, Moment::default());
        let mut now = 0;
        for (mut bytes, wait) in packets {
            (bytes[0], bytes[3]) = (0x20 | bytes[0] & 0x1f, 24);
            bytes[8..12].copy_from_slice(&[0, 0, 0, 5]);
            now += wait;
            let at = Moment { now: Millis(now), received: 0 };
            session.receive(&bytes, TTL, at);
            for _ in 0..3 {
                if let Some(packet) = session.run(at) {
                    prop_assert_eq!(packet.check(), Ok(()));
                    prop_assert!(!packet.flags.contains(Flags::POLL | Flags::FINAL));
                }
            }
            prop_assert!(session.deadline() > at.now);
            prop_assert!(session.state == State::Up || session.present_min_tx() >= 1000);
        }
    }
}
