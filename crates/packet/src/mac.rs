// SPDX-License-Identifier: Apache-2.0
//! Ethernet addresses and their text form.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// An Ethernet address (IEEE 802 MAC address), most significant byte first as on the wire.
///
/// The text form is `50:54:00:00:00:01`. The parser accepts one or two hexadecimal digits for each
/// byte, upper or lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// True when the address names one station: the group bit is clear. The zero address is
    /// unicast by this rule.
    pub const fn is_unicast(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0
    }
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Mac {
        Mac(bytes)
    }
}

impl From<Mac> for [u8; 6] {
    fn from(mac: Mac) -> [u8; 6] {
        mac.0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is not an Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacError;

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an Ethernet address, such as 50:54:00:00:00:01")
    }
}

impl Error for MacError {}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Mac, MacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacError)?;
            // `from_str_radix` would accept a sign.
            if part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Mac(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_parsed_and_written() {
        let mac = Mac([0x50, 0x54, 0, 0, 0xfa, 10]);
        assert_eq!("50:54:0:00:FA:0a".parse(), Ok(mac));
        assert_eq!(mac.to_string(), "50:54:00:00:fa:0a");
        assert!(mac.is_unicast() && !Mac([0xff; 6]).is_unicast());
    }

    #[test]
    fn other_text_is_an_error() {
        for bad in [
            "",
            "xx",
            "1:2:3:4:5",
            "1:2:3:4:5:",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:",
            "1:2:3:4:5:678",
            "1:2:3:4:5:+6",
            "+2:1:2:3:4:5",
            "g2:11:22:33:44:55",
            " 1:2:3:4:5:6",
            "1-2-3-4-5-6",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(MacError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_an_error(text in "\\PC*") {
            let _ = text.parse::<Mac>();
        }

        #[test]
        fn a_written_address_is_parsed_to_itself(bytes: [u8; 6]) {
            prop_assert_eq!(Mac(bytes).to_string().parse(), Ok(Mac(bytes)));
        }
    }
}
