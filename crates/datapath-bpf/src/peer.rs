// SPDX-License-Identifier: Apache-2.0
//! Checks whether frames for a port may enter the other end of its veth pair at once
//! (`bpf_redirect_peer()`), in the network namespace there.
//!
//! That saves the transmission through the port's own device. Programs, filters, queueing disciplines
//! and captures at that device's egress are passed over, so each of them keeps frames on the ordinary
//! way.

use crate::fit::{PeerLink, XdpFacts};
use netdev::Endpoint;
use packet::Mac;

/// `other_config:tcx-peer` of an Interface row.
pub(crate) const SETTING: &str = "tcx-peer";

/// Reads the setting; none is `true`.
///
/// # Errors
///
/// A sentence that names the words there are.
pub(crate) fn parse_setting(setting: Option<&str>) -> Result<bool, String> {
    match setting {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(text) => {
            Err(format!("other_config:{SETTING}: \"{text}\" is not one of true and false"))
        }
    }
}

/// Facts that no event reports, or not every kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// A BPF program is at the tcx egress of the port's device.
    pub(crate) has_program: bool,
    /// The other end's link.
    pub(crate) link: Option<PeerLink>,
}

/// Checks everything but captures. Returns the address of the other end of the port's pair, for
/// which frames may enter there.
///
/// # Errors
///
/// Why frames pass the port's device, and what would change that, as a part of a sentence.
pub(crate) fn fit(facts: &XdpFacts, look: &Look) -> Result<Mac, String> {
    device_fit(facts)?;
    if look.has_program {
        return Err("a BPF program is at the tcx egress of its device".into());
    }
    link_fit(look.link, facts.mtu)
}

/// Why frames pass the device while another process captures there.
pub(crate) const CAPTURED: &str = "a packet socket captures at its device (ss -0 lists them)";

/// Checks the device of the port, whose changes events report. Returns the other end.
///
/// # Errors
///
/// As those of [`fit`].
pub(crate) fn device_fit(facts: &XdpFacts) -> Result<Endpoint, String> {
    if facts.link_kind.as_deref() != Some("veth") {
        return Err("its device is no veth".into());
    }
    let Some(end) = facts.end else { return Err(UNKNOWN_END.into()) };
    // The kernel drops them.
    if end.namespace.is_none() {
        return Err("the other end is in the switch's own network namespace".into());
    }
    if !facts.leaves_work {
        return Err("its device finishes checksums, segments or tags (ethtool -k), which frames \
                    would keep unfinished"
            .into());
    }
    match facts.qdisc.as_deref() {
        Some("noqueue") => {}
        Some(qdisc) => {
            return Err(format!(
                "its device has a queueing discipline, {qdisc} (tc qdisc del dev DEVICE root)"
            ));
        }
        None => return Err("the queueing discipline of its device is unknown".into()),
    }
    match facts.has_egress_filter {
        Some(false) => Ok(end),
        Some(true) => Err("a tc filter is at the egress of its device".into()),
        None => Err("the tc filters of its device cannot be read".into()),
    }
}

const UNKNOWN_END: &str = "the other end cannot be looked at";

fn link_fit(link: Option<PeerLink>, mtu: u32) -> Result<Mac, String> {
    let Some(link) = link else { return Err(UNKNOWN_END.into()) };
    if link.has_xdp {
        return Err("an XDP program is attached at the other end".into());
    }
    if !link.is_up || link.mtu < mtu {
        return Err("the other end is down, or its MTU is below that of the port".into());
    }
    Ok(link.mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const LINK: PeerLink = PeerLink { mac: MAC, mtu: 1500, is_up: true, has_xdp: false };

    fn fit_of(change: impl FnOnce(&mut XdpFacts, &mut Look)) -> Result<Mac, String> {
        let mut facts = XdpFacts {
            link_kind: Some("veth".into()),
            end: Some(Endpoint { namespace: Some(3), index: 2 }),
            mtu: 1500,
            leaves_work: true,
            qdisc: Some("noqueue".into()),
            has_egress_filter: Some(false),
            ..XdpFacts::default()
        };
        let mut look = Look { has_program: false, link: Some(LINK) };
        change(&mut facts, &mut look);
        fit(&facts, &look)
    }

    #[test]
    fn each_condition_counts() {
        assert_eq!(fit_of(|_, _| {}), Ok(MAC));
        assert!(fit_of(|f, _| f.link_kind = Some("tun".into())).is_err());
        assert!(fit_of(|f, _| f.link_kind = None).is_err());
        assert!(fit_of(|f, _| f.end = None).is_err());
        assert!(fit_of(|f, _| f.end = Some(Endpoint { namespace: None, index: 2 })).is_err());
        assert!(fit_of(|f, _| f.leaves_work = false).is_err());
        assert!(fit_of(|f, _| f.qdisc = Some("tbf".into())).is_err());
        assert!(fit_of(|f, _| f.qdisc = None).is_err());
        assert!(fit_of(|f, _| f.has_egress_filter = Some(true)).is_err());
        assert!(fit_of(|f, _| f.has_egress_filter = None).is_err());
        assert!(fit_of(|_, l| l.has_program = true).is_err());
        assert!(fit_of(|_, l| l.link = None).is_err());
        assert!(fit_of(|_, l| l.link = Some(PeerLink { has_xdp: true, ..LINK })).is_err());
        assert!(fit_of(|_, l| l.link = Some(PeerLink { is_up: false, ..LINK })).is_err());
        assert!(fit_of(|_, l| l.link = Some(PeerLink { mtu: 1499, ..LINK })).is_err());
        assert_eq!(fit_of(|f, _| f.mtu = 1499), Ok(MAC));
    }

    #[test]
    fn the_setting_has_two_words() {
        assert_eq!(parse_setting(None), Ok(true));
        assert_eq!(parse_setting(Some("true")), Ok(true));
        assert_eq!(parse_setting(Some("false")), Ok(false));
        let error = parse_setting(Some("off")).expect_err("no word");
        assert!(error.contains("true and false"), "{error}");
    }
}
