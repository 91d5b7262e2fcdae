// SPDX-License-Identifier: Apache-2.0
//! Checks whether a device suits XDP, as an ingress device and as a redirect target.
//!
//! The two checks treat an unknown device differently. The kernel drops an XDP redirect that the
//! target's driver does not support, and reports no error. So an unknown device is no target, and
//! flows to it run at the skb hook. An unknown NIC is tried as an ingress device, because the
//! kernel reports at once that a driver has no XDP.

use crate::XdpMode;
use datapath::offload::Reason;
use datapath::{Refusal, Tier};
use netdev::{Endpoint, Kind};
use packet::Mac;

/// The wish of a port's `other_config:tier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Wish {
    /// The fastest tiers that are certain to work.
    #[default]
    Auto,
    /// XDP also where the switch would not choose it by itself.
    Xdp,
    /// The skb hook and nothing faster.
    Tcx,
    /// The userspace datapath, below all hooks.
    Userspace,
}

impl Wish {
    /// Returns the wish of a port whose `other_config:tier` names `tier`.
    pub(crate) fn of(tier: Option<Tier>) -> Wish {
        match tier {
            // A card has a faster tier; the setting implies nothing for the tiers here.
            None | Some(Tier::Tc) => Wish::Auto,
            Some(Tier::Xdp) => Wish::Xdp,
            Some(Tier::Tcx) => Wish::Tcx,
            Some(Tier::Kernel | Tier::Userspace) => Wish::Userspace,
        }
    }

    /// Returns the wish for XDP of a port with or without a user's program. An automatic choice
    /// becomes XDP when the user provides a program.
    pub(crate) fn with_object(self, has_object: bool) -> Wish {
        match self {
            Wish::Auto if has_object => Wish::Xdp,
            wish => wish,
        }
    }

    /// Returns the word of the setting.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wish::Auto => "auto",
            Wish::Xdp => Tier::Xdp.name(),
            Wish::Tcx => Tier::Tcx.name(),
            Wish::Userspace => Tier::Userspace.name(),
        }
    }
}

/// The words of a port's `other_config:xdp-mode`; the first is the default.
const MODES: [(&str, XdpMode); 2] = [("native", XdpMode::Driver), ("generic", XdpMode::Generic)];

/// Returns the mode that `other_config:xdp-mode` names; unset is `native`.
///
/// # Errors
///
/// Returns a sentence that lists the valid words.
pub(crate) fn parse_mode(setting: Option<&str>) -> Result<XdpMode, String> {
    let Some(text) = setting else { return Ok(XdpMode::Driver) };
    let found = MODES.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, mode)| mode).ok_or_else(|| {
        format!("other_config:xdp-mode: \"{text}\" is not one of native and generic")
    })
}

/// Returns a description of a port at XDP in this mode; empty for the ordinary mode.
pub(crate) fn how(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::Driver => "",
        XdpMode::Generic => "after the driver (other_config:xdp-mode=generic)",
    }
}

/// Known facts about the other end of a veth pair; `None` where a fact is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PeerFacts {
    /// The other end receives frames that XDP redirects to this end: it is up, and runs an XDP
    /// program or GRO.
    pub receives_redirects: Option<bool>,
    /// Frames from the other end have finished checksums, contain their VLAN tags, and need no
    /// segmentation.
    pub sends_whole_frames: Option<bool>,
}

/// The link of the other end of a veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLink {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its MTU.
    pub mtu: u32,
    /// It is administratively up.
    pub is_up: bool,
    /// An XDP program is attached there.
    pub has_xdp: bool,
}

/// Known facts about a device; `None` where a fact is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct XdpFacts {
    /// Kind of virtual device ("veth", "tun", "bridge", …); `None` for hardware.
    pub link_kind: Option<String>,
    /// The driver's name; empty when it is unknown.
    pub driver: String,
    /// The card removes VLAN tags from received frames, so that XDP does not see them.
    pub takes_tags_off: Option<bool>,
    /// The device merges received packets (GRO) before the stack, and generic XDP, see them.
    pub merges: Option<bool>,
    /// The device takes checksums of received packets for right ("rx-checksum").
    pub trusts_checksums: Option<bool>,
    /// Facts about the other end of a veth; `None`: the device is no veth.
    pub peer: Option<PeerFacts>,
    /// The interface that is the other end of a veth; `None`: no veth, or it is unknown.
    pub end: Option<Endpoint>,
    /// The link of that other end; `None`: unknown.
    pub peer_link: Option<PeerLink>,
    /// The device's MTU.
    pub mtu: u32,
    /// The number of users of the device's promiscuous mode.
    pub promiscuity: u32,
    /// The device sends frames as they are: with unfinished checksums and segmentation, and with
    /// their tags outside of them.
    pub leaves_work: bool,
    /// The kind of the root queueing discipline ("noqueue", "tbf", …).
    pub qdisc: Option<String>,
    /// A tc filter is at the device's egress.
    pub has_egress_filter: Option<bool>,
}

/// Checks whether XDP meets the packets of a device as the network sent them, where a user asked for
/// XDP.
///
/// # Errors
///
/// Returns the fact that excludes XDP, with the remedy if there is one.
pub fn ingress_fit(facts: &XdpFacts, mode: XdpMode) -> Result<(), Reason> {
    xdp_fit(facts, Wish::Xdp, mode)
}

/// Checks whether XDP is to be tried for the packets of a device.
///
/// # Errors
///
/// Returns the fact or setting that excludes XDP, with the remedy if there is one.
pub(crate) fn xdp_fit(facts: &XdpFacts, wish: Wish, mode: XdpMode) -> Result<(), Reason> {
    match wish {
        Wish::Tcx | Wish::Userspace => {
            return Err(Reason::new(
                Refusal::TierSetting,
                format!("other_config:tier={} of this port", wish.name()),
            ));
        }
        Wish::Auto | Wish::Xdp => {}
    }
    place_fit(facts, wish)?;
    match mode {
        XdpMode::Driver => Ok(()),
        XdpMode::Generic => generic_fit(facts),
    }
}

fn place_fit(facts: &XdpFacts, wish: Wish) -> Result<(), Reason> {
    match facts.link_kind.as_deref() {
        None => nic_fit(facts),
        Some("veth") if wish == Wish::Auto => Err(Reason::new(
            Refusal::DeviceKind,
            "a veth's packets have unfinished checksums and whole segments, which the skb hook \
             keeps; other_config:tier=xdp asks for XDP where both ends are prepared for it",
        )),
        Some("veth") => veth_fit(facts.peer.unwrap_or_default()),
        Some(kind) => Err(Reason::new(
            Refusal::DeviceKind,
            format!("XDP is for network cards; this is a {kind} device"),
        )),
    }
}

/// Drivers of virtual cards, which deliver packets of the same host with unfinished checksums
/// (`CHECKSUM_PARTIAL`) while they trust checksums. With XDP in the driver they have the host finish
/// these, or have no such packets.
const UNFINISHED: [&str; 3] = ["virtio_net", "vif", "ibmveth"];

fn generic_fit(facts: &XdpFacts) -> Result<(), Reason> {
    if UNFINISHED.contains(&facts.driver.as_str()) && facts.trusts_checksums != Some(false) {
        return Err(Reason::new(
            Refusal::DriverLacksSupport,
            format!(
                "the driver {} delivers packets with unfinished checksums, which generic XDP cannot \
                 finish: use XDP in the driver, or do ethtool -K DEVICE rx off where that is possible",
                facts.driver
            ),
        ));
    }
    match facts.merges {
        Some(false) => Ok(()),
        // They would be longer than any port takes.
        Some(true) => Err(Reason::new(
            Refusal::DriverLacksSupport,
            "packets are put together before generic XDP sees them: do ethtool -K DEVICE gro off",
        )),
        None => Err(Reason::new(
            Refusal::DriverLacksSupport,
            "it cannot be read whether packets are put together before generic XDP sees them",
        )),
    }
}

fn nic_fit(facts: &XdpFacts) -> Result<(), Reason> {
    match facts.takes_tags_off {
        Some(false) => Ok(()),
        // A tagged packet would be taken for one without a tag.
        Some(true) => Err(Reason::new(
            Refusal::DriverLacksSupport,
            "the card takes VLAN tags off before XDP sees the packet: do ethtool -K DEVICE \
             rxvlan off",
        )),
        None => Err(Reason::new(
            Refusal::DriverLacksSupport,
            "it cannot be read whether the card takes VLAN tags off before XDP sees the packet",
        )),
    }
}

fn veth_fit(peer: PeerFacts) -> Result<(), Reason> {
    match peer.sends_whole_frames {
        Some(true) => Ok(()),
        Some(false) => Err(Reason::new(
            Refusal::UnverifiedPeer,
            "the other end leaves checksums, VLAN tags or segmentation to the device, which XDP \
             cannot finish: there, do ethtool -K DEVICE tx off tso off txvlan off \
             tx-vlan-stag-hw-insert off",
        )),
        None => Err(Reason::new(
            Refusal::UnverifiedPeer,
            "the other end cannot be looked at, and may leave checksums unfinished",
        )),
    }
}

/// Checks whether XDP may redirect packets to a device. `is_attached`: XDP is attached in the
/// driver of the device.
///
/// # Errors
///
/// Returns the fact that excludes redirects, with the remedy if there is one.
pub fn redirect_fit(facts: &XdpFacts, kind: Kind, is_attached: bool) -> Result<(), Reason> {
    if matches!(kind, Kind::Internal | Kind::Tap) {
        return Err(Reason::new(
            Refusal::DeviceKind,
            "packets to the host go through the skb hook",
        ));
    }
    match facts.link_kind.as_deref() {
        None => nic_redirect(facts, is_attached),
        Some("veth") => match facts.peer.unwrap_or_default().receives_redirects {
            Some(true) => Ok(()),
            Some(false) => Err(Reason::new(
                Refusal::UnverifiedPeer,
                "the other end has neither an XDP program nor GRO: the kernel would drop what is \
                 redirected to it; there, do ethtool -K DEVICE gro on",
            )),
            None => Err(Reason::new(
                Refusal::UnverifiedPeer,
                "the other end cannot be looked at; without an XDP program or GRO there the \
                 kernel drops what is redirected to it",
            )),
        },
        Some(kind) => Err(Reason::new(
            Refusal::UnverifiedPeer,
            format!("it is not known that a {kind} device sends what XDP redirects to it"),
        )),
    }
}

/// Drivers that have `ndo_xdp_xmit` and send what is redirected to a device on which an XDP
/// program runs in the driver (drivers/net of Linux 5.15).
const REDIRECTING: [&str; 15] = [
    "bnxt_en",
    "dpaa2-eth",
    "ena",
    "fsl_enetc",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "mlx5_core",
    "mvneta",
    "qede",
    "sfc",
    "stmmac",
    "virtio_net",
];

/// Drivers that also send redirected frames in several buffers (`NETDEV_XDP_ACT_NDO_XMIT_SG`),
/// since Linux 6.3, the first kernel that redirects such frames.
const REDIRECTING_SPLIT: [&str; 4] = ["fsl_enetc", "ice", "veth", "virtio_net"];

/// Returns whether a device that is a target of redirects is known to send frames in several
/// buffers. If it is not, such frames run at the skb hook.
pub(crate) fn takes_split_frames(facts: &XdpFacts) -> bool {
    REDIRECTING_SPLIT.contains(&facts.driver.as_str())
}

fn nic_redirect(facts: &XdpFacts, is_attached: bool) -> Result<(), Reason> {
    let driver = shown(&facts.driver);
    if !REDIRECTING.contains(&facts.driver.as_str()) {
        return Err(Reason::new(
            Refusal::UnverifiedPeer,
            format!("it is not known that the driver {driver} sends what XDP redirects to it"),
        ));
    }
    if !is_attached {
        return Err(Reason::new(
            Refusal::UnverifiedPeer,
            format!("the driver {driver} sends redirected packets only while XDP runs on it"),
        ));
    }
    Ok(())
}

fn shown(driver: &str) -> &str {
    if driver.is_empty() { "(unknown)" } else { driver }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::TierSet;
    use datapath::offload::tier_setting;

    fn nic(driver: &str) -> XdpFacts {
        XdpFacts { driver: driver.into(), takes_tags_off: Some(false), ..XdpFacts::default() }
    }

    fn veth(peer: Option<PeerFacts>) -> XdpFacts {
        XdpFacts {
            link_kind: Some("veth".into()),
            driver: "veth".into(),
            peer,
            ..XdpFacts::default()
        }
    }

    fn refusal(result: Result<(), Reason>) -> Option<Refusal> {
        result.err().map(|reason| reason.refusal)
    }

    #[test]
    fn the_setting_has_four_words() {
        assert_eq!(Wish::of(None), Wish::Auto);
        for wish in [Wish::Auto, Wish::Xdp, Wish::Tcx, Wish::Userspace] {
            let read = tier_setting(Some(wish.name()), TierSet::XDP_AND_TCX);
            assert_eq!(read.map(Wish::of), Ok(wish));
        }
    }

    #[test]
    fn network_cards_are_tried() {
        assert_eq!(xdp_fit(&nic("any"), Wish::Auto, XdpMode::Driver), Ok(()));
        for takes_tags_off in [None, Some(true)] {
            let blind = XdpFacts { takes_tags_off, ..nic("e100") };
            assert_eq!(
                refusal(xdp_fit(&blind, Wish::Xdp, XdpMode::Driver)),
                Some(Refusal::DriverLacksSupport)
            );
        }
        assert_eq!(
            refusal(xdp_fit(&nic("ice"), Wish::Tcx, XdpMode::Driver)),
            Some(Refusal::TierSetting)
        );
        assert_eq!(
            refusal(xdp_fit(&nic("ice"), Wish::Userspace, XdpMode::Driver)),
            Some(Refusal::TierSetting)
        );
    }

    #[test]
    fn the_mode_has_two_words() {
        assert_eq!(parse_mode(None), Ok(XdpMode::Driver));
        for (word, mode) in MODES {
            assert_eq!(parse_mode(Some(word)), Ok(mode));
        }
        let error = parse_mode(Some("skb")).unwrap_err();
        assert!(error.contains("native and generic"), "{error}");
    }

    #[test]
    fn generic_xdp_wants_packets_as_they_came() {
        for (merges, expected) in [
            (Some(false), None),
            (Some(true), Some(Refusal::DriverLacksSupport)),
            (None, Some(Refusal::DriverLacksSupport)),
        ] {
            let card = XdpFacts { merges, ..nic("any") };
            assert_eq!(refusal(xdp_fit(&card, Wish::Auto, XdpMode::Generic)), expected);
            assert_eq!(xdp_fit(&card, Wish::Auto, XdpMode::Driver), Ok(()));
        }
        let tap = XdpFacts { link_kind: Some("tun".into()), merges: Some(false), ..nic("tun") };
        let fit = xdp_fit(&tap, Wish::Xdp, XdpMode::Generic);
        assert_eq!(refusal(fit), Some(Refusal::DeviceKind));
    }

    #[test]
    fn generic_xdp_wants_finished_checksums() {
        for driver in UNFINISHED {
            for (trusts_checksums, fits) in
                [(None, false), (Some(true), false), (Some(false), true)]
            {
                let card = XdpFacts { merges: Some(false), trusts_checksums, ..nic(driver) };
                let generic = xdp_fit(&card, Wish::Xdp, XdpMode::Generic);
                let expected = (!fits).then_some(Refusal::DriverLacksSupport);
                assert_eq!(refusal(generic), expected, "{driver}");
                assert_eq!(xdp_fit(&card, Wish::Xdp, XdpMode::Driver), Ok(()), "{driver}");
            }
        }
        // Another card checks a checksum, and leaves it in the packet.
        let card = XdpFacts { merges: Some(false), trusts_checksums: Some(true), ..nic("e1000") };
        assert_eq!(xdp_fit(&card, Wish::Xdp, XdpMode::Generic), Ok(()));
    }

    #[test]
    fn virtual_devices_stay_at_the_skb_hook() {
        for kind in ["tun", "bridge", "bond", "vlan", "macvlan", "ipvlan"] {
            let facts = XdpFacts { link_kind: Some(kind.into()), ..nic("x") };
            assert_eq!(
                refusal(xdp_fit(&facts, Wish::Auto, XdpMode::Driver)),
                Some(Refusal::DeviceKind)
            );
            assert_eq!(
                refusal(xdp_fit(&facts, Wish::Xdp, XdpMode::Driver)),
                Some(Refusal::DeviceKind)
            );
            let target = redirect_fit(&facts, Kind::System, false);
            assert_eq!(refusal(target), Some(Refusal::UnverifiedPeer));
        }
    }

    #[test]
    fn a_veth_takes_xdp_when_asked_and_prepared() {
        let whole = PeerFacts { sends_whole_frames: Some(true), receives_redirects: Some(true) };
        assert_eq!(
            refusal(xdp_fit(&veth(Some(whole)), Wish::Auto, XdpMode::Driver)),
            Some(Refusal::DeviceKind)
        );
        assert_eq!(xdp_fit(&veth(Some(whole)), Wish::Xdp, XdpMode::Driver), Ok(()));
        for sends_whole_frames in [None, Some(false)] {
            let peer = PeerFacts { sends_whole_frames, ..whole };
            let fit = xdp_fit(&veth(Some(peer)), Wish::Xdp, XdpMode::Driver);
            assert_eq!(refusal(fit), Some(Refusal::UnverifiedPeer));
        }
        assert_eq!(
            refusal(xdp_fit(&veth(None), Wish::Xdp, XdpMode::Driver)),
            Some(Refusal::UnverifiedPeer)
        );
    }

    #[test]
    fn frames_in_several_buffers_go_where_that_is_known_to_work() {
        assert!(takes_split_frames(&veth(None)));
        assert!(takes_split_frames(&nic("ice")));
        // It sends redirected frames, but in one buffer only.
        assert_eq!(redirect_fit(&nic("igb"), Kind::System, true), Ok(()));
        assert!(!takes_split_frames(&nic("igb")));
    }

    #[test]
    fn only_what_is_known_to_work_is_redirected_to() {
        let target = |facts: &XdpFacts, attached| redirect_fit(facts, Kind::System, attached);
        assert_eq!(target(&nic("i40e"), true), Ok(()));
        assert_eq!(refusal(target(&nic("i40e"), false)), Some(Refusal::UnverifiedPeer));
        assert_eq!(refusal(target(&nic("unheard-of"), true)), Some(Refusal::UnverifiedPeer));
        for (receives_redirects, fits) in [(None, false), (Some(false), false), (Some(true), true)]
        {
            let peer = PeerFacts { receives_redirects, ..PeerFacts::default() };
            assert_eq!(target(&veth(Some(peer)), false).is_ok(), fits);
        }
        assert_eq!(refusal(target(&veth(None), true)), Some(Refusal::UnverifiedPeer));
        let internal = redirect_fit(&nic("tun"), Kind::Internal, false);
        assert_eq!(refusal(internal), Some(Refusal::DeviceKind));
    }
}
