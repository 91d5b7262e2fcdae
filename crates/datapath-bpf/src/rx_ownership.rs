// SPDX-License-Identifier: Apache-2.0
//! Moves the ownership of a port's received packets from the userspace datapath's socket to the
//! programs, and back.
//!
//! The kernel gives a packet to the packet socket first and to the skb hook afterwards, and at any
//! time some packets are between the two. A packet that both take is sent twice, and one that
//! neither takes is lost. So the socket has a filter of ours, which decides for both, packet by
//! packet. A change of the owner takes effect between one packet and the next ([`RxOwner`]).
//!
//! ```text
//!            own(Socket), attach        own(Programs)      wait, own(ProgramsAlone)
//!   Socket ───────────────────▶ Socket ───────────▶ Programs ──────────▶ ProgramsAlone
//!   alone                       + hook                                    socket Off
//!      ◀──────────────────── Socket ◀──────────────────────────────── socket On, wait
//!        wait, detach                own(Socket)
//! ```
//!
//! If there is no filter, the socket is muted before the hook takes packets, and the packets of
//! some milliseconds are lost.
//!
//! At XDP there is no such conflict: the socket never receives a packet that XDP takes. But a
//! driver may discard the packets in its rings when a program is attached or detached; veth does.

use crate::attachment::RxOwner;
use crate::backend::Backend;
use datapath::Refusal;
use datapath::offload::{OffloadPort, PortSocket, Reason};
use netdev::{Kind, Reception};

/// The state of a port after [`take_over`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// The programs alone own the packets.
    Complete,
    /// The programs own the packets that the socket's filter leaves to them. The caller waits for the
    /// packets on their way, and then makes the programs alone the owner.
    Begun,
}

/// Moves the packets that arrive at `port` from the socket to the programs, which `attach` attaches
/// to the skb hook. May take milliseconds.
///
/// # Errors
///
/// Fails when the programs cannot be attached, the table of interfaces is full, or the socket can
/// neither have a filter nor be muted.
pub(crate) fn take_over(
    backend: &impl Backend,
    port: &OffloadPort<'_>,
    ifindex: u32,
    socket: &mut dyn PortSocket,
    attach: impl FnOnce() -> Result<(), Reason>,
) -> Result<Move, Reason> {
    let set_owner = |owner| backend.set_rx_owner(port.number, ifindex, owner);
    if port.kind != Kind::System || !socket.reception().is_on() {
        attach()?;
        // An earlier daemon may have ended in between.
        return set_owner(RxOwner::ProgramsAlone).map(|()| Move::Complete);
    }
    set_owner(RxOwner::Socket)?;
    attach()?;
    if !socket.has_filter() && !socket.set_receive(Reception::Muted) {
        // Both would take each packet.
        let detail = "its socket cannot stop receiving";
        return Err(Reason::new(Refusal::TierUnavailable, detail));
    }
    set_owner(RxOwner::Programs).map(|()| Move::Begun)
}

/// Moves the packets that arrive at `port` from the programs to the socket. When this returns, the
/// programs take none of them. May take milliseconds.
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
        // Each packet that reaches the hook from now on went through the filter.
        backend.wait_for_packets();
    } else {
        socket.set_receive(Reception::Muted);
    }
    // The interface is in the table, so there is room.
    let _ = backend.set_rx_owner(port.number, ifindex, RxOwner::Socket);
    socket.set_receive(Reception::On);
    if is_filtered {
        backend.wait_for_packets();
    }
}
