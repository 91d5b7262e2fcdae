// SPDX-License-Identifier: Apache-2.0
//! Packets of a port pass from the userspace datapath's socket to the programs, and back.
//!
//! The kernel shows a packet to the packet socket first and to the skb hook then, and other
//! packets are between the two at any time. A packet that both take goes out twice, one that
//! neither takes is lost. So a filter of ours is on the socket: it decides for both, packet by
//! packet, and each change of the owner counts from one packet to the next ([`RxOwner`]).
//!
//! ```text
//!            own(Socket), attach        own(Programs)      wait, own(ProgramsAlone)
//!   Socket ───────────────────▶ Socket ───────────▶ Programs ──────────▶ ProgramsAlone
//!   alone                       + hook                                    socket Off
//!      ◀──────────────────── Socket ◀──────────────────────────────── socket On, wait
//!        wait, detach                own(Socket)
//! ```
//!
//! Where there is no filter the socket is muted before the hook takes packets, and packets of some
//! milliseconds are lost.
//!
//! At XDP the question does not arise: the socket never sees a packet that XDP takes. But a driver
//! may throw away the packets in its rings when a program is attached or detached; veth does so.

use crate::attachment::RxOwner;
use crate::backend::Backend;
use datapath::Refusal;
use datapath::offload::{OffloadPort, PortSocket, Reason};
use netdev::{Kind, Reception};

/// Has the programs take the packets that arrive at `port` from the instant when `attach` attaches
/// them to the skb hook, or a moment later, and the socket no more.
pub(crate) fn take_over(
    backend: &impl Backend,
    port: &OffloadPort<'_>,
    ifindex: u32,
    socket: &mut dyn PortSocket,
    attach: impl FnOnce() -> Result<(), Reason>,
) -> Result<(), Reason> {
    let set_owner = |owner| backend.set_rx_owner(port.number, ifindex, owner);
    if port.kind != Kind::System || socket.reception() != Reception::On {
        attach()?;
        // An earlier daemon may have ended in between.
        return set_owner(RxOwner::ProgramsAlone);
    }
    set_owner(RxOwner::Socket)?;
    attach()?;
    if !socket.has_filter() && !socket.set_receive(Reception::Muted) {
        // Both would take each packet.
        let detail = "its socket cannot stop receiving";
        return Err(Reason::new(Refusal::TierUnavailable, detail));
    }
    set_owner(RxOwner::Programs)?;
    backend.wait_for_packets();
    set_owner(RxOwner::ProgramsAlone)
}

/// Has the socket take the packets that arrive at `port`; the programs have no part in it when
/// this returns.
pub(crate) fn give_back(
    backend: &impl Backend,
    port: &OffloadPort<'_>,
    socket: &mut dyn PortSocket,
) {
    let owned = |ifindex: &u32| backend.owns_rx(port.number, *ifindex);
    let Some(ifindex) = port.ifindex.filter(owned) else {
        socket.set_receive(Reception::On);
        return;
    };
    let is_filtered = port.kind == Kind::System && socket.has_filter();
    if is_filtered {
        socket.set_receive(Reception::On);
        // The filter has seen each packet that comes to the hook from now on.
        backend.wait_for_packets();
    } else {
        socket.set_receive(Reception::Muted);
    }
    // It has a place in the table of interfaces, so there is room.
    let _ = backend.set_rx_owner(port.number, ifindex, RxOwner::Socket);
    socket.set_receive(Reception::On);
    if is_filtered {
        backend.wait_for_packets();
    }
}
