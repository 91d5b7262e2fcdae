// SPDX-License-Identifier: Apache-2.0
//! IP addresses with the length of a prefix, and their text forms.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address with the length of its subnet's prefix. The bits after the prefix are kept:
/// `10.0.0.7/24` is an address of the subnet `10.0.0.0/24`.
///
/// IPv4-mapped IPv6 addresses with a prefix of 96 bits or more become IPv4, as in Open vSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    /// Returns an address in a subnet. `None` when the prefix is longer than the address.
    pub fn new(address: IpAddr, length: u8) -> Option<Cidr> {
        if length > width(address) {
            return None;
        }
        if let IpAddr::V6(v6) = address
            && let Some(length) = length.checked_sub(96)
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            return Some(Cidr { address: IpAddr::V4(v4), length });
        }
        Some(Cidr { address, length })
    }

    /// Returns the address alone, in a subnet of its own.
    pub fn host(address: IpAddr) -> Cidr {
        let address = address.to_canonical();
        Cidr { address, length: width(address) }
    }

    /// Returns the prefix of length 0 of IPv6 or IPv4.
    pub fn all(is_ipv6: bool) -> Cidr {
        Cidr { address: unspecified(is_ipv6), length: 0 }
    }

    /// Returns the address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns true for IPv6.
    pub fn is_ipv6(self) -> bool {
        self.address.is_ipv6()
    }

    /// Returns true when the prefix is the whole address.
    pub fn is_host(self) -> bool {
        self.length == width(self.address)
    }

    /// Returns the subnet: the bits after the prefix are cleared.
    pub fn network(self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(a) => {
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask(32, self.length) as u32))
            }
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask(128, self.length))),
        };
        Cidr { address, length: self.length }
    }

    /// Returns true when the subnet has `address`.
    pub fn contains(self, address: IpAddr) -> bool {
        self.is_ipv6() == address.is_ipv6()
            && (bits(self.address) ^ bits(address)) & mask(width(address), self.length) == 0
    }
}

/// The bits of an address, the least significant bit last.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The length of an address in bits.
pub(crate) fn width(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

/// The mask of a prefix in an address of `width` bits.
pub(crate) fn mask(width: u8, length: u8) -> u128 {
    let all = u128::MAX >> (128 - u32::from(width.clamp(1, 128)));
    let rest = u32::from(width.saturating_sub(length));
    all & u128::MAX.checked_shl(rest).unwrap_or(0)
}

/// The address of only zeros.
pub(crate) fn unspecified(is_ipv6: bool) -> IpAddr {
    if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Returns an address as Open vSwitch writes it: IPv6 as `inet_ntop(3)` does.
pub fn address_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(a) => a.to_string(),
        IpAddr::V6(a) => flow::text::ipv6_address(a),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", address_text(self.address), self.length)
    }
}

/// The reason why a text is no address with a prefix, in Open vSwitch's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The text is no IPv4 address.
    #[error("{0}: invalid IP address")]
    Ipv4(String),
    /// The text is no IPv6 address.
    #[error("{0}: invalid IPv6 address")]
    Ipv6(String),
    /// The prefix of an IPv4 address is too long.
    #[error("{0}: IPv4 network prefix bits not between 0 and 32, inclusive")]
    Ipv4Length(String),
    /// The prefix of an IPv6 address is too long.
    #[error("{0}: IPv6 network prefix bits not between 0 and 128, inclusive")]
    Ipv6Length(String),
    /// The text after the slash is no IPv6 mask.
    #[error("{0}: Invalid IPv6 mask")]
    Ipv6Mask(String),
    /// The mask has ones after a zero.
    #[error("{0}: CIDR network required")]
    NotCidr(String),
    /// The IPv6 mask has ones after a zero.
    #[error("{0}: IPv6 CIDR network required")]
    NotCidr6(String),
}

impl Cidr {
    /// Parses `A.B.C.D`, `A.B.C.D/LENGTH` or `A.B.C.D/MASK`.
    ///
    /// # Errors
    ///
    /// The text is something else.
    pub fn parse_ipv4(text: &str) -> Result<Cidr, CidrError> {
        let (address, rest) = split(text);
        let address: Ipv4Addr = address.parse().map_err(|_| CidrError::Ipv4(text.to_owned()))?;
        let length = match rest {
            None => 32,
            Some(rest) => match (rest.parse::<Ipv4Addr>(), rest.parse::<i64>()) {
                (Ok(mask), _) => length_of(u128::from(mask.to_bits()), 32)
                    .ok_or_else(|| CidrError::NotCidr(text.to_owned()))?,
                (_, Ok(length)) => u8::try_from(length)
                    .ok()
                    .filter(|l| *l <= 32)
                    .ok_or_else(|| CidrError::Ipv4Length(text.to_owned()))?,
                _ => return Err(CidrError::Ipv4(text.to_owned())),
            },
        };
        Ok(Cidr { address: address.into(), length })
    }

    /// Parses `ADDRESS`, `ADDRESS/LENGTH` or `ADDRESS/MASK` of IPv6.
    ///
    /// # Errors
    ///
    /// The text is something else.
    pub fn parse_ipv6(text: &str) -> Result<Cidr, CidrError> {
        let (address, rest) = split(text);
        let address: Ipv6Addr = address.parse().map_err(|_| CidrError::Ipv6(text.to_owned()))?;
        let length = match rest {
            None => 128,
            Some(rest) => match (rest.parse::<Ipv6Addr>(), rest.parse::<i64>()) {
                (Ok(mask), _) => length_of(mask.to_bits(), 128)
                    .ok_or_else(|| CidrError::NotCidr6(text.to_owned()))?,
                (_, Ok(length)) => u8::try_from(length)
                    .ok()
                    .filter(|l| *l <= 128)
                    .ok_or_else(|| CidrError::Ipv6Length(text.to_owned()))?,
                _ => return Err(CidrError::Ipv6Mask(text.to_owned())),
            },
        };
        Cidr::new(address.into(), length).ok_or_else(|| CidrError::Ipv6Length(text.to_owned()))
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        Cidr::parse_ipv4(text).or_else(|_| Cidr::parse_ipv6(text))
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('/') {
        Some((address, rest)) => (address, Some(rest)),
        None => (text, None),
    }
}

/// The number of ones at the beginning of a mask. `None` when there are ones after a zero.
fn length_of(bits: u128, width: u8) -> Option<u8> {
    (0..=width).find(|length| mask(width, *length) == bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        let cidr =
            |text: &str| text.parse::<Cidr>().map(|c| (c.to_string(), c.network().to_string()));
        let both = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(cidr("10.1.2.3/8"), both("10.1.2.3/8", "10.0.0.0/8"));
        assert_eq!(cidr("10.1.2.3"), both("10.1.2.3/32", "10.1.2.3/32"));
        assert_eq!(cidr("10.1.2.3/255.255.0.0"), both("10.1.2.3/16", "10.1.0.0/16"));
        assert_eq!(cidr("2001:db8::1/64"), both("2001:db8::1/64", "2001:db8::/64"));
        assert_eq!(cidr("2001:db8::1/ffff::"), both("2001:db8::1/16", "2001::/16"));
        assert_eq!(cidr("::ffff:10.1.2.3/120"), both("10.1.2.3/24", "10.1.2.0/24"));
        assert_eq!(cidr("::/0"), both("::/0", "::/0"));
        for bad in ["", "/", "x", "10.0.0.1/33", "10.0.0.1/-1", "10.0.0.1/x", "::/129", "::1/x"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
        let error = |text| Cidr::parse_ipv4(text).unwrap_err().to_string();
        assert_eq!(
            error("1.2.3.4/33"),
            "1.2.3.4/33: IPv4 network prefix bits not between 0 and 32, inclusive"
        );
        assert_eq!(error("1.2.3.4/255.0.255.0"), "1.2.3.4/255.0.255.0: CIDR network required");
    }

    #[test]
    fn subnets() {
        let subnet: Cidr = "10.1.0.0/16".parse().unwrap();
        assert!(subnet.contains("10.1.255.255".parse().unwrap()));
        assert!(!subnet.contains("10.2.0.0".parse().unwrap()));
        assert!(!Cidr::all(false).contains("::".parse().unwrap()));
        assert!(Cidr::all(true).contains("ffff::".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn a_subnet_has_what_has_its_first_bits(a: u128, b: u128, length in 0u8..=128, same in 0u8..=128) {
            let b = a & mask(128, same) | b & !mask(128, same);
            let cidr = Cidr { address: Ipv6Addr::from_bits(a).into(), length };
            let expected = (a ^ b).leading_zeros() >= u32::from(length);
            prop_assert_eq!(cidr.contains(Ipv6Addr::from_bits(b).into()), expected);
            prop_assert!(cidr.network().contains(cidr.address));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = text.parse::<Cidr>();
        }
    }
}
