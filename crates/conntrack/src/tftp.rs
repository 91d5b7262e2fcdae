// SPDX-License-Identifier: Apache-2.0
//! The requests of TFTP (RFC 1350, 5): after one, the server sends from a port of its choice.

/// Returns true when the data of a datagram is a read or write request.
pub fn is_request(data: &[u8]) -> bool {
    const READ: u16 = 1;
    const WRITE: u16 = 2;
    let opcode = data.first_chunk::<2>().map(|opcode| u16::from_be_bytes(*opcode));
    matches!(opcode, Some(READ | WRITE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        assert!(is_request(b"\0\x01file\0octet\0"));
        assert!(is_request(b"\0\x02file\0octet\0"));
        assert!(!is_request(b"\0\x03\0\x01data"));
        assert!(!is_request(b"\0"));
        assert!(!is_request(b""));
    }
}
