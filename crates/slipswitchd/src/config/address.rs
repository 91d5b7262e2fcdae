// SPDX-License-Identifier: Apache-2.0
//! Ethernet addresses and datapath ids of bridges.
//!
//! A bridge's address is `other_config:hwaddr`. Without it, the address is the lowest universally
//! administered unicast address among the bridge's ports, which stays the same when other ports
//! come and go. Without such a port, the address follows from the Bridge row's UUID, which outlives
//! restarts. (`ovs-vswitchd.conf.db(5)`, Bridge.)

use ovsdb::Uuid;
use packet::Mac;

/// Returns the address that `text` names, if one interface can have it: unicast and not zero.
pub(super) fn parse_station(text: &str) -> Option<Mac> {
    text.parse::<Mac>().ok().filter(|mac| mac.is_unicast() && *mac != Mac::default())
}

/// Returns true for an address that a bridge may take from one of its ports: unicast, universally
/// administered, not zero. The addresses reserved for bridge protocols are multicast.
fn is_eligible(mac: Mac) -> bool {
    let [first, ..] = mac.0;
    first & 0b11 == 0 && mac != Mac::default()
}

/// Returns the lowest address of `ports` that a bridge may take.
pub(super) fn lowest(ports: impl Iterator<Item = Mac>) -> Option<Mac> {
    ports.filter(|mac| is_eligible(*mac)).min()
}

/// Returns the address of a bridge that has no other: bytes of its row's UUID, marked as locally
/// administered. OVS takes the same bytes from the same row.
pub(super) fn from_row(uuid: Uuid) -> Mac {
    let [a, b, c, d, _, _, g, h, ..] = uuid.as_u128().to_be_bytes();
    Mac([d & !1 | 2, c, b, a, h, g])
}

/// Returns a stable, locally administered address for a port without a device (a patch port).
pub(super) fn of_name(bridge: &str, name: &str) -> Mac {
    let mut hash = 0xcbf2_9ce4_8422_2325u64; // FNV-1a
    for byte in bridge.bytes().chain([0]).chain(name.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    let [a, b, c, d, e, f, ..] = hash.to_be_bytes();
    Mac([a & !1 | 2, b, c, d, e, f])
}

/// Reads `other_config:datapath-id`: 16 hexadecimal digits, or up to 16 after `0x`; not zero.
pub(super) fn parse_datapath_id(text: &str) -> Option<u64> {
    let digits = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if (1..=16).contains(&digits.len()) => digits,
        None if text.len() == 16 => text,
        _ => return None,
    };
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0)
}

/// Returns the datapath id that follows from a bridge's address.
pub(super) fn datapath_id(Mac([a, b, c, d, e, f]): Mac) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_has_a_unicast_address() {
        let mac = Mac([2, 0x11, 0x22, 0x33, 0x44, 0x5f]);
        assert_eq!(parse_station("02:11:22:33:44:5f"), Some(mac));
        for bad in ["03:11:22:33:44:5f", "00:00:00:00:00:00", "02:11:22:33:44", "+2:1:2:3:4:5"] {
            assert_eq!(parse_station(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_lowest_universal_address_is_taken() {
        let of = |macs: &[[u8; 6]]| lowest(macs.iter().copied().map(Mac));
        let local = [0x02, 0, 0, 0, 0, 1];
        let multicast = [0x01, 0, 0, 0, 0, 1];
        assert_eq!(of(&[local, multicast, [0; 6]]), None);
        assert_eq!(
            of(&[local, [0x50, 2, 3, 4, 5, 6], [0x50, 2, 3, 4, 5, 5]]),
            Some(Mac([0x50, 2, 3, 4, 5, 5]))
        );
    }

    #[test]
    fn the_default_address_is_the_one_that_ovs_takes() {
        let uuid: Uuid = Uuid::from_u128(0x2443904e_37aa_4f7a_b4ec_0b54c9581001);
        assert_eq!(from_row(uuid).to_string(), "4e:90:43:24:7a:4f");
        assert_eq!(of_name("br0", "p").0[0] & 3, 2);
        assert_ne!(of_name("br0", "p"), of_name("br0", "q"));
    }

    #[test]
    fn datapath_ids() {
        assert_eq!(parse_datapath_id("0000021122334455"), Some(0x0211_2233_4455));
        assert_eq!(parse_datapath_id("0x123"), Some(0x123));
        for bad in [
            "123",
            "",
            "0x",
            "0000000000000000",
            "00000000000000zz",
            "0x12345678901234567",
            "+000021122334455",
        ] {
            assert_eq!(parse_datapath_id(bad), None, "{bad}");
        }
        assert_eq!(datapath_id(Mac([2, 0x11, 0x22, 0x33, 0x44, 0x55])), 0x0211_2233_4455);
    }
}
