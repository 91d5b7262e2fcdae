// SPDX-License-Identifier: Apache-2.0
//! Checks whether frames for a port may enter the other end of its veth pair at once
//! (`bpf_redirect_peer()`), in the network namespace there.
//!
//! That saves the transmission through the port's own device. Programs, filters, queueing disciplines
//! and captures at that device's egress are passed over, so each of them keeps frames on the ordinary
//! way.

use crate::fit::XdpFacts;
use netdev::Captures;
use packet::Mac;

/// `other_config:tcx-peer` of an Interface row.
pub(crate) const SETTING: &str = "tcx-peer";

/// Reads the setting; none is `false`.
///
/// # Errors
///
/// A sentence that names the words there are.
pub(crate) fn parse_setting(setting: Option<&str>) -> Result<bool, String> {
    match setting {
        Some("true") => Ok(true),
        None | Some("false") => Ok(false),
        Some(text) => {
            Err(format!("other_config:{SETTING}: \"{text}\" is not one of true and false"))
        }
    }
}

/// Users of the egress of a port's device whose changes no event reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched<'a> {
    /// Other processes that capture.
    pub(crate) captures: &'a Captures,
    /// A BPF program is at the device's tcx egress.
    pub(crate) has_program: bool,
}

/// Returns the address of the other end of the port's pair, for which frames may enter there.
///
/// # Errors
///
/// Why frames pass the port's device, and what would change that, as a part of a sentence.
pub(crate) fn fit(facts: &XdpFacts, ifindex: u32, watched: &Watched<'_>) -> Result<Mac, String> {
    fits_by_events(facts)?;
    let mac = facts.peer_mac.ok_or("the other end cannot be looked at")?;
    if watched.has_program {
        return Err("a BPF program is at the tcx egress of its device".into());
    }
    if watched.captures.has(ifindex) {
        return Err("a packet socket captures at its device (ss -0 lists them)".into());
    }
    Ok(mac)
}

/// Checks the part of [`fit`] that changes with an event.
fn fits_by_events(facts: &XdpFacts) -> Result<(), String> {
    if facts.link_kind.as_deref() != Some("veth") {
        return Err("its device is no veth".into());
    }
    let Some(end) = facts.end else { return Err("the other end cannot be looked at".into()) };
    // The kernel drops them.
    if end.namespace.is_none() {
        return Err("the other end is in the switch's own network namespace".into());
    }
    if facts.peer_has_xdp {
        return Err("an XDP program is attached at the other end".into());
    }
    if !facts.peer_takes_frames {
        return Err("the other end is down, or its MTU is below that of the port".into());
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
        Some(false) => Ok(()),
        Some(true) => Err("a tc filter is at the egress of its device".into()),
        None => Err("the tc filters of its device cannot be read".into()),
    }
}

/// Returns true when [`fit`] depends on more than the facts.
pub(crate) fn is_watched(facts: &XdpFacts) -> bool {
    fits_by_events(facts).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdev::Endpoint;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn container() -> XdpFacts {
        XdpFacts {
            link_kind: Some("veth".into()),
            end: Some(Endpoint { namespace: Some(3), index: 2 }),
            peer_mac: Some(MAC),
            peer_takes_frames: true,
            leaves_work: true,
            qdisc: Some("noqueue".into()),
            has_egress_filter: Some(false),
            ..XdpFacts::default()
        }
    }

    fn fit_of(change: impl FnOnce(&mut XdpFacts)) -> Result<Mac, String> {
        let mut facts = container();
        change(&mut facts);
        let captures = Captures::default();
        fit(&facts, 7, &Watched { captures: &captures, has_program: false })
    }

    #[test]
    fn each_condition_counts() {
        assert_eq!(fit_of(|_| {}), Ok(MAC));
        assert!(fit_of(|f| f.link_kind = Some("tun".into())).is_err());
        assert!(fit_of(|f| f.link_kind = None).is_err());
        assert!(fit_of(|f| f.end = None).is_err());
        assert!(fit_of(|f| f.end = Some(Endpoint { namespace: None, index: 2 })).is_err());
        assert!(fit_of(|f| f.peer_mac = None).is_err());
        assert!(fit_of(|f| f.peer_has_xdp = true).is_err());
        assert!(fit_of(|f| f.peer_takes_frames = false).is_err());
        assert!(fit_of(|f| f.leaves_work = false).is_err());
        assert!(fit_of(|f| f.qdisc = Some("tbf".into())).is_err());
        assert!(fit_of(|f| f.qdisc = None).is_err());
        assert!(fit_of(|f| f.has_egress_filter = Some(true)).is_err());
        assert!(fit_of(|f| f.has_egress_filter = None).is_err());
        let watched = |at: u32, has_program| {
            let captures = Captures::at([at]);
            fit(&container(), 7, &Watched { captures: &captures, has_program })
        };
        assert_eq!(watched(8, false), Ok(MAC));
        assert!(watched(7, false).is_err() && watched(0, false).is_err());
        assert!(watched(8, true).is_err());
    }

    #[test]
    fn the_setting_has_two_words() {
        assert_eq!(parse_setting(None), Ok(false));
        assert_eq!(parse_setting(Some("true")), Ok(true));
        assert_eq!(parse_setting(Some("false")), Ok(false));
        let error = parse_setting(Some("off")).expect_err("no word");
        assert!(error.contains("true and false"), "{error}");
    }
}
