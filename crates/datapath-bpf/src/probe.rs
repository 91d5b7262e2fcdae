// SPDX-License-Identifier: Apache-2.0
//! Facts about devices, from the kernel.

use crate::fit::{PeerFacts, PeerLink, XdpFacts};
use crate::sys;
use netdev::{
    CaptureReader, Captures, EndReader, Endpoint, Interface, Offloads, Peer, XdpProbe, XdpProber,
};
use packet::Mac;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A source of facts about devices. A trait, so that tests can invent devices.
pub trait Prober: Send + Sync {
    /// Returns the index of the interface called `name`; `None` when there is none.
    fn ifindex(&self, name: &str) -> Option<u32>;

    /// Returns the known facts about the interface called `name`.
    fn xdp_facts(&self, name: &str) -> XdpFacts;

    /// Returns those of these interfaces at which other processes capture. No event reports a change.
    fn captures(&self, interfaces: &BTreeSet<u32>) -> Captures {
        let _ = interfaces;
        Captures::default()
    }

    /// Returns the link of the other end of a pair; `None` when it cannot be read. No event reports
    /// an XDP program that a BPF link attaches.
    fn peer_link(&self, end: Endpoint) -> Option<PeerLink> {
        let _ = end;
        None
    }

    /// Returns true when a BPF program is at the tcx egress of interface `ifindex`. No event reports a
    /// change.
    fn has_egress_program(&self, ifindex: u32) -> bool {
        let _ = ifindex;
        false
    }
}

/// A source that asks the kernel, in the network namespace of the calling thread. All threads that
/// use it must be in the same one.
#[derive(Debug, Default)]
pub struct KernelProber {
    xdp: XdpProber,
    /// Opened when they are first used.
    captures: Mutex<Option<CaptureReader>>,
    ends: Mutex<Option<EndReader>>,
}

/// Reads with the reader in `place`, which is opened if there is none.
fn read_with<R, T>(
    place: &Mutex<Option<R>>,
    open: impl FnOnce() -> io::Result<R>,
    read: impl FnOnce(&mut R) -> io::Result<T>,
) -> io::Result<T> {
    // A panicked holder leaves at worst a partly read answer, which the next read drops.
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let reader = match &mut *place {
        Some(reader) => reader,
        none => none.insert(open()?),
    };
    read(reader)
}

impl Prober for KernelProber {
    fn ifindex(&self, name: &str) -> Option<u32> {
        netdev::link::find(name).ok().map(|link| link.index)
    }

    fn xdp_facts(&self, name: &str) -> XdpFacts {
        match self.xdp.probe(name) {
            Ok(survey) => facts(&survey),
            // XDP is not tried on an unknown interface.
            Err(_) => XdpFacts { link_kind: Some("unknown".to_owned()), ..XdpFacts::default() },
        }
    }

    fn captures(&self, interfaces: &BTreeSet<u32>) -> Captures {
        let read = |reader: &mut CaptureReader| reader.read(interfaces);
        let captures = read_with(&self.captures, CaptureReader::open, read);
        captures.unwrap_or_else(|error| match error.kind() {
            // The kernel has no packet sockets.
            io::ErrorKind::NotFound if Path::new("/proc/thread-self/net").exists() => {
                Captures::default()
            }
            // There may be captures everywhere.
            _ => Captures::at([0]),
        })
    }

    fn peer_link(&self, end: Endpoint) -> Option<PeerLink> {
        let read = |reader: &mut EndReader| reader.read(end);
        read_with(&self.ends, EndReader::open, read).ok().map(|interface| link_of(&interface))
    }

    fn has_egress_program(&self, ifindex: u32) -> bool {
        sys::has_program(ifindex, libbpf_sys::BPF_TCX_EGRESS)
    }
}

fn facts(survey: &XdpProbe) -> XdpFacts {
    let own = &survey.interface;
    let (peer, known) = match &survey.peer {
        Peer::None => (None, None),
        Peer::Hidden { .. } => (Some(PeerFacts::default()), None),
        Peer::Known { namespace, interface } => {
            let end = Endpoint { namespace: *namespace, index: interface.index };
            (Some(peer_facts(interface)), Some((end, interface)))
        }
    };
    XdpFacts {
        link_kind: own.kind.clone(),
        driver: own.driver.as_ref().map(|d| d.name.clone()).unwrap_or_default(),
        takes_tags_off: own.offloads.as_ref().map(Offloads::takes_tags_off),
        merges: own.offloads.as_ref().map(Offloads::merges),
        trusts_checksums: own.offloads.as_ref().map(|offloads| offloads.is_on("rx-checksum")),
        peer,
        end: known.map(|(end, _)| end),
        peer_link: known.map(|(_, peer)| link_of(peer)),
        mtu: own.mtu,
        promiscuity: own.promiscuity,
        leaves_work: own
            .offloads
            .as_ref()
            .is_some_and(|o| o.leaves_checksums() && o.leaves_segmentation() && o.leaves_tags()),
        qdisc: own.qdisc.clone(),
        has_egress_filter: survey.has_egress_filter,
    }
}

fn link_of(peer: &Interface) -> PeerLink {
    PeerLink {
        mac: Mac(peer.mac),
        mtu: peer.mtu,
        is_up: peer.admin_up,
        has_xdp: !peer.xdp.is_empty(),
    }
}

fn peer_facts(peer: &Interface) -> PeerFacts {
    let leaves_work =
        |o: &Offloads| o.leaves_checksums() || o.leaves_tags() || o.leaves_segmentation();
    PeerFacts {
        receives_redirects: peer.runs_napi(),
        sends_whole_frames: peer.offloads.as_ref().map(|o| !leaves_work(o)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_not_known() {
        let survey = XdpProbe {
            interface: Interface { kind: Some("veth".into()), ..Interface::default() },
            peer: Peer::Hidden { reason: "no permission".into() },
            has_egress_filter: None,
        };
        assert_eq!(facts(&survey).peer, Some(PeerFacts::default()));
        let peer = Interface { admin_up: true, ..Interface::default() };
        assert_eq!(peer_facts(&peer), PeerFacts::default());
        let loud = Interface { offloads: Some(Offloads::default()), ..peer };
        let expected =
            PeerFacts { receives_redirects: Some(false), sends_whole_frames: Some(true) };
        assert_eq!(peer_facts(&loud), expected);
    }

    #[test]
    fn a_missing_interface_is_no_place_for_xdp() {
        let prober = KernelProber::default();
        let facts = prober.xdp_facts("no-such-dev");
        assert!(
            crate::fit::xdp_fit(&facts, crate::fit::Wish::Xdp, crate::XdpMode::Driver).is_err()
        );
        assert_eq!(prober.ifindex("no-such-dev"), None);
    }
}
