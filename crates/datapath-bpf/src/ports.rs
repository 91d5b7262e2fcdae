// SPDX-License-Identifier: Apache-2.0
//! Ports and interfaces in the shared arrays. Port numbers are below [`MAX_PORTS`]; the caller
//! checks that.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attachment::{AttachError, Attachment, RxOwner};
use crate::layout::{
    IFACE_DAEMONS, IFACE_FLAGS, IFACE_GENERIC, IFACE_NOTED, IFACE_POLICED, IFACE_PROBES, IFACES,
    Iface, MAX_PORTS, MeterBand, PORT_DEVMAP, PORT_PEER, PORT_SPLIT, PORT_STACK, PORT_UNDERLAY,
    PORT_UP, Policer, Port, TunnelKind,
};
use crate::maps::Maps;
use crate::meters;
use datapath::offload::{TunnelHelperCounts, UpcallAccount};
use datapath::{AdoptedPort, PortCounts, PortNo, SequenceNumbers, Side};
use netdev::Policing;
use packet::Mac;
use tunnel::{Kind, PortConfig};

/// Returns the side of the device that is the switch's, by the `PORT_*` flags of its port.
pub(crate) fn side_of(flags: u32) -> Side {
    match () {
        () if flags & PORT_STACK != 0 => Side::Stack,
        () if flags & PORT_UNDERLAY != 0 => Side::Underlay,
        () => Side::Device,
    }
}

fn places(ifindex: u32) -> impl Iterator<Item = usize> {
    (0..IFACE_PROBES).map(move |step| (ifindex.wrapping_add(step) % IFACES) as usize)
}

fn flags(owner: RxOwner) -> u32 {
    match owner {
        RxOwner::Socket => IFACE_DAEMONS | IFACE_NOTED,
        RxOwner::Programs => IFACE_NOTED,
        RxOwner::ProgramsAlone => 0,
    }
}

fn leads_to(held: Iface, ifindex: u32, port: u32) -> bool {
    held.ifindex == ifindex && held.port & !IFACE_FLAGS == port
}

/// Makes `ifindex` lead to `port`, and sets the owner of the packets that arrive there.
///
/// # Errors
///
/// Fails when the table has no room near `ifindex`.
pub(crate) fn set_rx_owner(
    maps: &Maps,
    ifindex: u32,
    port: u32,
    owner: RxOwner,
) -> Result<(), AttachError> {
    let held = |at: &usize| maps.ifaces.read(*at);
    let at = places(ifindex)
        .find(|at| held(at).ifindex == ifindex)
        .or_else(|| places(ifindex).find(|at| held(at).ifindex == 0))
        .ok_or(AttachError::Interfaces(ifindex))?;
    let old = held(&at);
    let stays = IFACE_GENERIC | IFACE_POLICED;
    let kept = if leads_to(old, ifindex, port) { old.port & stays } else { 0 };
    maps.ifaces.write(at, &Iface { ifindex, port: port | kept | flags(owner) });
    Ok(())
}

/// Records whether generic XDP is attached at `ifindex`, when that leads to `port`.
pub(crate) fn set_generic(maps: &Maps, ifindex: u32, port: u32, is_attached: bool) {
    set_interface_flag(maps, ifindex, port, IFACE_GENERIC, is_attached);
}

fn set_interface_flag(maps: &Maps, ifindex: u32, port: u32, flag: u32, on: bool) {
    for at in places(ifindex) {
        let held = maps.ifaces.read(at);
        if leads_to(held, ifindex, port) {
            let others = held.port & !flag;
            let port = if on { others | flag } else { others };
            maps.ifaces.write(at, &Iface { ifindex, port });
        }
    }
}

/// Limits the packets that arrive at `ifindex`, when that leads to `port`, which then begins with full
/// buckets.
pub(crate) fn set_policing(maps: &Maps, ifindex: u32, port: u32, policing: Policing) {
    // The costs come last: without one, a program does not use the rest.
    let bands = [offset_of!(Policer, bits), offset_of!(Policer, packets)];
    for (at, limit) in bands.into_iter().zip([policing.bits(), policing.packets()]) {
        let word = |field| maps.policers.word(port as usize, at + field);
        word(offset_of!(MeterBand, cost)).store(0, Ordering::SeqCst);
        let Some((cost, depth)) = limit.and_then(|(rate, burst)| meters::bucket(rate, burst))
        else {
            continue;
        };
        word(offset_of!(MeterBand, tat)).store(0, Ordering::SeqCst);
        word(offset_of!(MeterBand, depth)).store(depth, Ordering::SeqCst);
        word(offset_of!(MeterBand, cost)).store(cost, Ordering::SeqCst);
    }
    set_interface_flag(maps, ifindex, port, IFACE_POLICED, policing.is_on());
}

/// Makes `ifindex` lead to `port`, for the programs alone. Keeps the owner that [`set_rx_owner`]
/// has set.
///
/// # Errors
///
/// Fails when the table has no room near `ifindex`.
pub(crate) fn add_interface(maps: &Maps, ifindex: u32, port: u32) -> Result<(), AttachError> {
    if places(ifindex).any(|at| leads_to(maps.ifaces.read(at), ifindex, port)) {
        return Ok(());
    }
    set_rx_owner(maps, ifindex, port, RxOwner::ProgramsAlone)
}

/// Removes `ifindex` from the table when it leads to `port`.
pub(crate) fn remove_interface(maps: &Maps, ifindex: u32, port: u32) {
    for at in places(ifindex) {
        if leads_to(maps.ifaces.read(at), ifindex, port) {
            maps.ifaces.zero(at);
        }
    }
}

/// Returns true when the programs own the packets that arrive at `ifindex`, as packets of `port`.
pub(crate) fn owns_rx(maps: &Maps, ifindex: u32, port: u32) -> bool {
    let ours = |held: Iface| leads_to(held, ifindex, port) && held.port & IFACE_DAEMONS == 0;
    places(ifindex).any(|at| ours(maps.ifaces.read(at)))
}

/// Writes a port. For a new port, its count of packets on their way up restarts.
pub(crate) fn put(maps: &Maps, number: u32, attachment: &Attachment, upcall_limit: u32) {
    let at = number as usize;
    let old = maps.ports.read(at);
    let mut flags = old.flags & (PORT_DEVMAP | PORT_SPLIT);
    maps.ports.store(at, offset_of!(Port, tunnel), 0); // and `tunnel_helper`
    flags |= if attachment.up { PORT_UP } else { 0 };
    flags |= match attachment.side {
        Side::Device => 0,
        Side::Stack => PORT_STACK,
        Side::Underlay => PORT_UNDERLAY,
    };
    maps.ports.store_half(at, offset_of!(Port, mtu), attachment.mtu);
    maps.ports.store_half(at, offset_of!(Port, upcall_limit), upcall_limit);
    if old.ifindex == 0 {
        mark_all_taken(maps, number);
        for account in UpcallAccount::ALL {
            hold_back(maps, number, account, 0);
        }
    }
    maps.ports.store_half(at, offset_of!(Port, flags), flags);
    maps.ports.store_half(at, offset_of!(Port, ifindex), attachment.ifindex);
}

/// Returns true when a port has a device.
pub(crate) fn has_device(maps: &Maps, number: u32) -> bool {
    number < MAX_PORTS && maps.ports.load_half(number as usize, offset_of!(Port, ifindex)) != 0
}

/// Returns true when a port is of a tunnel that programs know.
pub(crate) fn is_tunnel(maps: &Maps, number: u32) -> bool {
    number < MAX_PORTS && maps.ports.load_half(number as usize, offset_of!(Port, tunnel)) != 0
}

/// Offset of the next sequence number of a tunnel port, in the low half of the word.
const SEQUENCE: usize = offset_of!(Port, peer_mac);

/// The sequence numbers of a tunnel port, which programs take as well. They are in the shared table, so they
/// go on when a daemon adopts it.
pub(crate) struct Sequence {
    maps: Arc<Maps>,
    port: u32,
}

impl Sequence {
    /// Returns the numbers of a port of the table.
    pub(crate) fn new(maps: Arc<Maps>, port: u32) -> Sequence {
        Sequence { maps, port }
    }
}

impl SequenceNumbers for Sequence {
    fn take(&self, count: u32) -> u32 {
        let word = self.maps.ports.word(self.port as usize, SEQUENCE);
        word.fetch_add(count.into(), Ordering::Relaxed) as u32 // the low half
    }
}

/// Position of the number of the kind in [`Port::mtu`] of a tunnel port, after the UDP port.
const KIND_SHIFT: u32 = 16;

/// Writes a port of a tunnel. Packets cannot be sent to it.
pub(crate) fn put_tunnel(
    maps: &Maps,
    number: u32,
    kind: TunnelKind,
    config: &PortConfig,
    upcall_limit: u32,
) {
    let at = number as usize;
    if !is_tunnel(maps, number) {
        clear(maps, number);
        maps.ports.store(at, SEQUENCE, 0);
        mark_all_taken(maps, number);
        for account in UpcallAccount::ALL {
            hold_back(maps, number, account, 0);
        }
    }
    let identity = u32::from(config.udp_port) | config.kind.number() << KIND_SHIFT;
    maps.ports.store_half(at, offset_of!(Port, mtu), identity);
    maps.ports.store_half(at, offset_of!(Port, upcall_limit), upcall_limit);
    maps.ports.store_half(at, offset_of!(Port, tunnel), kind as u32);
}

/// Returns the configuration of a tunnel port, as an earlier daemon wrote it. `None`: the port is none.
pub(crate) fn tunnel(maps: &Maps, number: u32) -> Option<PortConfig> {
    if !is_tunnel(maps, number) {
        return None;
    }
    let port = maps.ports.read(number as usize);
    Some(PortConfig {
        udp_port: port.mtu as u16, // the lower half
        has_group_policy: port.tunnel == TunnelKind::VxlanGbp as u32,
        ..PortConfig::new(Kind::from_number(port.mtu >> KIND_SHIFT)?)
    })
}

/// Returns the tunnel ports in the table.
pub(crate) fn list_tunnels(maps: &Maps) -> Vec<(PortNo, PortConfig)> {
    (0..MAX_PORTS).filter_map(|number| Some((PortNo(number), tunnel(maps, number)?))).collect()
}

/// Clears a port. Packets that are sent to it are dropped.
pub(crate) fn clear(maps: &Maps, number: u32) {
    let at = number as usize;
    maps.ports.store(at, offset_of!(Port, tunnel), 0); // and `tunnel_helper`
    maps.ports.store_half(at, offset_of!(Port, ifindex), 0);
    maps.ports.store_half(at, offset_of!(Port, flags), 0);
}

/// Changes the properties that may change while a port is attached.
pub(crate) fn set(maps: &Maps, number: u32, mtu: u32, up: bool) {
    let at = number as usize;
    maps.ports.store_half(at, offset_of!(Port, mtu), mtu);
    set_flag(maps, number, PORT_UP, up);
}

/// Sets or clears a `PORT_*` flag.
pub(crate) fn set_flag(maps: &Maps, number: u32, flag: u32, on: bool) {
    let at = number as usize;
    let flags = maps.ports.load_half(at, offset_of!(Port, flags));
    let flags = if on { flags | flag } else { flags & !flag };
    maps.ports.store_half(at, offset_of!(Port, flags), flags);
}

/// Has frames for `mac` enter the other end of a port's pair at once; `None`: all frames pass the
/// port's device. [`put`] ends it.
pub(crate) fn set_peer(maps: &Maps, number: u32, mac: Option<Mac>) {
    // A program that has read the flag may read the new address, which is as good.
    set_flag(maps, number, PORT_PEER, false);
    let Some(Mac([a, b, c, d, e, f])) = mac else { return };
    let word = maps.ports.word(number as usize, offset_of!(Port, peer_mac));
    word.store(u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]), Ordering::Relaxed);
    set_flag(maps, number, PORT_PEER, true);
}

/// Sets the interface through which packets of a tunnel port enter the host's stack; 0: none do.
pub(crate) fn set_tunnel_helper(maps: &Maps, number: u32, entrance: u32) {
    maps.ports.store_half(number as usize, offset_of!(Port, tunnel_helper), entrance);
}

/// Returns the packets that a tunnel port gave to its tunnel device and got back, which are counted as
/// those of a port of [`Side::Stack`].
pub(crate) fn helper_counts(maps: &Maps, number: u32) -> TunnelHelperCounts {
    let PortCounts { rx_packets, tx_packets, .. } = stats(maps, number);
    TunnelHelperCounts { given: tx_packets, returned: rx_packets }
}

/// Returns true when XDP may redirect to a port.
pub(crate) fn is_target(maps: &Maps, number: u32) -> bool {
    let port = maps.ports.read(number as usize);
    port.ifindex != 0 && port.flags & PORT_DEVMAP != 0
}

/// Returns true when XDP may redirect frames in several buffers to a port that it may redirect to.
pub(crate) fn takes_split(maps: &Maps, number: u32) -> bool {
    maps.ports.load_half(number as usize, offset_of!(Port, flags)) & PORT_SPLIT != 0
}

/// Returns true when there is a port that XDP may redirect to, but not frames in several buffers.
pub(crate) fn has_whole_only(maps: &Maps) -> bool {
    let flags = |port| maps.ports.load_half(port, offset_of!(Port, flags));
    (0..MAX_PORTS as usize).any(|port| flags(port) & (PORT_DEVMAP | PORT_SPLIT) == PORT_DEVMAP)
}

/// Returns true when there is a port of [`Side::Stack`], of this daemon or an earlier one.
pub(crate) fn has_stack(maps: &Maps) -> bool {
    let flags = |port| maps.ports.load_half(port, offset_of!(Port, flags));
    (0..MAX_PORTS as usize).any(|port| flags(port) & PORT_STACK != 0)
}

/// Records that the daemon took `count` packets of a port from the miss device.
pub(crate) fn note_taken(maps: &Maps, number: u32, count: u64) {
    let at = number as usize;
    let sent = maps.ports.word(at, offset_of!(Port, sent_up)).load(Ordering::Relaxed);
    let taken = maps.ports.word(at, offset_of!(Port, taken_up));
    // Packets that [`mark_all_taken`] gave up as lost may still arrive: never count more than were
    // sent.
    let sum = taken.load(Ordering::Relaxed).wrapping_add(count);
    let is_beyond = sent.wrapping_sub(sum) > u64::MAX / 2;
    taken.store(if is_beyond { sent } else { sum }, Ordering::Relaxed);
}

/// Stops packets of a port that this account pays for from going up before `until_nanos`
/// (nanoseconds, `CLOCK_MONOTONIC`). 0 ends that.
pub(crate) fn hold_back(maps: &Maps, number: u32, account: UpcallAccount, until_nanos: u64) {
    let at = match account {
        UpcallAccount::Misses => offset_of!(Port, closed_until),
        UpcallAccount::Connections => offset_of!(Port, ct_closed_until),
    };
    let closed = maps.ports.word(number as usize, at);
    closed.store(until_nanos, Ordering::Relaxed);
}

/// Returns the number of packets of a port that went up and were not taken. A program may count a
/// packet only after the daemon took it; the result is then 0.
pub(crate) fn on_their_way(maps: &Maps, number: u32) -> u64 {
    let at = number as usize;
    let taken = maps.ports.word(at, offset_of!(Port, taken_up)).load(Ordering::Relaxed);
    let sent = maps.ports.word(at, offset_of!(Port, sent_up)).load(Ordering::Relaxed);
    u64::try_from(sent.wrapping_sub(taken) as i64).unwrap_or(0)
}

/// Gives up lost packets after the miss device was found empty. Packets that had gone up by the
/// previous such time and were not taken are lost. Packets that went up since then may be in the
/// device by now. When `most` packets or more are waited for, all of them are given up, as the port
/// could send no more. `before` is the result of the previous call. Returns how many packets have
/// gone up so far.
pub(crate) fn give_up(maps: &Maps, number: u32, before: u64, most: u64) -> u64 {
    let at = number as usize;
    let sent = maps.ports.word(at, offset_of!(Port, sent_up)).load(Ordering::Relaxed);
    let taken = maps.ports.word(at, offset_of!(Port, taken_up));
    let is_later = |a: u64, b: u64| a.wrapping_sub(b) as i64 > 0;
    let known = taken.load(Ordering::Relaxed);
    let is_lost = is_later(before, known) && !is_later(before, sent);
    if on_their_way(maps, number) >= most {
        taken.store(sent, Ordering::Relaxed);
    } else if is_lost {
        taken.store(before, Ordering::Relaxed);
    }
    sent
}

/// Marks all packets of a port that went up as taken, so that lost packets are not waited for.
pub(crate) fn mark_all_taken(maps: &Maps, number: u32) {
    let at = number as usize;
    let sent = maps.ports.word(at, offset_of!(Port, sent_up)).load(Ordering::Relaxed);
    maps.ports.word(at, offset_of!(Port, taken_up)).store(sent, Ordering::Relaxed);
}

/// Returns the ports in the table.
pub(crate) fn list(maps: &Maps) -> Vec<AdoptedPort> {
    let there = |number: u32| {
        let ifindex = maps.ports.load_half(number as usize, offset_of!(Port, ifindex));
        (ifindex != 0).then_some(AdoptedPort { number: PortNo(number), ifindex })
    };
    (0..MAX_PORTS).filter_map(there).collect()
}

/// Returns the elements of `port_stats` for a port, one for each shard.
fn shards(maps: &Maps, number: u32) -> impl Iterator<Item = usize> {
    (0..maps.sizes.shards).map(move |shard| (shard * MAX_PORTS + number) as usize)
}

/// Returns the count of packets that the limits of a port dropped.
fn policed(maps: &Maps, number: u32) -> &AtomicU64 {
    maps.policers.word(number as usize, offset_of!(Policer, dropped))
}

/// Sets a port's counters to zero.
pub(crate) fn clear_stats(maps: &Maps, number: u32) {
    shards(maps, number).for_each(|at| maps.port_stats.zero(at));
    policed(maps, number).store(0, Ordering::Relaxed);
}

/// Returns the counters of a port, over all shards.
pub(crate) fn stats(maps: &Maps, number: u32) -> PortCounts {
    let mut sum = PortCounts::default();
    for at in shards(maps, number) {
        let count = maps.port_stats.read(at);
        sum.rx_packets = sum.rx_packets.wrapping_add(count.rx_packets);
        sum.rx_bytes = sum.rx_bytes.wrapping_add(count.rx_bytes);
        sum.tx_packets = sum.tx_packets.wrapping_add(count.tx_packets);
        sum.tx_bytes = sum.tx_bytes.wrapping_add(count.tx_bytes);
    }
    sum.rx_policed = policed(maps, number).load(Ordering::Relaxed);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::{Config, Hooks};
    use crate::maps::Sizes;

    #[test]
    fn sequence_numbers_stay_with_a_tunnels_port() {
        let config = Config { max_flows: 1024, ..Config::default() };
        let maps = Arc::new(Maps::private(Sizes::new(&config, 1)));
        let gre = PortConfig::new(Kind::Gre);
        let put = || put_tunnel(&maps, 5, TunnelKind::Gre, &gre, 4);
        // Another port had an address there.
        set_peer(&maps, 5, Some(Mac([2; 6])));
        put();
        let numbers = Sequence::new(maps.clone(), 5);
        assert_eq!([1, 3, 1].map(|count| numbers.take(count)), [0, 1, 4]);
        put(); // as the next daemon does
        assert_eq!(Sequence::new(maps.clone(), 5).take(1), 5);
        assert_eq!(tunnel(&maps, 5), Some(gre));
        clear(&maps, 5);
        put();
        assert_eq!(numbers.take(1), 0);
    }

    #[test]
    fn an_interface_keeps_its_owner_when_it_is_attached_again() {
        let maps = Maps::private(Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 1));
        add_interface(&maps, 7, 3).unwrap();
        assert!(owns_rx(&maps, 7, 3) && !owns_rx(&maps, 7, 4) && !owns_rx(&maps, 8, 3));
        for (owner, programs) in
            [(RxOwner::Socket, false), (RxOwner::Programs, true), (RxOwner::ProgramsAlone, true)]
        {
            set_rx_owner(&maps, 7, 3, owner).unwrap();
            add_interface(&maps, 7, 3).unwrap();
            assert_eq!(owns_rx(&maps, 7, 3), programs, "{owner:?}");
            remove_interface(&maps, 7, 4);
            assert_eq!(maps.ifaces.read(7), Iface { ifindex: 7, port: 3 | flags(owner) });
        }
        set_rx_owner(&maps, 7, 3, RxOwner::Socket).unwrap();
        set_generic(&maps, 7, 3, true);
        set_rx_owner(&maps, 7, 3, RxOwner::ProgramsAlone).unwrap();
        assert_eq!(maps.ifaces.read(7).port, 3 | IFACE_GENERIC);
        set_generic(&maps, 7, 3, false);
        assert_eq!(maps.ifaces.read(7).port, 3);
        set_rx_owner(&maps, 7, 3, RxOwner::Socket).unwrap();
        add_interface(&maps, 7, 4).unwrap();
        assert!(owns_rx(&maps, 7, 4), "another port's");
        remove_interface(&maps, 7, 4);
        assert_eq!(maps.ifaces.read(7), Iface::default());
    }

    #[test]
    fn counters_are_cleared_in_all_shards_and_of_one_port() {
        let maps = Maps::private(Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 4));
        let all = |number| {
            let at: Vec<usize> = shards(&maps, number).collect();
            assert_eq!(at.len(), maps.sizes.shards as usize);
            at
        };
        for at in all(3).into_iter().chain(all(4)) {
            maps.port_stats.words(at).iter().for_each(|word| word.store(1, Ordering::Relaxed));
        }
        let (one, other) = (stats(&maps, 3), stats(&maps, 4));
        assert_eq!(one.rx_packets, u64::from(maps.sizes.shards));
        clear_stats(&maps, 3);
        assert_eq!(stats(&maps, 3), PortCounts::default());
        assert_eq!(stats(&maps, 4), other);
    }

    #[test]
    fn packets_that_are_taken_are_not_on_their_way() {
        let maps = Maps::private(Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 1));
        let hooks = Hooks { tc: true, ..Hooks::default() };
        let to = Attachment { ifindex: 7, side: Side::Device, hooks, mtu: 1500, up: true };
        put(&maps, 3, &to, 4);
        let sent = maps.ports.word(3, offset_of!(Port, sent_up));
        sent.store(5, Ordering::Relaxed);
        note_taken(&maps, 3, 2);
        assert_eq!(on_their_way(&maps, 3), 3);
        let seen = give_up(&maps, 3, 0, 5);
        assert_eq!(seen, 5);
        assert_eq!(on_their_way(&maps, 3), 3, "they may have come this moment");
        sent.store(7, Ordering::Relaxed);
        note_taken(&maps, 3, 1);
        let seen = give_up(&maps, 3, seen, 5);
        assert_eq!(seen, 7);
        assert_eq!(on_their_way(&maps, 3), 2, "two were lost, two may have come");
        sent.store(11, Ordering::Relaxed);
        assert_eq!(give_up(&maps, 3, seen, 5), 11);
        assert_eq!(on_their_way(&maps, 3), 0, "no more could go up");
        assert_eq!(give_up(&maps, 3, 100, 5), 11);
        assert_eq!(on_their_way(&maps, 3), 0, "a count of another life of the port");
        mark_all_taken(&maps, 3);
        sent.store(10, Ordering::Relaxed);
        assert_eq!(on_their_way(&maps, 3), 0, "one was taken before it was counted");
    }
}
