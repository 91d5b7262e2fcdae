// SPDX-License-Identifier: Apache-2.0
//! The LACPDU (IEEE 802.1AX-2014, 6.4.2.3).

/// Length of a LACPDU in bytes, from the subtype to the last reserved byte.
pub const PDU_LEN: usize = 110;

/// Subtype of LACP in a slow protocol's frame.
const SUBTYPE_LACP: u8 = 1;
/// Subtype of the marker protocol.
const SUBTYPE_MARKER: u8 = 2;
const VERSION: u8 = 1;

const TLV_ACTOR: u8 = 1;
const TLV_PARTNER: u8 = 2;
const TLV_COLLECTOR: u8 = 3;
/// Length of the actor's and the partner's TLV, header included.
const INFO_LEN: u8 = 20;
/// Length of the collector's TLV, header included.
const COLLECTOR_LEN: u8 = 16;

const ACTOR_AT: usize = 2;
const PARTNER_AT: usize = ACTOR_AT + INFO_LEN as usize;
const COLLECTOR_AT: usize = PARTNER_AT + INFO_LEN as usize;

/// State bits of an actor or a partner (IEEE 802.1AX-2014, 6.4.2.3, figure 6-8).
pub mod state {
    /// LACP_Activity: active LACP.
    pub const ACTIVITY: u8 = 0x01;
    /// LACP_Timeout: short timeout.
    pub const TIMEOUT: u8 = 0x02;
    /// Aggregation: the link may be part of an aggregate.
    pub const AGGREGATION: u8 = 0x04;
    /// Synchronization: the link is attached to the right aggregate.
    pub const SYNCHRONIZED: u8 = 0x08;
    /// Collecting: received frames are taken.
    pub const COLLECTING: u8 = 0x10;
    /// Distributing: frames are sent.
    pub const DISTRIBUTING: u8 = 0x20;
    /// Defaulted: nothing is received from the partner.
    pub const DEFAULTED: u8 = 0x40;
    /// Expired: the partner's information is too old.
    pub const EXPIRED: u8 = 0x80;

    /// Each bit with its name in Open vSwitch's texts, in the order of these texts.
    pub const NAMES: [(u8, &str); 8] = [
        (ACTIVITY, "activity"),
        (TIMEOUT, "timeout"),
        (AGGREGATION, "aggregation"),
        (SYNCHRONIZED, "synchronized"),
        (COLLECTING, "collecting"),
        (DISTRIBUTING, "distributing"),
        (DEFAULTED, "defaulted"),
        (EXPIRED, "expired"),
    ];
}

/// One end of a link, as LACP describes it. Numbers are host integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Info {
    /// Priority of the system; lower values are preferred.
    pub system_priority: u16,
    /// Address of the system.
    pub system_id: [u8; 6],
    /// Key of the aggregate that the link may join.
    pub key: u16,
    /// Priority of the port; lower values are preferred.
    pub port_priority: u16,
    /// Number of the port.
    pub port_id: u16,
    /// Bits of [`state`].
    pub state: u8,
}

impl Info {
    fn decode(tlv: &[u8]) -> Option<Info> {
        let (tlv, _) = tlv.split_first_chunk::<{ INFO_LEN as usize }>()?;
        let [_, _, p0, p1, id @ .., k0, k1, q0, q1, n0, n1, state, _, _, _] = *tlv;
        let word = |a, b| u16::from_be_bytes([a, b]);
        Some(Info {
            system_priority: word(p0, p1),
            system_id: id,
            key: word(k0, k1),
            port_priority: word(q0, q1),
            port_id: word(n0, n1),
            state,
        })
    }

    fn encode(&self, kind: u8) -> [u8; INFO_LEN as usize] {
        let [p0, p1] = self.system_priority.to_be_bytes();
        let [a, b, c, d, e, f] = self.system_id;
        let [k0, k1] = self.key.to_be_bytes();
        let [q0, q1] = self.port_priority.to_be_bytes();
        let [n0, n1] = self.port_id.to_be_bytes();
        [kind, INFO_LEN, p0, p1, a, b, c, d, e, f, k0, k1, q0, q1, n0, n1, self.state, 0, 0, 0]
    }
}

/// A LACPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pdu {
    /// The sender's end of the link.
    pub actor: Info,
    /// The receiver's end, as the sender knows it.
    pub partner: Info,
}

/// A received frame of a slow protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A LACPDU.
    Lacp(Pdu),
    /// A PDU of the marker protocol, which is counted only.
    Marker,
}

/// The bytes are no LACPDU, and no PDU of the marker protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither a LACPDU nor a marker PDU")]
pub struct NotLacp;

/// Decodes the payload of an Ethernet frame of type 0x8809. The version, reserved bytes and TLVs
/// after the partner's are not checked: later versions of LACP may use them (IEEE 802.1AX-2014,
/// 6.4.2.4.2).
///
/// # Errors
///
/// Fails when the payload is shorter than [`PDU_LEN`], has another subtype, or when the first two
/// TLVs are not the actor's and the partner's.
pub fn decode(payload: &[u8]) -> Result<Received, NotLacp> {
    let (pdu, _) = payload.split_first_chunk::<PDU_LEN>().ok_or(NotLacp)?;
    match pdu[0] {
        SUBTYPE_LACP => {}
        SUBTYPE_MARKER => return Ok(Received::Marker),
        _ => return Err(NotLacp),
    }
    let tlv = |kind: u8, at: usize| {
        let tlv = pdu.get(at..).filter(|tlv| tlv.starts_with(&[kind, INFO_LEN]))?;
        Info::decode(tlv)
    };
    let actor = tlv(TLV_ACTOR, ACTOR_AT).ok_or(NotLacp)?;
    let partner = tlv(TLV_PARTNER, PARTNER_AT).ok_or(NotLacp)?;
    Ok(Received::Lacp(Pdu { actor, partner }))
}

impl Pdu {
    /// Returns the bytes of the PDU, without an Ethernet header. The collector's delay is 0.
    pub fn encode(&self) -> [u8; PDU_LEN] {
        let mut out = [0; PDU_LEN];
        let parts: [(usize, &[u8]); 4] = [
            (0, &[SUBTYPE_LACP, VERSION]),
            (ACTOR_AT, &self.actor.encode(TLV_ACTOR)),
            (PARTNER_AT, &self.partner.encode(TLV_PARTNER)),
            (COLLECTOR_AT, &[TLV_COLLECTOR, COLLECTOR_LEN]),
        ];
        for (at, bytes) in parts {
            for (to, from) in out.iter_mut().skip(at).zip(bytes) {
                *to = *from;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info() -> impl Strategy<Value = Info> {
        (any::<[u16; 4]>(), any::<[u8; 6]>(), any::<u8>()).prop_map(|(n, system_id, state)| Info {
            system_priority: n[0],
            system_id,
            key: n[1],
            port_priority: n[2],
            port_id: n[3],
            state,
        })
    }

    proptest! {
        #[test]
        fn a_pdu_survives_its_bytes((actor, partner) in (info(), info())) {
            let pdu = Pdu { actor, partner };
            prop_assert_eq!(decode(&pdu.encode()), Ok(Received::Lacp(pdu)));
        }

        #[test]
        fn any_bytes_are_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..130)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn bytes_are_where_the_standard_has_them() {
        let actor = Info {
            system_priority: 0x0102,
            system_id: [2, 0, 0, 0, 0, 9],
            key: 0x0304,
            port_priority: 0x0506,
            port_id: 0x0708,
            state: state::ACTIVITY | state::AGGREGATION,
        };
        let bytes = Pdu { actor, partner: Info::default() }.encode();
        let head = [1, 1, 1, 20, 1, 2, 2, 0, 0, 0, 0, 9, 3, 4, 5, 6, 7, 8, 5, 0, 0, 0, 2, 20];
        assert_eq!(bytes[..24], head);
        assert_eq!(bytes[42..46], [3, 16, 0, 0]);
        assert_eq!(bytes[58..], [0; 52]);
    }

    #[test]
    fn other_payloads_are_refused() {
        let good = Pdu::default().encode();
        assert_eq!(decode(&good[..PDU_LEN - 1]), Err(NotLacp), "too short");
        for (at, bad) in [(0, 0), (0, 3), (2, 2), (3, 19), (22, 1), (23, 21)] {
            let mut bytes = good;
            bytes[at] = bad;
            assert_eq!(decode(&bytes), Err(NotLacp), "byte {at} is {bad}");
        }
        let mut marker = good;
        marker[0] = 2;
        assert_eq!(decode(&marker), Ok(Received::Marker));
        let mut later = good.to_vec();
        later[1] = 2;
        later.push(7);
        assert!(decode(&later).is_ok(), "a later version, with a byte after it");
    }
}
