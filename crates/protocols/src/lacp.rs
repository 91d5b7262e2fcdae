// SPDX-License-Identifier: Apache-2.0
//! LACP, the Link Aggregation Control Protocol (IEEE 802.1AX-2014, clause 6), as Open vSwitch has
//! it.
//!
//! [`Lacp`] is the machine of one aggregate. The receive machine of the standard has the states
//! [`Freshness`]; the mux machine is reduced to [`MemberReport::is_attached`]: a member collects and
//! distributes as soon as it is attached. Selection follows Open vSwitch: all members that face the
//! system and key of the best member are attached.

mod pdu;

pub use pdu::{Info, NotLacp, PDU_LEN, Pdu, Received, decode, state};

use clock::Millis;

/// Destination address of LACPDUs: the slow protocols' multicast address (IEEE 802.3, 57A.3).
pub const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x02];
/// Ethernet type of slow protocols (IEEE 802.3, 57A.4).
pub const ETHERTYPE: u16 = 0x8809;

/// Milliseconds between two PDUs for a partner with the short timeout.
const FAST_PERIODIC_MS: i64 = 1_000;
/// Milliseconds between two PDUs for a partner with the long timeout.
const SLOW_PERIODIC_MS: i64 = 30_000;
/// Number of PDUs that a partner may lose before its information is too old.
const LOST_PDUS: i64 = 3;

/// State bits whose change the partner must learn at once (IEEE 802.1AX-2014, 6.4.7).
const ANNOUNCED: u8 = state::ACTIVITY | state::TIMEOUT | state::SYNCHRONIZED | state::AGGREGATION;

/// Settings of an aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// PDUs are sent also without a partner (`lacp=active`).
    pub is_active: bool,
    /// The partner is asked for a PDU each second (`lacp-time=fast`).
    pub is_fast: bool,
    /// Address of this system.
    pub system_id: [u8; 6],
    /// Priority of this system; lower values are preferred.
    pub system_priority: u16,
    /// Members without a partner may be enabled (`lacp-fallback-ab`).
    pub falls_back: bool,
}

/// Settings of a member.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberSettings {
    /// The caller's number of the member, unique in the aggregate.
    pub number: u32,
    /// Name of the interface.
    pub name: String,
    /// Port number in PDUs.
    pub port_id: u16,
    /// Port priority in PDUs; lower values are preferred.
    pub port_priority: u16,
    /// Key in PDUs; 0 for the port number of the aggregate's first member.
    pub key: u16,
}

/// The age of a partner's information (the states of the receive machine, IEEE 802.1AX-2014, 6.4.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The partner sends PDUs in time.
    Current,
    /// The partner's PDUs are late.
    Expired,
    /// There is no partner.
    Defaulted,
}

/// Counters of a member since it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// LACPDUs sent.
    pub sent: u64,
    /// Frames received, of any kind.
    pub received: u64,
    /// Frames received that are neither LACPDUs nor marker PDUs.
    pub bad: u64,
    /// Marker PDUs received.
    pub markers: u64,
    /// Times at which the partner's information expired.
    pub expired: u64,
    /// Times at which the partner was given up.
    pub defaulted: u64,
    /// Changes of the link's carrier.
    pub carrier_changes: u64,
}

/// State of a member, for texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Settings of the member.
    pub settings: MemberSettings,
    /// Age of the partner's information.
    pub freshness: Freshness,
    /// The member belongs to the aggregate.
    pub is_attached: bool,
    /// The member may carry traffic, as far as LACP is concerned.
    pub may_enable: bool,
    /// This end of the link.
    pub actor: Info,
    /// The other end, as last received.
    pub partner: Info,
    /// Counters of the member.
    pub counts: Counts,
}

#[derive(Clone, Debug)]
struct Member {
    settings: MemberSettings,
    has_carrier: bool,
    freshness: Freshness,
    is_attached: bool,
    partner: Info,
    /// This end, as the partner knows it.
    announced: Info,
    /// Time at which the partner's information is too old.
    stale_at: Millis,
    /// Time of the next periodic PDU.
    send_at: Millis,
    counts: Counts,
}

/// The machine of one aggregate. It has no thread and no lock of its own.
#[derive(Clone, Debug, Default)]
pub struct Lacp {
    settings: Settings,
    /// In the order in which they were added. The first one gives the aggregate its key.
    members: Vec<Member>,
    is_negotiated: bool,
    /// Members must be selected again.
    is_outdated: bool,
}

impl Lacp {
    /// Sets the settings and the members; members are added and removed by number. Returns true
    /// when something changed.
    pub fn configure(
        &mut self,
        settings: &Settings,
        members: &[MemberSettings],
        now: Millis,
    ) -> bool {
        let mut is_changed = self.settings != *settings;
        let s = &self.settings;
        self.is_outdated |= (s.system_id, s.system_priority, s.falls_back)
            != (settings.system_id, settings.system_priority, settings.falls_back);
        self.settings = settings.clone();
        let before = self.members.len();
        self.members.retain(|m| members.iter().any(|new| new.number == m.settings.number));
        if self.members.len() != before {
            self.is_outdated = true;
            is_changed = true;
        }
        for new in members {
            is_changed |= self.configure_member(new, now);
        }
        is_changed
    }

    fn configure_member(&mut self, new: &MemberSettings, now: Millis) -> bool {
        let is_live = self.settings.is_active || self.is_negotiated;
        let at = self.members.iter().position(|m| m.settings.number == new.number);
        let is_new = at.is_none();
        let at = at.unwrap_or(self.members.len());
        if is_new {
            self.members.push(Member {
                settings: new.clone(),
                has_carrier: false,
                freshness: Freshness::Defaulted,
                is_attached: false,
                partner: Info::default(),
                announced: Info::default(),
                stale_at: Millis(0),
                send_at: Millis(0),
                counts: Counts::default(),
            });
        }
        let Some(member) = self.members.get_mut(at) else { return false };
        let in_pdus = |m: &MemberSettings| (m.port_id, m.port_priority, m.key);
        let is_announced = is_new || in_pdus(&member.settings) != in_pdus(new);
        let is_changed = is_new || member.settings != *new;
        member.settings = new.clone();
        if is_announced {
            self.is_outdated = true;
            if is_live {
                member.expire(now);
            }
        }
        is_changed
    }

    /// Sets the carrier of a member's link. `was_reset` is true when the carrier was lost, or came
    /// back, since the previous call. A member's first carrier is no reset.
    pub fn set_carrier(&mut self, number: u32, has_carrier: bool, was_reset: bool, now: Millis) {
        let is_active = self.settings.is_active;
        let Some(member) = self.member_mut(number) else { return };
        if was_reset {
            if is_active || member.freshness == Freshness::Current {
                member.expire(now);
            }
            member.counts.carrier_changes += u64::from(member.has_carrier != has_carrier);
        }
        member.has_carrier = has_carrier;
    }

    /// Takes the payload of a frame of type [`ETHERTYPE`] that a member received. Returns true when
    /// [`Lacp::run`] has something to do.
    pub fn receive(&mut self, number: u32, payload: &[u8], now: Millis) -> bool {
        let period = if self.settings.is_fast { FAST_PERIODIC_MS } else { SLOW_PERIODIC_MS };
        let Some(member) = self.member_mut(number) else { return false };
        member.counts.received += 1;
        let pdu = match decode(payload) {
            Ok(Received::Lacp(pdu)) => pdu,
            Ok(Received::Marker) => {
                member.counts.markers += 1;
                return false;
            }
            Err(NotLacp) => {
                member.counts.bad += 1;
                return false;
            }
        };
        if !member.has_carrier {
            return false; // the link's state is not known yet
        }
        let was_current = member.freshness == Freshness::Current;
        member.freshness = Freshness::Current;
        member.stale_at = now + LOST_PDUS * period;
        member.announced = pdu.partner;
        let is_other = member.partner != pdu.actor;
        member.partner = pdu.actor;
        self.is_outdated |= is_other;
        let must_answer = || {
            self.members.iter().any(|m| {
                m.settings.number == number && !is_same_in_pdus(&self.actor(m), &m.announced)
            })
        };
        is_other || !was_current || must_answer()
    }

    /// Does what is due at `now`. Returns the PDUs to send, each with the number of its member.
    pub fn run(&mut self, now: Millis) -> Vec<(u32, [u8; PDU_LEN])> {
        for at in 0..self.members.len() {
            let Some(member) = self.members.get_mut(at).filter(|m| now >= m.stale_at) else {
                continue;
            };
            match member.freshness {
                Freshness::Current => {
                    member.expire(now);
                    member.counts.expired += 1;
                }
                Freshness::Expired => {
                    member.freshness = Freshness::Defaulted;
                    member.partner = Info::default();
                    member.counts.defaulted += 1;
                    self.is_outdated = true;
                }
                Freshness::Defaulted => {}
            }
        }
        if std::mem::take(&mut self.is_outdated) {
            self.select();
        }
        let mut out = Vec::new();
        for at in 0..self.members.len() {
            let Some(member) = self.members.get(at).filter(|m| self.may_send(m)) else { continue };
            let actor = self.actor(member);
            if now < member.send_at && is_same_in_pdus(&actor, &member.announced) {
                continue;
            }
            let Some(member) = self.members.get_mut(at) else { continue };
            member.announced = actor;
            member.counts.sent += 1;
            member.send_at = now + member.period_of_partner();
            let pdu = Pdu { actor, partner: member.partner };
            out.push((member.settings.number, pdu.encode()));
        }
        out
    }

    /// Returns the time at which [`Lacp::run`] must be called next; `None` when only a received PDU
    /// or a changed setting gives it something to do.
    pub fn next_due(&self) -> Option<Millis> {
        if self.is_outdated {
            return Some(Millis(0));
        }
        let sends = self.members.iter().filter(|m| self.may_send(m)).map(|m| {
            let is_announced = is_same_in_pdus(&self.actor(m), &m.announced);
            if is_announced { m.send_at } else { Millis(0) }
        });
        let ages = self.members.iter().filter(|m| m.freshness != Freshness::Defaulted);
        sends.chain(ages.map(|m| m.stale_at)).min()
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns true when the aggregate has a partner.
    pub fn is_negotiated(&self) -> bool {
        self.is_negotiated
    }

    /// Returns the key of the aggregate; `None` without members.
    pub fn key(&self) -> Option<u16> {
        let first = &self.members.first()?.settings;
        Some(if first.key == 0 { first.port_id } else { first.key })
    }

    /// Returns true when LACP lets the member carry traffic.
    pub fn may_enable(&self, number: u32) -> bool {
        self.member(number).is_some_and(|member| self.is_enabled(member))
    }

    /// Returns true when the member's partner is known, which `Interface:lacp_current` shows.
    pub fn is_current(&self, number: u32) -> bool {
        self.member(number).is_some_and(|member| member.freshness != Freshness::Defaulted)
    }

    /// Returns the state of all members, in the order in which they were added.
    pub fn members(&self) -> impl Iterator<Item = MemberReport> {
        self.members.iter().map(|m| MemberReport {
            settings: m.settings.clone(),
            freshness: m.freshness,
            is_attached: m.is_attached,
            may_enable: self.is_enabled(m),
            actor: self.actor(m),
            partner: m.partner,
            counts: m.counts,
        })
    }

    fn member(&self, number: u32) -> Option<&Member> {
        self.members.iter().find(|m| m.settings.number == number)
    }

    fn member_mut(&mut self, number: u32) -> Option<&mut Member> {
        self.members.iter_mut().find(|m| m.settings.number == number)
    }

    fn is_enabled(&self, member: &Member) -> bool {
        let falls_back = self.settings.falls_back && member.freshness == Freshness::Defaulted;
        member.is_attached && (member.partner.state & state::SYNCHRONIZED != 0 || falls_back)
    }

    fn may_send(&self, member: &Member) -> bool {
        let has_partner = member.freshness != Freshness::Defaulted;
        member.has_carrier && (self.settings.is_active || has_partner)
    }

    /// Returns this end of a member's link.
    fn actor(&self, member: &Member) -> Info {
        let is_usable = member.is_attached || !self.is_negotiated;
        let bits = [
            (self.settings.is_active, state::ACTIVITY),
            (self.settings.is_fast, state::TIMEOUT),
            (self.members.len() > 1, state::AGGREGATION),
            (member.is_attached, state::SYNCHRONIZED),
            (is_usable, state::COLLECTING | state::DISTRIBUTING),
            (member.freshness == Freshness::Defaulted, state::DEFAULTED),
            (member.freshness == Freshness::Expired, state::EXPIRED),
        ];
        Info {
            system_priority: self.settings.system_priority,
            system_id: self.settings.system_id,
            key: self.key().unwrap_or(0),
            port_priority: member.settings.port_priority,
            port_id: member.settings.port_id,
            state: bits.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, bit)| all | bit),
        }
    }

    /// Returns the priority of a member's link: a lower value is preferred. The system with the
    /// higher priority decides (IEEE 802.1AX-2014, 6.4.14.2).
    fn priority(&self, member: &Member) -> (u16, [u8; 6], u16, u16) {
        let (own, partner) = (self.actor(member), member.partner);
        let rank = |info: &Info| (info.system_priority, info.system_id);
        let by = if rank(&own) < rank(&partner) { own } else { partner };
        (by.system_priority, by.system_id, by.port_priority, by.port_id)
    }

    /// Selects the members of the aggregate.
    fn select(&mut self) {
        let falls_back = self.settings.falls_back;
        // A working partner stays: a link to another system does not take over.
        let own = self.settings.system_id;
        let works = |m: &Member| {
            m.is_attached && m.freshness == Freshness::Current && m.partner.system_id != own
        };
        let working = self.members.iter().enumerate();
        let working = working.filter(|(_, m)| works(m)).map(|(at, m)| (self.priority(m), at)).min();
        let system = working.and_then(|(_, at)| Some(self.members.get(at)?.partner.system_id));
        let mut lead = working.map(|(priority, at)| ((false, priority), at));
        for at in 0..self.members.len() {
            let Some(member) = self.members.get_mut(at) else { continue };
            member.is_attached = false;
            if member.partner.system_id == own {
                continue; // the link leads back to this system
            }
            if member.freshness == Freshness::Defaulted {
                member.is_attached = falls_back;
                continue;
            }
            member.is_attached = system.is_none_or(|id| id == member.partner.system_id);
            let Some(member) = self.members.get(at).filter(|m| m.is_attached) else { continue };
            // A member in synchrony is preferred; the lead of a working partner counts as one.
            let is_late = member.partner.state & state::SYNCHRONIZED == 0;
            let rank = (is_late, self.priority(member));
            if lead.is_none_or(|(best, _)| rank < best) {
                lead = Some((rank, at));
            }
        }
        self.is_negotiated = lead.is_some();
        let Some(partner) = lead.and_then(|(_, at)| Some(self.members.get(at)?.partner)) else {
            return;
        };
        for member in &mut self.members {
            let is_same =
                (member.partner.key, member.partner.system_id) == (partner.key, partner.system_id);
            let has_fallen_back = falls_back && member.freshness == Freshness::Defaulted;
            member.is_attached &= is_same && !has_fallen_back;
        }
    }
}

impl Member {
    fn expire(&mut self, now: Millis) {
        self.freshness = Freshness::Expired;
        self.partner.state |= state::TIMEOUT;
        self.partner.state &= !state::SYNCHRONIZED;
        self.stale_at = now + LOST_PDUS * FAST_PERIODIC_MS;
    }

    fn period_of_partner(&self) -> i64 {
        let is_fast = self.partner.state & state::TIMEOUT != 0;
        if is_fast { FAST_PERIODIC_MS } else { SLOW_PERIODIC_MS }
    }
}

/// Returns true when no difference between `a` and `b` requires a PDU before its time.
fn is_same_in_pdus(a: &Info, b: &Info) -> bool {
    (a.state ^ b.state) & ANNOUNCED == 0 && Info { state: 0, ..*a } == Info { state: 0, ..*b }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000);

    fn settings(last: u8) -> Settings {
        Settings {
            is_active: true,
            is_fast: true,
            system_id: [2, 0, 0, 0, 0, last],
            system_priority: 65534,
            falls_back: false,
        }
    }

    fn member(number: u32) -> MemberSettings {
        let port_id = number as u16;
        let name = format!("p{number}");
        MemberSettings { number, name, port_id, port_priority: 65535, key: 0 }
    }

    /// Returns an aggregate of members 1 and 2.
    fn pair(settings: &Settings) -> Lacp {
        let mut lacp = Lacp::default();
        lacp.configure(settings, &[member(1), member(2)], NOW);
        lacp.set_carrier(1, true, false, NOW);
        lacp.set_carrier(2, true, false, NOW);
        lacp
    }

    /// Runs two ends, whose members with the same number are linked, from `from` to `to`, every
    /// 100 ms. Links that are in `cut` lose all frames.
    fn play(a: &mut Lacp, b: &mut Lacp, from: i64, to: i64, cut: &[u32]) {
        for at in (from..=to).step_by(100) {
            for _ in 0..4 {
                for (n, pdu) in a.run(Millis(at)) {
                    if !cut.contains(&n) {
                        b.receive(n, &pdu, Millis(at));
                    }
                }
                for (n, pdu) in b.run(Millis(at)) {
                    if !cut.contains(&n) {
                        a.receive(n, &pdu, Millis(at));
                    }
                }
            }
        }
    }

    fn freshness(lacp: &Lacp) -> Vec<(Freshness, bool, bool)> {
        lacp.members().map(|m| (m.freshness, m.is_attached, m.may_enable)).collect()
    }

    #[test]
    fn two_ends_agree() {
        let (mut a, mut b) = (pair(&settings(1)), pair(&settings(2)));
        play(&mut a, &mut b, 1_000, 1_500, &[]);
        for lacp in [&a, &b] {
            assert!(lacp.is_negotiated());
            assert_eq!(freshness(lacp), [(Freshness::Current, true, true); 2]);
        }
        let theirs = a.members().next().unwrap().partner;
        assert_eq!(theirs, b.members().next().unwrap().actor);
        assert_eq!(theirs.state, 0x3f, "all but defaulted and expired");
    }

    #[test]
    fn a_silent_partner_expires_and_is_given_up() {
        let (mut a, mut b) = (pair(&settings(1)), pair(&settings(2)));
        play(&mut a, &mut b, 1_000, 2_000, &[]);
        play(&mut a, &mut b, 2_100, 6_100, &[1]);
        let works = (Freshness::Current, true, true);
        assert_eq!(freshness(&a), [(Freshness::Expired, true, false), works]);
        play(&mut a, &mut b, 6_200, 10_200, &[1]);
        assert_eq!(freshness(&a), [(Freshness::Defaulted, false, false), works]);
        assert!(a.is_negotiated());
        assert_eq!((a.is_current(1), a.is_current(2)), (false, true));
        let counts = a.members().next().unwrap().counts;
        assert_eq!((counts.expired, counts.defaulted), (1, 1));
        play(&mut a, &mut b, 10_300, 41_000, &[]);
        assert_eq!(freshness(&a), [works; 2]);
    }

    #[test]
    fn passive_ends_do_not_begin() {
        let passive = |last| Settings { is_active: false, ..settings(last) };
        let (mut a, mut b) = (pair(&passive(1)), pair(&passive(2)));
        play(&mut a, &mut b, 1_000, 40_000, &[]);
        assert_eq!(freshness(&a), [(Freshness::Defaulted, false, false); 2]);
        assert_eq!(a.next_due(), None);
        let mut c = pair(&settings(3));
        play(&mut a, &mut c, 41_000, 42_000, &[]);
        assert_eq!(freshness(&a), [(Freshness::Current, true, true); 2]);
    }

    #[test]
    fn the_partner_sets_the_pace() {
        for (is_fast, most, least) in [(true, 35, 29), (false, 6, 2)] {
            let slow = Settings { is_fast, ..settings(1) };
            let (mut a, mut b) = (pair(&slow), pair(&settings(2)));
            play(&mut a, &mut b, 1_000, 31_500, &[]);
            let sent = b.members().next().unwrap().counts.sent;
            assert!((least..=most).contains(&sent), "fast {is_fast}: {sent}");
        }
    }

    #[test]
    fn a_link_to_another_system_or_key_is_left_out() {
        let (mut a, mut b) = (pair(&settings(1)), pair(&settings(2)));
        play(&mut a, &mut b, 1_000, 2_000, &[2]);
        let mut c = pair(&settings(3));
        for (n, pdu) in c.run(Millis(2_100)) {
            if n == 2 {
                a.receive(n, &pdu, Millis(2_100));
            }
        }
        a.run(Millis(2_100));
        let attached: Vec<bool> = a.members().map(|m| m.is_attached).collect();
        assert_eq!(attached, [true, false]);
    }

    #[test]
    fn a_link_to_the_own_system_is_left_out() {
        let (mut a, mut b) = (pair(&settings(1)), pair(&settings(1)));
        play(&mut a, &mut b, 1_000, 2_000, &[]);
        assert_eq!(freshness(&a), [(Freshness::Current, false, false); 2]);
        assert!(!a.is_negotiated());
    }

    #[test]
    fn members_fall_back_without_a_partner() {
        let falls_back = Settings { falls_back: true, is_active: false, ..settings(1) };
        let mut a = pair(&falls_back);
        a.run(NOW);
        assert_eq!(freshness(&a), [(Freshness::Defaulted, true, true); 2]);
        assert!(!a.is_negotiated(), "there is no partner");
        let mut b = pair(&settings(2));
        play(&mut a, &mut b, 1_100, 2_000, &[2]);
        let works = (Freshness::Current, true, true);
        assert_eq!(freshness(&a), [works, (Freshness::Defaulted, false, false)]);
    }

    #[test]
    fn carriers_decide() {
        let (mut a, mut b) = (pair(&settings(1)), pair(&settings(2)));
        play(&mut a, &mut b, 1_000, 2_000, &[]);
        a.set_carrier(1, false, true, Millis(2_100));
        let sent = a.run(Millis(4_000));
        assert!(sent.iter().all(|(n, _)| *n == 2), "no PDU without a carrier");
        assert!(!a.may_enable(1));
        let before = a.members().next().unwrap().counts;
        let pdu = Pdu::default().encode();
        assert!(!a.receive(1, &pdu, Millis(4_000)));
        let after = a.members().next().unwrap().counts;
        assert_eq!((after.received, after.carrier_changes), (before.received + 1, 1));
    }

    #[test]
    fn frames_are_counted_by_kind() {
        let mut a = pair(&settings(1));
        let mut marker = Pdu::default().encode();
        marker[0] = 2;
        a.receive(1, &marker, NOW);
        a.receive(1, b"no PDU", NOW);
        assert!(!a.receive(9, &Pdu::default().encode(), NOW), "no such member");
        let counts = a.members().next().unwrap().counts;
        assert_eq!((counts.received, counts.markers, counts.bad), (2, 1, 1));
    }

    #[test]
    fn the_first_member_gives_the_key() {
        let mut a = pair(&settings(1));
        assert_eq!(a.key(), Some(1));
        let keyed = MemberSettings { key: 77, ..member(1) };
        a.configure(&settings(1), &[keyed, member(2)], NOW);
        assert_eq!(a.key(), Some(77));
        assert!(a.members().all(|m| m.actor.key == 77));
        a.configure(&settings(1), &[member(2)], NOW);
        assert_eq!(a.key(), Some(2));
        a.configure(&settings(1), &[], NOW);
        assert_eq!((a.key(), a.next_due().is_some()), (None, true));
        assert!(a.run(NOW).is_empty());
    }
}
