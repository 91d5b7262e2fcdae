// SPDX-License-Identifier: Apache-2.0
//! The messages of FTP that announce a data connection: `PORT` and reply 227 (RFC 959), `EPRT` and
//! reply 229 (RFC 2428).
//!
//! The decoder is total. It reads the first [`MAX_MESSAGE`] bytes of a segment, which hold the
//! whole message or none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Bytes of a segment that may hold a message.
pub const MAX_MESSAGE: usize = 128;

/// The peer that opens the data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The server connects to the address that the client sent.
    Active,
    /// The client connects to the address that the server sent.
    Passive,
}

/// The place and form of the address in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Its text in the segment's data.
    pub at: Range<usize>,
    /// True for the form with commas.
    pub commas: bool,
}

/// A message that announces a data connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The peer that connects.
    pub mode: Mode,
    /// The address to which it connects; none in reply 229: the address of the sender.
    pub address: Option<Address>,
    /// The port to which it connects.
    pub port: u16,
}

/// The message is one that announces a data connection, but its parameters are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A reader of the characters of a message.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, expected: u8) -> Result<(), Malformed> {
        (self.peek() == Some(expected)).then(|| self.at += 1).ok_or(Malformed)
    }

    fn skip_spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Skips to the first byte for which `stop` is true; false at the end of the line.
    fn skip_until(&mut self, stop: impl Fn(u8) -> bool) -> Result<(), Malformed> {
        while let Some(byte) = self.peek() {
            if stop(byte) {
                return Ok(());
            }
            if matches!(byte, b'\r' | b'\n') {
                return Err(Malformed);
            }
            self.at += 1;
        }
        Err(Malformed)
    }

    /// Reads a decimal number of at most `max`.
    fn number(&mut self, max: u32) -> Result<u32, Malformed> {
        let start = self.at;
        let mut value = 0u32;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            value = value * 10 + u32::from(digit - b'0');
            self.at += 1;
            if value > max || self.at - start > 5 {
                return Err(Malformed);
            }
        }
        if self.at == start { Err(Malformed) } else { Ok(value) }
    }

    /// Reads `h1,h2,h3,h4,p1,p2` (RFC 959, 4.1.2).
    fn host_port(&mut self) -> Result<(Address, u16), Malformed> {
        let start = self.at;
        let mut octets = [0; 4];
        for (position, octet) in octets.iter_mut().enumerate() {
            if position > 0 {
                self.skip(b',')?;
            }
            *octet = self.number(255)? as u8;
        }
        let at = start..self.at;
        self.skip(b',')?;
        let high = self.number(255)?;
        self.skip(b',')?;
        let port = high << 8 | self.number(255)?;
        let address = IpAddr::V4(Ipv4Addr::from(octets));
        Ok((Address { address, at, commas: true }, port as u16))
    }

    /// Reads `|protocol|address|port|` with any delimiter (RFC 2428, 2).
    fn extended(&mut self) -> Result<(Address, u16), Malformed> {
        let delimiter = self.peek().filter(u8::is_ascii_graphic).ok_or(Malformed)?;
        self.skip(delimiter)?;
        let family = self.number(2)?;
        self.skip(delimiter)?;
        let start = self.at;
        self.skip_until(|byte| byte == delimiter)?;
        let text = self.bytes.get(start..self.at).ok_or(Malformed)?;
        let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
        let address = match family {
            1 => IpAddr::V4(text.parse::<Ipv4Addr>().map_err(|_| Malformed)?),
            2 => IpAddr::V6(text.parse::<Ipv6Addr>().map_err(|_| Malformed)?),
            _ => return Err(Malformed),
        };
        let at = start..self.at;
        self.skip(delimiter)?;
        let port = self.number(u16::MAX.into())?;
        self.skip(delimiter)?;
        Ok((Address { address, at, commas: false }, port as u16))
    }

    /// Reads `(|||port|)` with any delimiter (RFC 2428, 3).
    fn extended_port(&mut self) -> Result<u16, Malformed> {
        self.skip_until(|byte| byte == b'(')?;
        self.at += 1;
        let delimiter = self.peek().filter(u8::is_ascii_graphic).ok_or(Malformed)?;
        for _ in 0..3 {
            self.skip(delimiter)?;
        }
        let port = self.number(u16::MAX.into())?;
        self.skip(delimiter)?;
        Ok(port as u16)
    }
}

/// Decodes the data of a segment of a control connection. `None`: it announces no data connection.
///
/// # Errors
///
/// The message announces one with invalid parameters, or is cut off.
pub fn decode(data: &[u8]) -> Result<Option<Announcement>, Malformed> {
    let bytes = data.get(..MAX_MESSAGE.min(data.len())).unwrap_or_default();
    let Some((verb, _)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let mut reader = Reader { bytes, at: 4 };
    let announcement = match &verb.map(|byte| byte.to_ascii_uppercase()) {
        b"PORT" => {
            reader.skip(b' ')?;
            reader.skip_spaces();
            let (address, port) = reader.host_port()?;
            Announcement { mode: Mode::Active, address: Some(address), port }
        }
        b"EPRT" => {
            reader.skip(b' ')?;
            reader.skip_spaces();
            let (address, port) = reader.extended()?;
            Announcement { mode: Mode::Active, address: Some(address), port }
        }
        b"227 " => {
            // The text before the numbers is free; parentheses are common, but not required.
            reader.skip_until(|byte| byte.is_ascii_digit())?;
            let (address, port) = reader.host_port()?;
            Announcement { mode: Mode::Passive, address: Some(address), port }
        }
        b"229 " => {
            let port = reader.extended_port()?;
            Announcement { mode: Mode::Passive, address: None, port }
        }
        _ => return Ok(None),
    };
    // An address ends at the line's end, so a message that is cut off cannot pass for a shorter
    // one.
    if announcement.port == 0 || reader.peek().is_none() {
        return Err(Malformed);
    }
    Ok(Some(announcement))
}

impl Address {
    /// Returns the text of another address in this form. `None`: the form has no such address.
    pub fn text_of(&self, address: IpAddr) -> Option<String> {
        match (self.commas, address) {
            (true, IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                Some(format!("{a},{b},{c},{d}"))
            }
            (true, IpAddr::V6(_)) => None,
            (false, address) => {
                (address.is_ipv4() == self.address.is_ipv4()).then(|| address.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4(a: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 1, 1, a))
    }

    #[test]
    fn all_four_messages() {
        let port = decode(b"PORT 10,1,1,240,4,1\r\n").unwrap().unwrap();
        assert_eq!((port.mode, port.port), (Mode::Active, 1025));
        let address = port.address.unwrap();
        assert_eq!((address.address, address.at.clone()), (v4(240), 5..15));
        assert_eq!(address.text_of(v4(9)).as_deref(), Some("10,1,1,9"));

        let pasv = decode(b"227 Entering Passive Mode (10,1,1,2,164,74).\r\n").unwrap().unwrap();
        assert_eq!((pasv.mode, pasv.port), (Mode::Passive, 164 << 8 | 74));
        assert_eq!(pasv.address.unwrap().address, v4(2));

        let eprt = decode(b"EPRT |2|fc00::1|4711|\r\n").unwrap().unwrap();
        let address = eprt.address.unwrap();
        assert_eq!((eprt.port, address.address), (4711, "fc00::1".parse().unwrap()));
        assert_eq!(address.text_of("fc00::240".parse().unwrap()).as_deref(), Some("fc00::240"));
        assert_eq!(address.text_of(v4(1)), None);
        let eprt = decode(b"eprt !1!10.1.1.3!80!\r\n").unwrap().unwrap();
        assert_eq!(eprt.address.unwrap().address, v4(3));

        let epsv = decode(b"229 Entering Extended Passive Mode (|||6446|)\r\n").unwrap().unwrap();
        assert_eq!((epsv.mode, epsv.port, epsv.address), (Mode::Passive, 6446, None));
    }

    #[test]
    fn other_messages_are_none() {
        for text in ["USER x\r\n", "", "PO", "226 Done\r\n", "200 PORT ok\r\n", "2270 x"] {
            assert_eq!(decode(text.as_bytes()), Ok(None), "{text}");
        }
    }

    #[test]
    fn malformed_messages_are_errors() {
        for text in [
            "PORT 10,1,1,240,4\r\n",
            "PORT 256,1,1,1,4,1\r\n",
            "PORT 10,1,1,240,0,0\r\n",
            "PORT 10,1,1,240,4,1",
            "PORT ",
            "PORTx",
            "EPRT |3|1.2.3.4|5|\r\n",
            "EPRT |1|fc00::1|5|\r\n",
            "EPRT |1|1.2.3.4|65536|\r\n",
            "227 no numbers\r\n",
            "229 (|||5)\r\n",
            "229 (||5|)\r\n",
        ] {
            assert_eq!(decode(text.as_bytes()), Err(Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&data);
        }

        #[test]
        fn any_tail(verb in "PORT |EPRT |227 |229 ", tail in "[0-9,|()a-f:. \r\n]{0,60}") {
            let text = format!("{verb}{tail}");
            if let Ok(Some(found)) = decode(text.as_bytes()) {
                prop_assert!(found.port > 0);
                if let Some(address) = found.address {
                    let at = &text[address.at.clone()];
                    if address.commas {
                        prop_assert_eq!(at.split(',').count(), 4);
                    } else {
                        prop_assert_eq!(at.parse::<IpAddr>().unwrap(), address.address);
                    }
                }
            }
        }
    }
}
