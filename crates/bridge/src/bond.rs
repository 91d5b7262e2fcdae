// SPDX-License-Identifier: Apache-2.0
//! Bonds: bundles of several ports that carry the traffic of one (ovs-vswitchd.conf.db(5),
//! "Bonding Configuration").
//!
//! [`Bond`] is the control thread's state: which members are enabled, which one is active, which
//! member has which bucket of the hash. [`BondView`] is the part that translation reads. A bond with
//! a hash has 256 [`Buckets`]; a bucket gets a member when a packet first needs it, and keeps the
//! member until that is disabled or the load is balanced again. As in Open vSwitch the buckets are
//! shared by all snapshots: translations by two threads may fill them at the same time, and both see
//! one result.

pub(crate) mod announcement;
mod buckets;
mod output;
mod rebalance;
mod view;

pub use buckets::{BUCKETS, Buckets, source_hash};
pub use output::Output;
pub use view::BondView;
pub(crate) use view::{Choice, Verdict};

use clock::Millis;
use openflow::PortNo;
use std::fmt;
use std::sync::Arc;

/// How a bond chooses the member for a packet (`bond_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// `active-backup`: one member carries all traffic.
    #[default]
    ActiveBackup,
    /// `balance-slb`: by source address and VLAN.
    BalanceSlb,
    /// `balance-tcp`: by addresses and ports of the network and transport headers. Needs LACP.
    BalanceTcp,
}

impl Mode {
    /// Returns the mode that the database calls `name`.
    pub fn parse(name: &str) -> Option<Mode> {
        [Mode::ActiveBackup, Mode::BalanceSlb, Mode::BalanceTcp]
            .into_iter()
            .find(|mode| mode.to_string() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::ActiveBackup => "active-backup",
            Mode::BalanceSlb => "balance-slb",
            Mode::BalanceTcp => "balance-tcp",
        })
    }
}

/// The state of LACP on a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LacpStatus {
    /// LACP is off.
    #[default]
    Off,
    /// LACP is on, and has no partner.
    Configured,
    /// LACP has a partner.
    Negotiated,
}

impl fmt::Display for LacpStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LacpStatus::Off => "off",
            LacpStatus::Configured => "configured",
            LacpStatus::Negotiated => "negotiated",
        })
    }
}

/// Settings of a bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How members are chosen.
    pub mode: Mode,
    /// Milliseconds for which a link must be up before its member is enabled.
    pub updelay_ms: u32,
    /// Milliseconds for which a link must be down before its member is disabled.
    pub downdelay_ms: u32,
    /// Milliseconds between two balancings of the load; 0 for none.
    pub rebalance_ms: u32,
    /// Number that is mixed into the hash (`bond-hash-basis`).
    pub basis: u32,
    /// The bond is an active-backup bond while LACP has no partner (`lacp-fallback-ab`).
    pub falls_back: bool,
    /// Interface that is active whenever it is enabled; `None` for no preference.
    pub primary: Option<String>,
    /// Members that are not active take multicast packets too (`all-members-active`).
    pub all_members_active: bool,
    /// The datapath may choose the member for a packet of a `balance-tcp` bond
    /// (`lb-output-action`).
    pub lb_output: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::ActiveBackup,
            updelay_ms: 0,
            downdelay_ms: 0,
            rebalance_ms: 10_000,
            basis: 0,
            falls_back: false,
            primary: None,
            all_members_active: false,
            lb_output: true,
        }
    }
}

/// The present state of a member's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub number: PortNo,
    pub name: String,
    pub mac: [u8; 6],
    /// The port is up.
    pub is_up: bool,
    /// The port is up, and the protocols on it allow traffic.
    pub may_enable: bool,
}

/// A member of a bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// OpenFlow number of the port.
    pub number: PortNo,
    /// Name of the interface.
    pub name: String,
    /// Address of the interface.
    pub mac: [u8; 6],
    /// The port may carry traffic.
    pub may_enable: bool,
    /// The member carries traffic.
    pub is_enabled: bool,
    /// Time at which the member is enabled or disabled, when the link stays as it is.
    pub changes_at: Option<Millis>,
}

/// The control thread's state of a bond.
#[derive(Debug)]
pub struct Bond {
    name: String,
    settings: Settings,
    lacp: LacpStatus,
    members: Vec<Member>,
    active: Option<PortNo>,
    /// Address of the active member, or of the one that the database names.
    active_mac: [u8; 6],
    buckets: Arc<Buckets>,
    output: Output,
    /// A member was enabled that has no buckets yet.
    has_new_member: bool,
    next_rebalance: Millis,
    must_announce: bool,
    is_changed: bool,
}

impl Bond {
    pub(crate) fn new(name: &str) -> Bond {
        Bond {
            name: name.to_owned(),
            settings: Settings::default(),
            lacp: LacpStatus::Off,
            members: Vec::new(),
            active: None,
            active_mac: [0; 6],
            buckets: Arc::default(),
            output: Output::PerMember,
            has_new_member: false,
            next_rebalance: Millis(0),
            must_announce: false,
            is_changed: true,
        }
    }

    /// Records the member with the address `mac` as the one that was active before, from the
    /// database record of an earlier daemon process. Does nothing when there is an active member.
    pub(crate) fn recall(&mut self, mac: [u8; 6]) {
        if self.active.is_none() && self.active_mac == [0; 6] {
            self.active_mac = mac;
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the state of LACP.
    pub fn lacp(&self) -> LacpStatus {
        self.lacp
    }

    /// Returns the members, in the order of the database.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the member called `name`.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.name == name)
    }

    /// Returns the active member.
    pub fn active(&self) -> Option<&Member> {
        self.members.iter().find(|m| Some(m.number) == self.active)
    }

    /// Returns the address of the active member, or of the one that was active before the daemon
    /// started; zeros for none.
    pub fn active_mac(&self) -> [u8; 6] {
        self.active_mac
    }

    /// Returns the buckets of the hash.
    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// Returns the time of the next balancing.
    pub fn next_rebalance(&self) -> Millis {
        self.next_rebalance
    }

    /// Returns true when the load is balanced from time to time.
    pub fn is_balanced(&self) -> bool {
        self.settings.rebalance_ms != 0
            && self.settings.mode != Mode::ActiveBackup
            && !self.has_fallen_back()
    }

    fn has_fallen_back(&self) -> bool {
        self.settings.falls_back && self.lacp == LacpStatus::Configured
    }

    /// Brings the bond to the present settings, links and time. Returns true when translation
    /// must follow a change.
    pub(crate) fn update(
        &mut self,
        settings: &Settings,
        lacp: LacpStatus,
        links: &[Link],
        now: Millis,
    ) -> bool {
        let reset = |s: &Settings| {
            let Settings {
                updelay_ms: _,
                downdelay_ms: _,
                all_members_active: _,
                lb_output: _,
                ..
            } = s;
            (s.mode, s.rebalance_ms, s.basis, s.falls_back, s.primary.clone())
        };
        let is_reset = reset(&self.settings) != reset(settings) || self.lacp != lacp;
        self.is_changed |= self.settings != *settings || self.lacp != lacp;
        (self.settings, self.lacp) = (settings.clone(), lacp);
        if is_reset {
            self.buckets.clear();
            self.next_rebalance = now + i64::from(settings.rebalance_ms);
        }
        self.follow_members(links);
        for link in links {
            self.follow_link(link, now);
        }
        let wants_primary = self.settings.mode == Mode::ActiveBackup;
        let primary = self.primary().map(|m| m.number).filter(|_| wants_primary);
        let is_good = self.active().is_some_and(|m| m.is_enabled);
        if !is_good || primary.is_some_and(|p| Some(p) != self.active) {
            self.choose_active(now);
        }
        std::mem::take(&mut self.is_changed)
    }

    /// Adds and removes members.
    fn follow_members(&mut self, links: &[Link]) {
        let (kept, gone): (Vec<Member>, Vec<Member>) = std::mem::take(&mut self.members)
            .into_iter()
            .partition(|m| links.iter().any(|link| link.number == m.number));
        for member in gone {
            self.buckets.disable(member.number);
            self.is_changed = true;
            self.must_announce |= member.is_enabled;
        }
        let mut kept = kept;
        for link in links {
            let at = kept.iter().position(|m| m.number == link.number);
            let mut member = match at {
                Some(at) => kept.swap_remove(at),
                None => {
                    self.is_changed = true;
                    if link.is_up {
                        self.has_new_member = true;
                        self.buckets.enable(link.number);
                    }
                    Member {
                        number: link.number,
                        name: String::new(),
                        mac: [0; 6],
                        may_enable: false,
                        is_enabled: link.is_up,
                        changes_at: None,
                    }
                }
            };
            member.name.clone_from(&link.name);
            self.is_changed |= member.may_enable != link.may_enable;
            (member.mac, member.may_enable) = (link.mac, link.may_enable);
            self.members.push(member);
        }
    }

    /// Enables or disables a member, at once or after the delay.
    fn follow_link(&mut self, link: &Link, now: Millis) {
        let is_up = link.is_up && link.may_enable;
        let (up, down) = (self.settings.updelay_ms, self.settings.downdelay_ms);
        let Some(member) = self.members.iter_mut().find(|m| m.number == link.number) else {
            return;
        };
        let name = &member.name;
        let word = if member.is_enabled { "disabled" } else { "enabled" };
        if (is_up == member.is_enabled) == member.changes_at.is_some() {
            let state = if is_up { "up" } else { "down" };
            tracing::info!(target: "bond", "member {name}: link state {state}");
            if is_up == member.is_enabled {
                member.changes_at = None;
                tracing::info!(target: "bond", "member {name}: will not be {word}");
            } else {
                let delay = if is_up { up } else { down };
                member.changes_at = Some(now + i64::from(delay));
                if delay > 0 {
                    tracing::info!(
                        target: "bond",
                        "member {name}: will be {word} if it stays {state} for {delay} ms"
                    );
                }
            }
        }
        if member.changes_at.is_some_and(|at| now >= at) {
            self.enable(link.number, is_up);
        }
    }

    fn enable(&mut self, number: PortNo, is_enabled: bool) {
        let Some(member) = self.members.iter_mut().find(|m| m.number == number) else { return };
        member.changes_at = None;
        if member.is_enabled == is_enabled {
            return;
        }
        member.is_enabled = is_enabled;
        self.is_changed = true;
        if is_enabled {
            self.has_new_member = true;
            self.buckets.enable(number);
        } else {
            self.buckets.disable(number);
            self.must_announce = true;
        }
        let word = if is_enabled { "enabled" } else { "disabled" };
        tracing::info!(target: "bond", "member {}: {word}", member.name);
    }

    fn primary(&self) -> Option<&Member> {
        let primary = self.settings.primary.as_deref()?;
        self.member(primary).filter(|m| m.is_enabled)
    }

    /// Chooses the active member: the primary one, else the one that was active before, else the
    /// first that is enabled, else the one that will be enabled first, which is enabled at once.
    fn choose_active(&mut self, now: Millis) {
        let before = self.active;
        let enabled = |m: &&Member| m.is_enabled;
        let same = || self.members.iter().find(|m| m.mac == self.active_mac && m.is_enabled);
        let next = || {
            let waiting = self.members.iter().filter(|m| m.may_enable && m.changes_at.is_some());
            waiting.min_by_key(|m| m.changes_at)
        };
        let chosen = self.primary().or_else(same);
        let chosen = chosen.or_else(|| self.members.iter().find(enabled)).or_else(next).cloned();
        let name = &self.name;
        match &chosen {
            Some(member) if member.is_enabled => {
                tracing::info!(target: "bond", "bond {name}: active member is now {}", member.name);
            }
            Some(member) => {
                let left = member.changes_at.map_or(0, |at| at.since(now));
                tracing::info!(
                    target: "bond",
                    "bond {name}: active member is now {}, skipping remaining {left} ms updelay \
                     (since no member was enabled)",
                    member.name
                );
            }
            None if before.is_some() => {
                tracing::info!(target: "bond", "bond {name}: all members disabled");
            }
            None => {}
        }
        self.active = chosen.as_ref().map(|m| m.number);
        if let Some(member) = &chosen {
            self.enable(member.number, true);
            self.must_announce = true;
        }
        if self.active != before {
            self.is_changed = true;
            self.active_mac = chosen.map_or([0; 6], |m| m.mac);
        }
    }

    /// Makes an enabled member the active one (`bond/set-active-member`). Returns false when it is
    /// already.
    ///
    /// # Errors
    ///
    /// Fails when there is no such member, or it is disabled.
    pub(crate) fn set_active(&mut self, name: &str) -> Result<bool, &'static str> {
        let member = self.member(name).ok_or("no such member")?;
        if !member.is_enabled {
            return Err("cannot make disabled member active");
        }
        if self.active == Some(member.number) {
            return Ok(false);
        }
        let (number, mac) = (member.number, member.mac);
        tracing::info!(target: "bond", "bond {}: active member is now {name}", self.name);
        (self.active, self.active_mac) = (Some(number), mac);
        (self.must_announce, self.is_changed) = (true, true);
        Ok(true)
    }

    /// Enables or disables a member (`bond/enable-member`, `bond/disable-member`). The link's state
    /// decides again with the next update.
    ///
    /// # Errors
    ///
    /// Fails when there is no such member.
    pub(crate) fn set_enabled(&mut self, name: &str, is_enabled: bool) -> Result<(), &'static str> {
        let number = self.member(name).ok_or("no such member")?.number;
        self.enable(number, is_enabled);
        Ok(())
    }

    /// Moves a bucket to a member (`bond/migrate`).
    ///
    /// # Errors
    ///
    /// Fails when the bond has another mode than balance-slb, or when there is no such member, or it
    /// is disabled.
    pub(crate) fn migrate(&mut self, bucket: u8, name: &str) -> Result<(), &'static str> {
        let member = self.member(name).ok_or("no such member")?;
        if !member.is_enabled {
            return Err("cannot migrate to disabled member");
        }
        self.buckets.assign(bucket, member.number);
        self.is_changed = true;
        Ok(())
    }

    /// Returns true, once, when hosts must be announced to the other end: it has learned them on a
    /// member that no longer carries their traffic.
    pub(crate) fn take_announcement(&mut self) -> bool {
        let is_due = std::mem::take(&mut self.must_announce);
        let is_static = self.lacp == LacpStatus::Off && self.settings.mode != Mode::BalanceTcp;
        is_due && (is_static || self.has_fallen_back()) && self.active.is_some()
    }

    /// Returns the time at which [`Bond::update`] or [`Bond::rebalance`] must be called.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let delays = self.members.iter().filter_map(|m| m.changes_at);
        delays.chain(self.is_balanced().then_some(self.next_rebalance)).min()
    }

    /// Balances the load, when that is due. The caller has credited the bytes of all buckets.
    pub(crate) fn rebalance(&mut self, now: Millis) {
        if !self.is_balanced() || now < self.next_rebalance {
            return;
        }
        self.next_rebalance = now + i64::from(self.settings.rebalance_ms);
        let enabled: Vec<PortNo> =
            self.members.iter().filter(|m| m.is_enabled).map(|m| m.number).collect();
        let loads = self.buckets.loads();
        for shift in rebalance::plan(&loads, &enabled) {
            let name = |n: PortNo| self.members.iter().find(|m| m.number == n).map(|m| &*m.name);
            tracing::info!(
                target: "bond",
                "bond {}: shift {}kB of load (with hash {}) from {} to {}",
                self.name,
                shift.bytes / 1024,
                shift.bucket,
                name(shift.from).unwrap_or_default(),
                name(shift.to).unwrap_or_default(),
            );
            self.buckets.assign(shift.bucket, shift.to);
            self.is_changed = true;
        }
        self.buckets.halve();
    }

    /// Returns the part that translation reads.
    pub(crate) fn view(&self) -> BondView {
        let numbers = |wanted: fn(&Member) -> bool| {
            self.members.iter().filter(|m| wanted(m)).map(|m| m.number).collect()
        };
        BondView {
            mode: self.settings.mode,
            lacp: self.lacp,
            falls_back: self.settings.falls_back,
            basis: self.settings.basis,
            all_members_active: self.settings.all_members_active
                && self.settings.mode == Mode::BalanceSlb,
            active: self.active,
            enabled: numbers(|m| m.is_enabled),
            usable: numbers(|m| m.is_enabled || m.may_enable),
            output: self.output.id(),
            buckets: Arc::clone(&self.buckets),
        }
    }
}

#[cfg(test)]
mod tests;
