// SPDX-License-Identifier: Apache-2.0
//! The contract of offload providers, which run flows faster than the userspace datapath.
//!
//! An [`OffloadProvider`] has one or more tiers that share a table of flows, such as a card, or
//! BPF at the XDP and the skb hook. `placement` has an ordered list of providers, fastest first,
//! above the userspace datapath, which holds every port and every flow. A provider therefore may
//! refuse any port and any flow, and may lose flows; a packet that meets no flow of any provider
//! is processed in userspace.
//!
//! # Additive tiers
//!
//! Placement offers each flow to each provider whose tiers the flow's ports are on. A flow may be
//! held by several providers at once: a packet runs at the first that it meets, so each packet is
//! counted once, and the statistics of a flow are the sum over all that hold it. A flow is
//! installed slowest provider first; it is replaced and removed fastest first. So a packet that
//! leaves a faster provider meets a slower one that is up to date.
//!
//! # Life of a port
//!
//! 1. [`OffloadProvider::attach`] brings a port to the tiers that suit it, and says for each tier
//!    whether the port's packets arrive there and whether flows there may output to the port. It
//!    is called again when a setting, the device or another device that it depends on has changed
//!    ([`OffloadProvider::examine`]). Before each call no flow of this provider uses the port:
//!    placement has withdrawn them all.
//! 2. [`OffloadProvider::update_port`] follows the MTU and whether the device is up.
//! 3. [`OffloadProvider::release`] takes the port out of the tiers while it stays a port of the
//!    switch; [`OffloadProvider::remove_port`] when it is none any more. Flows that still output to
//!    it drop their packets as [`DropReason::OutputPortGone`] or are lost.
//!
//! # Life of a flow
//!
//! 1. [`OffloadProvider::suits`] says where the flow could run. It changes nothing.
//! 2. [`OffloadProvider::install`] adds it with zero statistics.
//! 3. [`OffloadProvider::replace`] gives it other actions or other tiers of the same provider;
//!    its statistics go on.
//! 4. [`OffloadProvider::sweep`] and [`OffloadProvider::sweep_moved`] report its statistics. They
//!    only grow.
//! 5. [`OffloadProvider::remove_many`] takes it out and returns its final statistics.
//!    A flow that the provider has lost by itself is named by [`OffloadProvider::take_lost`], and
//!    the provider keeps what it last counted until placement removes the flow.
//!
//! # Ownership
//!
//! Placement owns the decision where a flow is, the carried statistics of flows that left, the list
//! of ports and the sockets of the userspace datapath. The provider owns its attachments, its table
//! and every object that it made in the kernel or in a card. It leaves objects of other owners
//! alone. A provider marks state that outlives the daemon as its own, and adopts it later
//! ([`OffloadProvider::adopted_ports`]).
//!
//! # Threads
//!
//! Every method may be called from any thread at any time, also from callbacks of `sweep` and
//! `remove_many`. Calls for one port come one after the other. Calls for one flow come one after
//! the other, except for reads. [`OffloadProvider::install`] and the reads of one flow may be
//! called on packet threads and under a lock that other packet threads need: they take
//! microseconds and make no system call, unless [`OffloadProvider::installs_later`] holds.
//!
//! # Errors
//!
//! A refusal is an ordinary answer and changes nothing. It has a [`Refusal`] for counters and
//! dumps; where a person may ask, it is a [`Reason`] with words. The provider logs every other
//! failure, and then answers as if the tier were not there.

use crate::{
    Actions, AdoptedPort, BondTable, BucketBytes, DropReason, EgressQos, FlowStats, LookupStats,
    Megaflow, MeterConfig, MeterStats, MissOrigin, PortCounts, PortNo, PortSpec, Refusal,
    SequenceNumbers, Side, Tier, TierSet, TunnelEndpoint, Ufid, Verdict,
};
use flow::Match;
use netdev::{Endpoint, Kind, Policing, Reception};
use packet::Packet;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Why a tier does not take a port, for counters and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason.
    pub refusal: Refusal,
    /// The missing condition and the remedy, worded as a part of a sentence.
    pub detail: String,
}

impl Reason {
    /// Returns a reason with its detail.
    pub fn new(refusal: Refusal, detail: impl Into<String>) -> Reason {
        Reason { refusal, detail: detail.into() }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.refusal, self.detail)
    }
}

/// Where a setting of a port comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKey {
    /// `options:NAME` of the Interface row.
    Option(&'static str),
    /// `other_config:NAME` of the Interface row.
    OtherConfig(&'static str),
}

impl SettingKey {
    fn name(self) -> &'static str {
        let (SettingKey::Option(name) | SettingKey::OtherConfig(name)) = self;
        name
    }

    fn value(self, spec: &PortSpec) -> Option<String> {
        match self {
            SettingKey::Option(name) => spec.options.get(name).cloned(),
            SettingKey::OtherConfig(name) => spec.other_config.get(name).cloned(),
        }
    }
}

/// The settings of a port that decide where it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSettings {
    /// `other_config:tier`: nothing faster than this tier, and this tier also where the switch
    /// would not choose it by itself. `None` is `auto`: the fastest tiers that surely work.
    pub tier: Option<Tier>,
    /// The row's values of the providers' own settings, by name.
    values: BTreeMap<&'static str, String>,
}

impl PortSettings {
    /// Reads a row; `keys` are the settings of the providers, `known` their tiers.
    ///
    /// # Errors
    ///
    /// A sentence that names the words that `other_config:tier` may have.
    pub fn read(
        spec: &PortSpec,
        keys: impl IntoIterator<Item = SettingKey>,
        known: TierSet,
    ) -> Result<PortSettings, String> {
        let tier = tier_setting(spec.other_config.get("tier").map(String::as_str), known)?;
        let values = keys.into_iter().filter_map(|key| Some((key.name(), key.value(spec)?)));
        Ok(PortSettings { tier, values: values.collect() })
    }

    /// Returns the value of a provider's own setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// True when the settings allow `tier`: none slower was asked for.
    pub fn allow(&self, tier: Tier) -> bool {
        self.tier.is_none_or(|wanted| wanted <= tier)
    }
}

/// Reads `other_config:tier`; `None` is `auto`.
///
/// # Errors
///
/// A sentence that names the words there are.
pub fn tier_setting(setting: Option<&str>, known: TierSet) -> Result<Option<Tier>, String> {
    let Some(text) = setting.filter(|text| *text != "auto") else { return Ok(None) };
    let known = known.with(Tier::Userspace);
    if let Some(tier) = known.tiers().find(|tier| tier.name() == text) {
        return Ok(Some(tier));
    }
    let names: Vec<&str> = known.tiers().map(Tier::name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    let others: String = others.iter().map(|name| format!(", {name}")).collect();
    Err(format!("other_config:tier: \"{text}\" is not one of auto{others} and {last}"))
}

/// A place in the list of providers; it exists before its provider does.
#[derive(Clone, Debug)]
pub struct ProviderSlot {
    /// The provider's tiers.
    pub tiers: TierSet,
    /// The settings of ports that the provider reads.
    pub keys: &'static [SettingKey],
    /// Checks the settings of a port; the error is a sentence for people.
    pub check: fn(&PortSettings) -> Result<(), String>,
    /// The reason for which the provider does not exist yet.
    pub absent: Reason,
    /// The switch uses the provider only when the database asks for it. While it is absent, or a
    /// setting forbids it, nothing about ports and flows mentions its tiers.
    pub is_optional: bool,
}

/// A port as placement hands it to a provider.
#[derive(Clone, Copy, Debug)]
pub struct OffloadPort<'a> {
    /// Its number.
    pub number: PortNo,
    /// The name that the database gives it, for logs.
    pub name: &'a str,
    /// The name that its device has now.
    pub device: &'a str,
    /// The kind of device.
    pub kind: Kind,
    /// Which side of the device is the switch's.
    pub side: Side,
    /// The device's interface index; `None` while the device is gone or in another network
    /// namespace.
    pub ifindex: Option<u32>,
    /// Bytes after the Ethernet header.
    pub mtu: u32,
    /// The device may be sent to.
    pub is_up: bool,
    /// The QoS that packets to the port must meet.
    pub egress: EgressQos,
    /// The limits of its packets, which the tiers must keep ([`OffloadProvider::keeps_policing`]).
    pub policing: Policing,
    /// The settings.
    pub settings: &'a PortSettings,
    /// Whether tiers may take the port's packets. When not, flows of other ports may still output
    /// to it.
    pub ingress: Result<(), &'a Reason>,
    /// A faster provider has the port whose filters of traffic control are to see its packets first:
    /// this one takes them at the place after such filters, and not before it.
    pub is_after_filters: bool,
}

/// The state of a port on one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierState {
    /// The tier.
    pub tier: Tier,
    /// The port's packets meet the tier's flows, or why not.
    pub ingress: Result<(), Reason>,
    /// Flows of the tier may output to the port, or why not.
    pub output: Result<(), Reason>,
    /// How the port is attached, for people; empty for the ordinary way.
    pub how: &'static str,
    /// The port belongs on this tier, by its settings or by what the provider is for. When it is
    /// not there, the reason is shown with each of the port's flows.
    pub is_expected: bool,
}

impl TierState {
    /// A tier that has nothing to do with a port, for this reason.
    pub fn refused(tier: Tier, reason: Reason, is_expected: bool) -> TierState {
        let (ingress, output) = (Err(reason.clone()), Err(reason));
        TierState { tier, ingress, output, how: "", is_expected }
    }
}

/// The interfaces at which facts about ports may have changed.
#[derive(Clone, Copy, Debug)]
pub enum Ends<'a> {
    /// Those that events named.
    These(&'a [Endpoint]),
    /// Any: events were lost.
    Lost,
    /// Any, by changes that no event reports.
    Poll,
}

/// The result of attaching a port to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// One for each tier of the provider, fastest first.
    pub tiers: Vec<TierState>,
    /// The userspace datapath must not receive the port's packets by its own socket: the provider
    /// takes them all, and hands over those without a flow ([`MissChannel`]).
    pub takes_receive: bool,
    /// The port's packets are between the socket and the provider. The caller calls
    /// [`OffloadProvider::complete_moves`] and stops the socket afterwards. All packets are forwarded
    /// meanwhile.
    pub is_moving: bool,
    /// The provider may now decide otherwise about other ports: placement examines those for which
    /// [`OffloadProvider::depends_on`] holds.
    pub affects_others: bool,
    /// The provider takes packets after the socket saw them. So it has the port only while a slower
    /// provider takes all packets that it leaves ([`Attached::takes_receive`]). Where none does,
    /// placement releases the port again, and attaches it when that has changed.
    pub needs_taker: bool,
}

/// The userspace datapath's own socket at a port, while a provider attaches or releases the port.
///
/// A provider that takes packets before that socket sees them (a card, XDP) has no use for it.
/// One that takes them at a place where the socket sees them too takes care with it that each
/// packet has one taker. At most one provider of a list does.
pub trait PortSocket {
    /// The packets that the socket receives now.
    fn reception(&self) -> Reception;

    /// Has the socket receive so from now on. False when the socket refuses, which is logged.
    fn set_receive(&mut self, reception: Reception) -> bool;

    /// True when what the socket receives goes through a filter of the provider.
    fn has_filter(&self) -> bool;

    /// Puts `filter`, a BPF program for sockets, on the socket, when it has none. A failure is
    /// logged; [`PortSocket::has_filter`] says whether the filter is there.
    fn install_filter(&mut self, filter: BorrowedFd<'_>);
}

/// A flow as a provider holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldFlow {
    /// The packets.
    pub matching: Match,
    /// Tiers of the provider that run it.
    pub tiers: TierSet,
    /// Statistics of the flow on those tiers, as of the last sweep or later.
    pub stats: FlowStats,
}

/// The account that pays for a packet that goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallAccount {
    /// The packet has no megaflow.
    Misses,
    /// The packet has one, and the daemon has to carry out its `ct` action.
    Connections,
}

impl UpcallAccount {
    /// All accounts.
    pub const ALL: [UpcallAccount; 2] = [UpcallAccount::Misses, UpcallAccount::Connections];
}

/// A way by which a provider hands over packets without a flow: a device of the daemon's, the
/// *miss device*, to which the provider sends them with their [`MissOrigin`] in front.
pub trait MissChannel: Send + Sync {
    /// Sets the index of the interface that packets without a flow go to; 0: none, nobody takes
    /// them.
    fn set_miss_device(&self, ifindex: u32);

    /// Removes the provider's header from the front of a packet. `None` when the packet has no such
    /// header; the packet is then of no use.
    fn unwrap(&self, packet: &mut Packet) -> Option<MissOrigin>;

    /// Notes that `count` packets of `port` were taken from the miss device.
    fn note_taken(&self, port: PortNo, count: u64);

    /// Stops packets of `port` that this account pays for from going up until `until`, in
    /// nanoseconds of `CLOCK_MONOTONIC`. They are dropped and counted as
    /// [`DropReason::UpcallLimit`].
    fn hold_back(&self, port: PortNo, account: UpcallAccount, until: u64);

    /// Notes that the miss device was found empty. Packets that were counted as sent more than a
    /// moment ago and were not taken are lost. (Packets of this moment may still be under way; they
    /// are noted as taken when they arrive, which must do no harm.) The device had no room for
    /// `lost` packets since the last call; they are counted as [`DropReason::UpcallLimit`].
    fn resync_taken(&self, lost: u64);

    /// True when packets of `port` are under way to the miss device.
    fn is_on_its_way(&self, port: PortNo) -> bool;

    /// Returns the number of packets sent up since start.
    fn sent_up(&self) -> u64;
}

/// A tunnel device of the kernel that helps a tunnel port ([`OffloadProvider::set_tunnel_helper`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelHelper {
    /// Index of the device. Nothing else takes the packets that come out of it.
    pub device: u32,
    /// Index of the host's device by which outer packets from ports of bridges enter the host's
    /// stack; `None`: where they have arrived.
    pub entrance: Option<u32>,
}

/// Counts of packets that a provider gave to a [`TunnelHelper`] since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelHelperCounts {
    /// Packets that left for the host's stack.
    pub given: u64,
    /// Packets that came out of the device: aggregates, and segments where the kernel has cut one.
    pub returned: u64,
}

/// Two devices of the kernel that segment packets ([`OffloadProvider::set_segmenter`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmenter {
    /// Index of the device by which packets leave.
    pub entrance: u32,
    /// Index of the device that sends their segments, one by one and on the same CPU. Nothing else sends
    /// by it.
    pub exit: u32,
}

/// One or more tiers with one table of flows; see the module's text for the contract.
pub trait OffloadProvider: Send + Sync {
    /// Returns the tiers, which never change.
    fn tiers(&self) -> TierSet;

    // Ports. Called under the lock of placement's control side; may take milliseconds.

    /// Returns the ports in tables that an earlier daemon left and that were taken over.
    fn adopted_ports(&self) -> Vec<AdoptedPort> {
        Vec::new()
    }

    /// Returns the tunnel ports in such tables.
    fn adopted_tunnels(&self) -> Vec<(PortNo, tunnel::PortConfig)> {
        Vec::new()
    }

    /// Brings `port` to exactly those tiers that it can be on now, by what
    /// [`OffloadProvider::examine`] last found. Where `port.ingress` is an error no tier may take
    /// the port's packets. A failure at one tier leaves the port on the others.
    fn attach(&self, port: &OffloadPort<'_>, socket: &mut dyn PortSocket) -> Attached;

    /// True when the tiers limit the packets of a port as [`OffloadPort::policing`] says. Otherwise no
    /// port with limits comes to them.
    fn keeps_policing(&self) -> bool {
        false
    }

    /// Completes the move of packets from sockets to the provider, for all ports whose
    /// [`Attached::is_moving`] was true. Waits once, for some milliseconds, for all of them.
    fn complete_moves(&self) {}

    /// Takes `port` out of all tiers, and leaves its packets to `socket`.
    fn release(&self, port: &OffloadPort<'_>, socket: &mut dyn PortSocket);

    /// Takes a port out of all tiers and forgets its counts: it is no port any more, and another
    /// one may get its number. Nothing happens when the provider does not have it.
    fn remove_port(&self, port: PortNo);

    /// Carries out one part, of some milliseconds, of the work that [`OffloadProvider::remove_port`]
    /// left for later. Returns false when there was none.
    fn finish_removal(&self) -> bool {
        false
    }

    /// Adds a port of a tunnel, which has no device, until [`OffloadProvider::remove_port`]. Returns the
    /// tiers that take the tunnel's headers off packets: flows with [`crate::Action::TunnelPop`] to the port,
    /// and flows of the packets from it, may run there.
    fn add_tunnel(&self, port: PortNo, config: &tunnel::PortConfig) -> TierSet {
        let _ = (port, config);
        TierSet::NONE
    }

    /// Returns the sequence numbers of a tunnel port that was added, if the provider's programs give some of
    /// them. They go on when the port was adopted.
    fn sequence_numbers(&self, port: PortNo) -> Option<Arc<dyn SequenceNumbers>> {
        let _ = port;
        None
    }

    /// Follows a change of an attached port's MTU, or of whether packets may be sent to it.
    fn update_port(&self, port: PortNo, mtu: u32, is_up: bool);

    /// Reads again the facts beyond [`OffloadPort`] that the decision about `port` depends on: the
    /// driver, features, the other end of a virtual device. True when [`OffloadProvider::attach`]
    /// would decide otherwise than at the last examination.
    fn examine(&self, port: &OffloadPort<'_>) -> bool {
        let _ = port;
        false
    }

    /// True when the decision about `port` depends on facts that may have changed at `ends`, so that
    /// the port must be examined.
    fn depends_on(&self, port: PortNo, ends: Ends<'_>) -> bool {
        let _ = (port, ends);
        false
    }

    /// Returns further lines about a port, for people.
    fn about_port(&self, port: PortNo) -> Vec<String> {
        let _ = port;
        Vec::new()
    }

    /// Sets the addresses to which packets of tunnels come: ports of [`Side::Underlay`] receive these
    /// packets alone, and all others stay with the host's stack. A provider that cannot
    /// distinguish them takes no packets of such ports.
    fn set_tunnel_endpoints(&self, endpoints: &[TunnelEndpoint]) {
        let _ = endpoints;
    }

    /// Takes the packets that come out of a tunnel device of the kernel as packets of `port`, a tunnel
    /// port, and gives the device packets that the provider cannot pop. `None` gives it no more; the
    /// packets that still come out of it are dropped, so the caller deletes the device afterwards.
    ///
    /// # Errors
    ///
    /// The reason for which no program could be attached. The device must not come up then, because its
    /// packets would reach the host's stack.
    fn set_tunnel_helper(&self, port: PortNo, helper: Option<&TunnelHelper>) -> Result<(), Reason> {
        let _ = (port, helper);
        Err(Reason::new(Refusal::TierUnavailable, "this tier needs no tunnel device"))
    }

    /// Follows a change of the device of the kernel whose packets are those of `port`, a tunnel port
    /// ([`TunnelHelper::device`]). With `None` the device is about to go.
    fn follow_tunnel_device(&self, port: PortNo, device: Option<u32>) {
        let _ = (port, device);
    }

    /// Returns the counts of the tunnel device of `port`; `None` without one.
    fn tunnel_helper_counts(&self, port: PortNo) -> Option<TunnelHelperCounts> {
        let _ = port;
        None
    }

    /// Gives the devices packets that cannot have outer headers while they are whole. `None`: such packets go
    /// up; the caller deletes the devices afterwards.
    ///
    /// # Errors
    ///
    /// The reason for which no program could be attached. The devices get no packets.
    fn set_segmenter(&self, segmenter: Option<&Segmenter>) -> Result<(), Reason> {
        let _ = segmenter;
        Err(Reason::new(Refusal::TierUnavailable, "this tier needs no segmenter"))
    }

    /// Returns the provider's counts of packets at a port that its device does not count: those
    /// between a port of [`Side::Stack`] and the host, and those that go past the device.
    fn port_counts(&self, port: PortNo) -> PortCounts {
        let _ = port;
        PortCounts::default()
    }

    /// Follows a change of [`flow::extract::vlan_limit`]: from now on keys follow the new limit.
    /// The existing flows are of no use and go. Afterwards placement attaches again all ports for
    /// which [`OffloadProvider::must_reattach`] holds. May take a second.
    ///
    /// # Errors
    ///
    /// The reason for which the provider cannot follow the limit; it then takes no flow.
    fn follow_vlan_limit(&self) -> Result<(), Reason> {
        Ok(())
    }

    /// True when a port must be attached again after [`OffloadProvider::follow_vlan_limit`].
    fn must_reattach(&self, port: PortNo) -> bool {
        let _ = port;
        false
    }

    // Flows.

    /// True when [`OffloadProvider::install`] may take longer than microseconds, as where a driver
    /// writes to a card. Placement then calls it from housekeeping only, for the busiest flows
    /// first; [`OffloadProvider::replace`] and [`OffloadProvider::remove_many`] are called where
    /// the flow changes.
    fn installs_later(&self) -> bool {
        false
    }

    /// Returns which of `allowed`, tiers of this provider, would run `flow`, judged by the flow's
    /// match and actions and by the room that they need. Makes no system call.
    fn suits(&self, flow: &Megaflow, allowed: TierSet) -> Verdict;

    /// Adds a flow with zero statistics at those of `allowed` that can run it. When none can,
    /// nothing has changed. A full table is [`Refusal::TableFull`]; a flow of the same identity
    /// that is still on its way out is [`Refusal::Exists`].
    fn install(&self, flow: &Megaflow, allowed: TierSet) -> Verdict;

    /// Gives an existing flow these actions, at those of `allowed` that can run them; its
    /// statistics go on. When none can, the flow stays as it was, and placement removes it.
    fn replace(&self, flow: &Megaflow, allowed: TierSet) -> Verdict;

    /// Removes flows and calls `each` for those that existed, lost ones too, with final statistics:
    /// no packet is counted later. May take milliseconds, about as many for a thousand flows as for
    /// one; a moment after the call begins, packets no longer meet the flows.
    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats));

    /// Calls `each` with the statistics of every flow, each once.
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats));

    /// Calls `each` with the statistics of every flow whose statistics changed since the last call
    /// of this method, each once; others may be among them. So it has one caller.
    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.sweep(each);
    }

    /// Returns the flows that the provider found to be lost since the last call, most often
    /// because the last sweep did not see them. Each is counted on as it was last seen until
    /// [`OffloadProvider::remove_many`].
    fn take_lost(&self) -> Vec<Ufid> {
        Vec::new()
    }

    /// Returns one flow. Its statistics may lack packets since the last sweep.
    fn flow(&self, ufid: Ufid) -> Option<HeldFlow>;

    /// Returns one flow's statistics, with all packets. May take milliseconds.
    fn stats(&self, ufid: Ufid) -> Option<FlowStats> {
        self.flow(ufid).map(|held| held.stats)
    }

    /// Returns a flow's actions; they may differ in form from the installed ones.
    fn actions(&self, ufid: Ufid) -> Option<Actions>;

    /// True when hardware runs the flow. Asked about flows of [`Tier::Tc`] only.
    fn is_in_hardware(&self, ufid: Ufid) -> bool {
        let _ = ufid;
        true
    }

    /// True when the flow exists and has the effect of `actions`.
    fn does(&self, ufid: Ufid, actions: &Actions) -> bool;

    /// Returns the number of flows.
    fn len(&self) -> usize;

    /// True when there is no flow.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the explanations of drivers or the kernel for refusals since the start, each with its
    /// count.
    fn explanations(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    // Meters: each provider limits by itself.

    /// Sets a meter.
    ///
    /// # Errors
    ///
    /// The provider cannot have this meter; placement keeps flows with it away.
    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        let _ = (id, config);
        Err(Refusal::UnsupportedAction)
    }

    /// Removes a meter and returns its last statistics.
    fn remove_meter(&self, id: u32) -> Option<MeterStats> {
        let _ = id;
        None
    }

    /// Returns a meter's statistics.
    fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        let _ = id;
        None
    }

    // Bonds. Called under the lock of placement's bonds; see [`crate::Bonds`].

    /// Sets or replaces the table of a bond. Its members are ports to which flows of the provider may
    /// output.
    ///
    /// # Errors
    ///
    /// The reason for which no tier of the provider sends to this bond. The provider does not have it
    /// then.
    fn set_bond(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        let _ = (id, table);
        Err(Refusal::Bond)
    }

    /// Removes a bond, if the provider has it.
    fn remove_bond(&self, id: u32) {
        let _ = id;
    }

    /// Returns the bytes that each bucket of a bond sent in the provider's tiers; `None`: the provider
    /// does not have the bond.
    fn bond_bytes(&self, id: u32) -> Option<BucketBytes> {
        let _ = id;
        None
    }

    /// Returns the bonds in tables that an earlier daemon left and that were taken over.
    fn adopted_bonds(&self) -> Vec<(u32, BondTable)> {
        Vec::new()
    }

    // The whole.

    /// Returns the way by which packets without a flow come to the userspace datapath, when they
    /// do not come there by themselves.
    fn misses(&self) -> Option<&dyn MissChannel> {
        None
    }

    /// Returns the packets that the provider dropped for `reason` since start.
    fn drops(&self, reason: DropReason) -> u64 {
        let _ = reason;
        0
    }

    /// Returns the lookups since start. Misses are the userspace datapath's to count.
    fn lookups(&self) -> LookupStats;

    /// Does housekeeping; called by one thread twice a second at most, and rarely while no packets
    /// come. May take a tenth of a second.
    fn maintain(&self) {}

    /// Ends. Without `cleanup` everything that can goes on forwarding without the daemon.
    fn close(&self, cleanup: bool);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_has_a_word_for_each_tier() {
        let known = TierSet::XDP_AND_TCX;
        assert_eq!(tier_setting(None, known), Ok(None));
        assert_eq!(tier_setting(Some("auto"), known), Ok(None));
        for tier in known.with(Tier::Userspace).tiers() {
            assert_eq!(tier_setting(Some(tier.name()), known), Ok(Some(tier)));
        }
        let error = tier_setting(Some("tc"), known).unwrap_err();
        let words = "other_config:tier: \"tc\" is not one of auto, xdp, tcx and userspace";
        assert_eq!(error, words);
        assert_eq!(tier_setting(Some("tc"), known.with(Tier::Tc)), Ok(Some(Tier::Tc)));
    }

    #[test]
    fn settings_are_those_of_providers() {
        let mut spec = PortSpec::default();
        spec.options.insert("bpf-object".into(), "/mine".into());
        spec.options.insert("other".into(), "1".into());
        spec.other_config.insert("tier".into(), "tcx".into());
        let keys = [SettingKey::Option("bpf-object"), SettingKey::OtherConfig("xdp-mode")];
        let settings = PortSettings::read(&spec, keys, TierSet::XDP_AND_TCX).unwrap();
        assert_eq!((settings.get("bpf-object"), settings.get("xdp-mode")), (Some("/mine"), None));
        assert_eq!(settings.get("other"), None);
        assert!(!settings.allow(Tier::Xdp) && settings.allow(Tier::Tcx));
        spec.other_config.insert("tier".into(), "fast".into());
        assert!(PortSettings::read(&spec, keys, TierSet::XDP_AND_TCX).is_err());
    }
}
