// SPDX-License-Identifier: Apache-2.0
//! The provider over a made-up kernel and card.

use super::*;
use crate::act::Act;
use crate::filter::{Counts, Filter, Policy};
use crate::kernel::{Existing, Facts, IngressQdisc};
use crate::policer::{Policer, PolicerCounts, Rate};
use datapath::{Action, MeterBand};
use flow::{Mask, Match};
use netdev::{Kind, Offload, Reception};
use netlink::Error;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A kernel with a card in it.
#[derive(Default)]
struct Made {
    /// Offload and switch of each device.
    devices: BTreeMap<u32, Facts>,
    qdiscs: BTreeMap<u32, IngressQdisc>,
    filters: BTreeMap<Place, Shown>,
    /// The policers that filters share.
    policers: BTreeMap<u32, (Policer, PolicerCounts)>,
    room: usize,
    /// An error and its words for the next requests to install.
    refuse: Option<(i32, &'static str)>,
    /// The words of a card that does not take filters which the kernel may run.
    declines: Option<&'static str>,
    /// As before Linux 6.11.
    lacks_df: bool,
    /// The next removals fail.
    is_stuck: bool,
}

impl Made {
    /// Has a new filter share its policers. Those that exist keep their rate.
    fn bind(&mut self, shown: &mut Shown) {
        let acts = shown.filter.iter_mut().flat_map(|filter| &mut filter.acts);
        for act in acts {
            let Act::Police(policer) = act else { continue };
            let (made, counts) =
                self.policers.entry(policer.index).or_insert((*policer, PolicerCounts::default()));
            *policer = *made;
            counts.filters += 1;
        }
    }

    fn with_policers(&self, shown: &Shown) -> Shown {
        let mut shown = shown.clone();
        for (index, counts) in &mut shown.policers {
            *counts = self.policers[index].1;
        }
        shown
    }

    /// Takes a removed filter from its policers. Its counts are those of the moment before.
    fn unbind(&mut self, shown: Shown) -> Shown {
        let shown = self.with_policers(&shown);
        for (index, _) in &shown.policers {
            let counts = &mut self.policers.get_mut(index).unwrap().1;
            counts.filters -= 1;
            if counts.filters == 0 {
                self.policers.remove(index);
            }
        }
        shown
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Made>>);

impl Shared {
    fn new() -> Shared {
        let card = Facts { offload: Offload::Off, switch: b"card".to_vec() };
        let other = Facts { offload: Offload::On, switch: b"else".to_vec() };
        let none = Facts { offload: Offload::Fixed, switch: Vec::new() };
        let devices = [(1, card.clone()), (2, card), (3, other), (4, none)].into();
        Shared(Arc::new(Mutex::new(Made { devices, room: 100, ..Made::default() })))
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap()
    }

    /// Has each policer drop some packets among those that it meets.
    fn police(&self, packets: u64, drops: u64) {
        for (_, counts) in self.made().policers.values_mut() {
            counts.packets += packets;
            counts.bytes += 100 * packets;
            counts.drops += drops;
        }
    }

    fn count(&self, packets: u64) {
        for shown in self.made().filters.values_mut() {
            shown.counts.packets += packets;
            shown.counts.bytes += 100 * packets;
        }
    }
}

fn error(errno: i32, words: &str) -> Error {
    let words = (!words.is_empty()).then(|| words.to_owned());
    Error { error: io::Error::from_raw_os_error(errno), words }
}

impl TrafficControl for Shared {
    fn facts(&mut self, ifindex: u32, _device: &str) -> Result<Facts, Error> {
        self.made().devices.get(&ifindex).cloned().ok_or_else(|| error(19, ""))
    }

    fn enable_offload(&mut self, device: &str) -> Result<Offload, Error> {
        let ifindex = device.trim_start_matches("card").parse().unwrap();
        self.made().devices.get_mut(&ifindex).unwrap().offload = Offload::On;
        Ok(Offload::On)
    }

    fn ingress_qdisc(&mut self, ifindex: u32) -> Result<IngressQdisc, Error> {
        Ok(self.made().qdiscs.get(&ifindex).copied().unwrap_or(IngressQdisc::None))
    }

    fn add_clsact(&mut self, ifindex: u32) -> Result<(), Error> {
        match self.made().qdiscs.insert(ifindex, IngressQdisc::Own) {
            None => Ok(()),
            Some(_) => Err(error(17, "")),
        }
    }

    fn remove_clsact(&mut self, ifindex: u32) -> Result<(), Error> {
        self.made().qdiscs.remove(&ifindex);
        self.made().filters.retain(|place, _| place.ifindex != ifindex);
        Ok(())
    }

    fn install(
        &mut self,
        filter: &Filter,
        existing: Existing,
    ) -> Result<(Shown, Option<String>), Error> {
        let mut made = self.made();
        if let Some((errno, words)) = made.refuse {
            return Err(error(errno, words));
        }
        if !made.qdiscs.contains_key(&filter.place.ifindex) {
            return Err(error(22, "Parent Qdisc doesn't exist"));
        }
        if made.filters.len() >= made.room && existing == Existing::Refuse {
            return Err(error(28, "the card is full"));
        }
        let shown = Shown::parse(&filter.message()).unwrap();
        let words = made.declines.filter(|_| filter.policy == Policy::Both).map(str::to_owned);
        let in_hw = words.is_none();
        let mut shown = Shown { in_hw, in_hw_count: in_hw.into(), ..shown };
        for act in shown.filter.iter_mut().flat_map(|filter| &mut filter.acts) {
            if let Act::SetTunnel(key) = act {
                key.has_df &= !made.lacks_df;
            }
        }
        made.bind(&mut shown);
        let before = made.filters.insert(filter.place, shown.clone());
        let before = before.map(|shown| made.unbind(shown));
        assert!(before.is_none() || existing == Existing::Replace);
        Ok((shown, words))
    }

    fn read(&mut self, place: &Place) -> Result<Option<Shown>, Error> {
        let made = self.made();
        Ok(made.filters.get(place).map(|shown| made.with_policers(shown)))
    }

    fn remove(&mut self, place: &Place) -> Result<Option<Shown>, Error> {
        let mut made = self.made();
        if made.is_stuck {
            return Err(error(16, "busy"));
        }
        let removed = made.filters.remove(place);
        Ok(removed.map(|shown| made.unbind(shown)))
    }

    fn filters(
        &mut self,
        ifindex: u32,
        hook: Hook,
        each: &mut dyn FnMut(Shown),
    ) -> Result<(), Error> {
        let made = self.made();
        let of_device = made.filters.values();
        let here = |place: &Place| (place.ifindex, place.hook) == (ifindex, hook);
        let here = of_device.filter(|shown| here(&shown.place));
        here.map(|shown| made.with_policers(shown)).for_each(each);
        Ok(())
    }

    fn count(&mut self, ifindex: u32, hook: Hook) -> Result<usize, Error> {
        let mut count = 0;
        self.filters(ifindex, hook, &mut |_| count += 1)?;
        Ok(count)
    }

    fn devices(&mut self) -> Result<Vec<u32>, Error> {
        Ok(self.made().qdiscs.keys().copied().collect())
    }
}

/// A socket that no port of a card uses.
struct NoSocket;

impl PortSocket for NoSocket {
    fn reception(&self) -> Reception {
        Reception::On
    }
    fn set_receive(&mut self, _reception: Reception) -> bool {
        panic!("a card leaves the socket alone")
    }
    fn has_filter(&self) -> bool {
        false
    }
    fn install_filter(&mut self, _filter: BorrowedFd<'_>) {}
}

fn attach(provider: &CardProvider, number: u32, settings: &PortSettings) -> Result<(), Refusal> {
    attach_side(provider, number, settings, datapath::Side::Device)
}

fn attach_side(
    provider: &CardProvider,
    number: u32,
    settings: &PortSettings,
    side: datapath::Side,
) -> Result<(), Refusal> {
    let name = format!("card{number}");
    let port = OffloadPort {
        number: PortNo(number),
        name: &name,
        device: &name,
        kind: Kind::System,
        side,
        ifindex: Some(number),
        mtu: 1500,
        is_up: true,
        policing: netdev::Policing::default(),
        egress: datapath::EgressQos::None,
        settings,
        ingress: Ok(()),
        is_after_filters: false,
    };
    let attached = provider.attach(&port, &mut NoSocket);
    assert_eq!(attached.needs_taker, provider.is_in_kernel(PortNo(number)));
    let [state] = &attached.tiers[..] else { panic!("{attached:?}") };
    state.ingress.clone().map_err(|reason| reason.refusal)
}

/// A provider with the ports 1 and 2 of one card, and 3 of another.
fn bench() -> (CardProvider, Shared) {
    let kernel = Shared::new();
    let provider = CardProvider::new(Box::new(kernel.clone()), Clock::new());
    for number in 1..=3 {
        assert_eq!(attach(&provider, number, &PortSettings::default()), Ok(()));
    }
    (provider, kernel)
}

fn flow(ufid: u128, actions: Vec<Action>) -> Megaflow {
    let mut key = flow::Key { dl_type: 0x0800.into(), ..flow::Key::default() };
    key.in_port = 1.into();
    key.nw_dst = u32::try_from(ufid).unwrap().into();
    let mut mask = Mask::WILDCARD;
    for field in [flow::Field::InPortOxm, flow::Field::RecircId, flow::Field::PacketType] {
        mask.set_exact(field);
    }
    mask.0.dl_type = u16::MAX.into();
    mask.0.nw_dst = u32::MAX.into();
    mask.0.vlans[0].tci = u16::MAX.into();
    Megaflow { ufid: Ufid(ufid), matching: Match::new(&key, &mask), actions: actions.into() }
}

fn to(port: u32) -> Vec<Action> {
    vec![Action::Output(PortNo(port))]
}

fn install(provider: &CardProvider, flow: &Megaflow) -> Result<Tier, Refusal> {
    provider.install(flow, CARD).outcome()
}

fn removed(provider: &CardProvider, ufid: u128) -> Option<u64> {
    let mut packets = None;
    provider.remove_many(&[Ufid(ufid)], &mut |_, stats| packets = Some(stats.packets));
    packets
}

#[test]
fn a_flow_is_installed_counted_and_removed() {
    let (provider, kernel) = bench();
    assert_eq!(install(&provider, &flow(1, to(2))), Ok(Tier::Tc));
    assert_eq!(install(&provider, &flow(1, to(2))), Err(Refusal::Exists));
    kernel.count(3);
    assert_eq!(provider.stats(Ufid(1)).unwrap().packets, 3);
    kernel.count(1);
    let stats = provider.stats(Ufid(1)).unwrap();
    assert_eq!((stats.packets, stats.bytes), (4, 400));
    assert!(stats.used > clock::Millis(0));
    kernel.count(1);
    assert_eq!(removed(&provider, 1), Some(5), "those since the last read, too");
    assert_eq!((removed(&provider, 1), provider.len()), (None, 0));
    assert!(kernel.made().filters.is_empty());
    assert_eq!(provider.lookups().hits, 5);
}

#[test]
fn a_dropping_flow_counts_its_reason() {
    let (provider, kernel) = bench();
    assert_eq!(install(&provider, &flow(1, vec![])), Ok(Tier::Tc));
    let reason = DropReason::TranslationError;
    assert_eq!(install(&provider, &flow(2, vec![Action::Drop(reason)])), Ok(Tier::Tc));
    kernel.count(2);
    provider.sweep(&mut |_, stats| assert_eq!(stats.packets, 2));
    assert_eq!((provider.drops(DropReason::Flow), provider.drops(reason)), (2, 2));
}

#[test]
fn other_actions_replace_the_filter_and_counts_go_on() {
    let (provider, kernel) = bench();
    install(&provider, &flow(1, to(2))).unwrap();
    kernel.count(3);
    let other = flow(1, to(1));
    assert_eq!(provider.replace(&other, CARD).outcome(), Ok(Tier::Tc));
    assert!(provider.does(Ufid(1), &other.actions));
    assert_eq!(provider.stats(Ufid(1)).unwrap().packets, 3);
    kernel.count(2);
    assert_eq!(removed(&provider, 1), Some(5));
    assert_eq!(provider.replace(&other, CARD).outcome(), Err(Refusal::Lost));
}

#[test]
fn refusals_keep_the_explanation() {
    let (provider, kernel) = bench();
    for (errno, words, refusal) in [
        (95, "mycard: no such action", Refusal::CardRefused),
        (28, "mycard: no room", Refusal::TableFull),
        (19, "", Refusal::PortNotHere),
        (1, "", Refusal::NoPermission),
    ] {
        kernel.made().refuse = Some((errno, words));
        assert_eq!(install(&provider, &flow(1, to(2))), Err(refusal));
        assert_eq!(provider.len(), 0);
        let explanations = provider.explanations();
        assert!(words.is_empty() || explanations.contains(&(words.to_owned(), 1)));
    }
    kernel.made().refuse = None;
    let elsewhere = provider.suits(&flow(1, to(3)), CARD);
    assert_eq!(elsewhere.outcome(), Err(Refusal::OtherSwitch));
    let recirculates = provider.suits(&flow(1, vec![Action::Recirc(7)]), CARD);
    assert_eq!(recirculates.outcome(), Err(Refusal::UnsupportedAction));
    kernel.made().room = 1;
    install(&provider, &flow(1, to(2))).unwrap();
    assert_eq!(install(&provider, &flow(2, to(2))), Err(Refusal::TableFull));
}

#[test]
fn a_filter_that_others_remove_is_lost() {
    let (provider, kernel) = bench();
    for ufid in 1..=3 {
        install(&provider, &flow(ufid, to(2))).unwrap();
    }
    kernel.count(4);
    provider.sweep(&mut |_, _| {});
    assert_eq!(provider.take_lost(), []);
    {
        let mut made = kernel.made();
        made.filters.pop_first();
        made.filters.values_mut().next().unwrap().in_hw = false;
    }
    provider.state().next_sweep = None;
    let mut all = Vec::new();
    provider.sweep(&mut |ufid, stats| all.push((ufid, stats.packets)));
    all.sort();
    assert_eq!(all, [(Ufid(1), 4), (Ufid(2), 4), (Ufid(3), 4)]);
    let mut lost = provider.take_lost();
    lost.sort();
    assert_eq!(lost, [Ufid(1), Ufid(2)]);
    assert_eq!((removed(&provider, 1), removed(&provider, 2)), (Some(4), Some(4)));
    assert_eq!(kernel.made().filters.len(), 1);
    // The qdisc, too: it is made again.
    kernel.made().qdiscs.remove(&1);
    assert_eq!(install(&provider, &flow(4, to(2))), Ok(Tier::Tc));
}

#[test]
fn a_filter_that_the_kernel_keeps_is_removed_later() {
    let (provider, kernel) = bench();
    install(&provider, &flow(1, to(2))).unwrap();
    kernel.made().is_stuck = true;
    assert_eq!(removed(&provider, 1), Some(0));
    install(&provider, &flow(2, to(2))).unwrap();
    assert_eq!(kernel.made().filters.len(), 2, "another place");
    provider.maintain();
    assert_eq!(kernel.made().filters.len(), 2);
    kernel.made().is_stuck = false;
    provider.maintain();
    assert_eq!(kernel.made().filters.len(), 1);
}

#[test]
fn ports_that_are_none_of_a_card_have_a_reason() {
    let (provider, kernel) = bench();
    let none = PortSettings::default();
    assert_eq!(attach(&provider, 4, &none), Err(Refusal::DeviceKind));
    assert_eq!(attach(&provider, 5, &none), Err(Refusal::DeviceKind), "no such device");
    provider.remove_port(PortNo(3));
    kernel.made().qdiscs.insert(3, IngressQdisc::Shared(8));
    assert_eq!(attach(&provider, 3, &none), Err(Refusal::HookBusy));
    let spec = |name: &str, value: &str| {
        let other_config = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let spec = datapath::PortSpec { other_config, ..datapath::PortSpec::default() };
        let slot = provider_slot();
        let known = CARD.union(TierSet::XDP_AND_TCX);
        let settings = PortSettings::read(&spec, slot.keys.iter().copied(), known).unwrap();
        (slot.check)(&settings).map(|()| settings)
    };
    let xdp = spec("tier", "xdp").unwrap();
    assert_eq!(attach(&provider, 1, &xdp), Err(Refusal::TierSetting));
    let off = spec("hw-offload-priority", "none").unwrap();
    assert_eq!(attach(&provider, 1, &off), Err(Refusal::TierSetting));
    assert!(spec("hw-offload-priority", "dpdk, card").is_err());
    let on = spec("hw-offload-priority", "dpdk,tc").unwrap();
    assert_eq!(attach(&provider, 1, &on), Ok(()));
    // It was enabled once; somebody has disabled it since.
    kernel.made().devices.get_mut(&1).unwrap().offload = Offload::Off;
    assert_eq!(attach(&provider, 1, &none), Err(Refusal::CardOff));
}

#[test]
fn only_own_filters_are_removed() {
    let (provider, kernel) = bench();
    install(&provider, &flow(1, to(2))).unwrap();
    let own = kernel.made().filters.values().next().unwrap().clone();
    let foreign = [
        Place { handle: 1, ..own.place },
        Place { priority: 1, ..own.place },
        Place { priority: *PRIORITIES.end() + 1, ..own.place },
    ];
    let left = Place { handle: own.place.handle + 7, hook: Hook::Egress, ..own.place };
    for place in foreign.into_iter().chain([left]) {
        kernel.made().filters.insert(place, Shown { place, ..own.clone() });
    }
    provider.remove_port(PortNo(1));
    let there: Vec<Place> = kernel.made().filters.keys().copied().collect();
    assert_eq!(there.len(), 3, "{there:?}");
    assert!(foreign.iter().all(|place| there.contains(place)));
    assert!(kernel.made().qdiscs.contains_key(&1), "it has filters");
    provider.remove_port(PortNo(2));
    assert!(!kernel.made().qdiscs.contains_key(&2));
}

#[test]
fn each_ethernet_type_has_a_priority() {
    let (provider, kernel) = bench();
    let of_type = |ethertype: u16| {
        let mut flow = flow(ethertype.into(), to(2));
        let mut key = *flow.matching.key();
        key.dl_type = ethertype.into();
        let mut mask = *flow.matching.mask();
        mask.0.nw_dst = 0.into();
        flow.matching = Match::new(&key, &mask);
        flow
    };
    for ethertype in 0x9000..0x900c {
        install(&provider, &of_type(ethertype)).unwrap();
    }
    let pairs: std::collections::BTreeSet<(u16, u16)> =
        kernel.made().filters.keys().map(|p| (p.priority, p.protocol)).collect();
    assert_eq!(pairs.len(), 12);
    assert_eq!(install(&provider, &of_type(0x900c)), Err(Refusal::UnsupportedKey));
    removed(&provider, 0x9004);
    assert_eq!(install(&provider, &of_type(0x900c)), Ok(Tier::Tc));
    let count = |counts: Counts| counts.packets;
    assert!(kernel.made().filters.values().all(|shown| count(shown.counts) == 0));
}

fn limit(packets: bool, rate: u32, burst: u32) -> MeterConfig {
    MeterConfig { packets, bands: vec![MeterBand { rate, burst }] }
}

fn metered(ufid: u128, meter: u32) -> Megaflow {
    flow(ufid, vec![Action::Meter(meter), Action::Output(PortNo(2))])
}

/// Packets and drops of a meter.
fn meter(provider: &CardProvider, id: u32) -> (u64, u64) {
    provider.state().next_sweep = None;
    let stats = provider.meter_stats(id).unwrap();
    let [(drops, 0)] = stats.bands[..] else { panic!("{stats:?}") };
    assert_eq!(stats.bytes, 100 * stats.packets);
    (stats.packets, drops)
}

#[test]
fn flows_share_the_policer_of_their_meter() {
    let (provider, kernel) = bench();
    assert_eq!(install(&provider, &metered(1, 5)), Err(Refusal::UnsupportedAction));
    assert_eq!(provider.meter_stats(5), None);
    provider.set_meter(5, &limit(true, 1000, 2000)).unwrap();
    provider.set_meter(6, &limit(false, 8, 0)).unwrap();
    install(&provider, &metered(1, 5)).unwrap();
    install(&provider, &metered(2, 5)).unwrap();
    let both: Vec<Policer> = kernel.made().policers.values().map(|(policer, _)| *policer).collect();
    let expected = Policer { index: HANDLE | 1, rate: Rate::Packets(1000), burst: 2 * 15_625_000 };
    assert_eq!(both, [expected]);
    kernel.count(7);
    kernel.police(20, 6);
    assert_eq!(meter(&provider, 5), (20, 6));
    assert_eq!(meter(&provider, 6), (0, 0));
    assert_eq!(provider.stats(Ufid(1)).unwrap().packets, 7, "its own packets");
    assert_eq!(provider.drops(DropReason::Meter), 6);
    // The policer ends with its last filter, and its counts stay.
    removed(&provider, 1);
    kernel.police(1, 1);
    removed(&provider, 2);
    assert!(kernel.made().policers.is_empty());
    assert_eq!(meter(&provider, 5), (21, 7));
    install(&provider, &metered(3, 5)).unwrap();
    kernel.police(50, 8);
    assert_eq!(meter(&provider, 5), (71, 15));
    // Likewise when other actions take the place of the last.
    provider.replace(&flow(3, to(2)), CARD).outcome().unwrap();
    assert!(kernel.made().policers.is_empty());
    provider.replace(&metered(3, 5), CARD).outcome().unwrap();
    kernel.police(60, 10);
    assert_eq!(meter(&provider, 5), (131, 25));
    assert_eq!(provider.drops(DropReason::Meter), 25);
    assert_eq!(provider.remove_meter(5).unwrap().packets, 131);
    assert_eq!(provider.meter_stats(5), None);
}

#[test]
fn another_rate_is_another_policer_and_flows_are_offered_again() {
    let (provider, kernel) = bench();
    provider.set_meter(5, &limit(false, 8000, 16_000)).unwrap();
    for ufid in 1..=2 {
        install(&provider, &metered(ufid, 5)).unwrap();
    }
    install(&provider, &flow(3, to(2))).unwrap();
    kernel.police(9, 9);
    assert_eq!(meter(&provider, 5), (9, 9));
    provider.set_meter(5, &limit(false, 80, 0)).unwrap();
    assert_eq!(meter(&provider, 5), (0, 0), "from zero");
    let mut lost = provider.take_lost();
    lost.sort();
    assert_eq!(lost, [Ufid(1), Ufid(2)]);
    for ufid in 1..=2 {
        removed(&provider, ufid);
        install(&provider, &metered(ufid, 5)).unwrap();
    }
    let all: Vec<Policer> = kernel.made().policers.values().map(|(policer, _)| *policer).collect();
    let burst = 15_625_000;
    assert_eq!(all, [Policer { index: HANDLE | 2, rate: Rate::Bytes(10_000), burst }]);
    // Without the meter its flows have no place here.
    provider.remove_meter(5);
    assert_eq!(provider.take_lost().len(), 2);
    removed(&provider, 1);
    assert_eq!(install(&provider, &metered(1, 5)), Err(Refusal::UnsupportedAction));
}

#[test]
fn a_policer_of_another_rate_is_refused() {
    let (provider, kernel) = bench();
    provider.set_meter(5, &limit(true, 10, 10)).unwrap();
    let other = Policer { index: HANDLE | 1, rate: Rate::Packets(1), burst: 1 };
    let counts = PolicerCounts { filters: 1, ..PolicerCounts::default() };
    kernel.made().policers.insert(other.index, (other, counts));
    assert_eq!(install(&provider, &metered(1, 5)), Err(Refusal::CardRefused));
    assert!(kernel.made().filters.is_empty());
}

#[test]
fn meters_that_no_policer_does_are_refused_with_words() {
    let (provider, _kernel) = bench();
    let two = MeterConfig { bands: vec![MeterBand { rate: 1, burst: 1 }; 2], packets: true };
    let none = MeterConfig::default();
    for (config, words) in [
        (two, "not one band"),
        (none, "not one band"),
        (limit(true, 0, 5), "no rate of zero"),
        (limit(false, 1, 300), "274 seconds"),
    ] {
        assert_eq!(provider.set_meter(9, &config), Err(Refusal::UnsupportedAction));
        let said = provider.explanations();
        assert!(said.iter().any(|(said, _)| said.contains(words)), "{words}: {said:?}");
    }
    assert_eq!(provider.meter_stats(9), None);
    provider.set_meter(9, &limit(true, 1, 300)).unwrap();
}

/// A provider as [`bench`] makes it, with a tunnel whose device is 4 and whose outer packets leave by
/// the device 2.
fn tunnel_bench() -> (CardProvider, Shared) {
    let (provider, kernel) = bench();
    provider.remove_port(PortNo(2));
    let side = datapath::Side::Underlay;
    let attached = attach_side(&provider, 2, &PortSettings::default(), side);
    assert_eq!(attached, Err(Refusal::DeviceKind), "it has no filters");
    let config = tunnel::PortConfig::new(tunnel::Kind::Vxlan);
    assert_eq!(provider.add_tunnel(TUNNEL, &config), CARD);
    provider.follow_tunnel_device(TUNNEL, Some(4));
    (provider, kernel)
}

const TUNNEL: PortNo = PortNo(20);

/// A flow of packets from the tunnel.
fn tunnel_flow(ufid: u128) -> Megaflow {
    let flow = flow(ufid, to(1));
    let (mut key, mut mask) = (*flow.matching.key(), *flow.matching.mask());
    key.in_port = TUNNEL.0.into();
    (key.tunnel.id, mask.0.tunnel.id) = (7.into(), u64::MAX.into());
    Megaflow { matching: Match::new(&key, &mask), ..flow }
}

#[test]
fn flows_of_a_tunnel_have_filters_at_its_device_that_the_kernel_may_run() {
    let (provider, kernel) = tunnel_bench();
    assert_eq!(install(&provider, &tunnel_flow(1)), Ok(Tier::Tc));
    let shown = kernel.made().filters.values().next().unwrap().clone();
    assert_eq!(shown.place.ifindex, 4);
    let filter = shown.filter.unwrap();
    assert_eq!((filter.policy, &filter.acts[0]), (Policy::Both, &Act::ReleaseTunnel));
    kernel.count(3);
    assert_eq!(removed(&provider, 1), Some(3));
}

#[test]
fn a_filter_that_the_kernel_would_run_alone_is_removed() {
    let (provider, kernel) = tunnel_bench();
    kernel.made().declines = Some("mycard: no tunnels");
    assert_eq!(install(&provider, &tunnel_flow(1)), Err(Refusal::CardRefused));
    assert!(kernel.made().filters.is_empty());
    assert_eq!(provider.explanations(), [("mycard: no tunnels".to_owned(), 1)]);
}

#[test]
fn flows_of_a_tunnel_are_lost_with_its_device() {
    let (provider, kernel) = tunnel_bench();
    install(&provider, &tunnel_flow(1)).unwrap();
    provider.follow_tunnel_device(TUNNEL, None);
    assert!(kernel.made().filters.is_empty() && !kernel.made().qdiscs.contains_key(&4));
    assert_eq!(provider.take_lost(), [Ufid(1)]);
    assert_eq!(removed(&provider, 1), Some(0));
    assert_eq!(install(&provider, &tunnel_flow(2)), Err(Refusal::PortNotHere));
    provider.follow_tunnel_device(TUNNEL, Some(4));
    assert_eq!(install(&provider, &tunnel_flow(2)), Ok(Tier::Tc));
    provider.remove_port(TUNNEL);
    assert!(kernel.made().filters.is_empty());
}

#[test]
fn a_kernel_that_does_not_know_df_takes_flows_into_tunnels() {
    let (provider, kernel) = tunnel_bench();
    let parts = tunnel::HeaderParts {
        eth_dst: [2; 6],
        eth_src: [4; 6],
        ip: tunnel::OuterIp::V4 {
            src: [10, 1, 0, 1].into(),
            dst: [10, 1, 0, 2].into(),
            tos: 0,
            ttl: 64,
            fragment: 0x4000,
        },
        encapsulation: tunnel::Encapsulation::Vxlan {
            udp: tunnel::Udp {
                dst: 4789,
                has_checksum: false,
                sources: tunnel::SourcePorts::default(),
            },
            flags: 0x0800_0000,
            vni: 7,
        },
    };
    let header = Arc::new(tunnel::Header::new(parts).unwrap());
    let (tunnel_port, out_port) = (TUNNEL, PortNo(2));
    let push = Action::TunnelPush { header, tunnel_port, out_port };
    let actions = vec![push, Action::Output(out_port)];
    for (ufid, lacks_df) in [(1, false), (2, true)] {
        kernel.made().lacks_df = lacks_df;
        assert_eq!(install(&provider, &flow(ufid, actions.clone())), Ok(Tier::Tc));
    }
    let made = kernel.made();
    let acts = made.filters.values().map(|shown| &shown.filter.as_ref().unwrap().acts[0]);
    let has_df: Vec<bool> =
        acts.map(|act| matches!(act, Act::SetTunnel(key) if key.has_df)).collect();
    assert_eq!(has_df, [true, false]);
}

#[test]
fn a_tunnel_and_its_flows_are_of_one_card() {
    let (provider, _kernel) = tunnel_bench();
    let other = Megaflow { actions: to(3).into(), ..tunnel_flow(1) };
    assert_eq!(install(&provider, &other), Err(Refusal::OtherSwitch));
    assert_eq!(install(&provider, &flow(2, to(2))), Err(Refusal::PortNotHere), "not to the host's");
    provider.remove_port(PortNo(2));
    assert_eq!(install(&provider, &tunnel_flow(1)), Err(Refusal::PortNotHere), "no underlay");
    let config = tunnel::PortConfig::new(tunnel::Kind::Erspan);
    assert!(provider.add_tunnel(PortNo(21), &config).is_empty());
}

fn asking() -> PortSettings {
    let other_config = BTreeMap::from([("tier".to_owned(), "tc".to_owned())]);
    let spec = datapath::PortSpec { other_config, ..datapath::PortSpec::default() };
    PortSettings::read(&spec, [], CARD.union(TierSet::XDP_AND_TCX)).unwrap()
}

/// A provider with the ports 4 and 1, of which 4 is none of a card. Both ask for filters in the kernel.
fn kernel_bench() -> (CardProvider, Shared) {
    let kernel = Shared::new();
    let provider = CardProvider::new(Box::new(kernel.clone()), Clock::new());
    kernel.made().declines = Some("no driver");
    for number in [4, 1] {
        assert_eq!(attach(&provider, number, &asking()), Ok(()));
    }
    (provider, kernel)
}

fn from_4(ufid: u128, actions: Vec<Action>) -> Megaflow {
    let mut flow = flow(ufid, actions);
    let mut key = *flow.matching.key();
    key.in_port = 4.into();
    flow.matching = Match::new(&key, flow.matching.mask());
    flow
}

#[test]
fn a_port_that_asks_for_it_has_filters_in_the_kernel() {
    let (provider, kernel) = kernel_bench();
    assert!(provider.is_in_kernel(PortNo(4)) && provider.is_in_kernel(PortNo(1)));
    assert_eq!(install(&provider, &from_4(1, to(1))), Ok(Tier::Tc));
    let place = *kernel.made().filters.keys().next().unwrap();
    assert_eq!(kernel.made().filters[&place].filter.as_ref().unwrap().policy, Policy::Both);
    assert!(!provider.is_in_hardware(Ufid(1)));
    kernel.count(3);
    let stats = provider.stats(Ufid(1)).unwrap();
    assert_eq!((stats.packets, stats.bytes), (3, 3 * 114), "with the Ethernet header");
    provider.sweep(&mut |_, _| {});
    assert_eq!(provider.take_lost(), [], "no card needs to have it");
    // A card that takes it: the driver counts the link header.
    kernel.made().declines = None;
    assert_eq!(install(&provider, &flow(2, to(4))), Ok(Tier::Tc));
    assert!(provider.is_in_hardware(Ufid(2)));
    {
        let mut made = kernel.made();
        let held = made.filters.values_mut().find(|shown| shown.place.ifindex == 1).unwrap();
        held.counts = Counts { packets: 2, bytes: 214, card_packets: 1, card_bytes: 114 };
    }
    assert_eq!(provider.stats(Ufid(2)).unwrap().bytes, 228);
}

#[test]
fn the_policy_decides_where_filters_are() {
    let (provider, kernel) = kernel_bench();
    provider.set_policy(Policy::SkipHardware);
    assert_eq!(attach(&provider, 4, &asking()), Ok(()));
    assert_eq!(attach(&provider, 1, &PortSettings::default()), Err(Refusal::TierDisabled));
    assert_eq!(install(&provider, &from_4(1, to(4))), Ok(Tier::Tc));
    let policies = |kernel: &Shared| -> Vec<Policy> {
        kernel.made().filters.values().map(|shown| shown.filter.as_ref().unwrap().policy).collect()
    };
    assert_eq!(policies(&kernel), [Policy::SkipHardware]);
    assert_eq!(removed(&provider, 1), Some(0), "placement withdraws flows before");
    provider.set_policy(Policy::SkipSoftware);
    assert_eq!(attach(&provider, 4, &asking()), Err(Refusal::DeviceKind));
    assert_eq!(attach(&provider, 1, &asking()), Ok(()));
    assert!(kernel.made().filters.is_empty() && !provider.is_in_kernel(PortNo(1)));
    assert_eq!(install(&provider, &flow(1, to(1))), Ok(Tier::Tc));
    assert_eq!(policies(&kernel), [Policy::SkipSoftware]);
}

#[test]
fn the_kernel_gets_no_flow_that_it_would_run_otherwise() {
    let (provider, _) = kernel_bench();
    let suits = |flow: &Megaflow| provider.suits(flow, CARD).outcome();
    assert_eq!(suits(&from_4(1, to(1))), Ok(Tier::Tc));
    // A packet that is too long for a port.
    let small = PortSettings::default();
    let port = OffloadPort {
        number: PortNo(2),
        name: "card2",
        device: "card2",
        kind: Kind::System,
        side: datapath::Side::Device,
        ifindex: Some(2),
        mtu: 1400,
        is_up: true,
        policing: netdev::Policing::default(),
        egress: datapath::EgressQos::None,
        settings: &small,
        ingress: Ok(()),
        is_after_filters: false,
    };
    provider.attach(&port, &mut NoSocket);
    assert_eq!(suits(&from_4(1, to(2))), Err(Refusal::UnsupportedAction));
    // A mark, which packets of the kernel may have.
    let marked = |mut flow: Megaflow| {
        let mut mask = *flow.matching.mask();
        mask.0.pkt_mark = u32::MAX.into();
        flow.matching = Match::new(flow.matching.key(), &mask);
        flow
    };
    assert_eq!(suits(&marked(from_4(1, to(1)))), Err(Refusal::UnsupportedKey));
    // A meter, which the kernel's policer does not do exactly.
    let band = MeterBand { rate: 100, burst: 10 };
    let _ = provider.set_meter(7, &MeterConfig { bands: vec![band], packets: true });
    let metered = vec![Action::Meter(7), Action::Output(PortNo(1))];
    assert_eq!(suits(&from_4(1, metered)), Err(Refusal::UnsupportedAction));
}
