// SPDX-License-Identifier: Apache-2.0
//! Contexts of the kernel's GTP devices, which no usual tool makes (include/uapi/linux/gtp.h).

use slipswitch_tests::harness::Netns;
use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{FromRawFd, OwnedFd};

// include/uapi/linux/netlink.h, include/uapi/linux/genetlink.h
const REQUEST_WITH_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// include/uapi/linux/gtp.h
const GTP_CMD_NEWPDP: u8 = 0;
const GTPA_LINK: u16 = 1;
const GTPA_VERSION: u16 = 2;
const GTPA_PEER_ADDRESS: u16 = 4;
const GTPA_MS_ADDRESS: u16 = 5;
const GTPA_I_TEI: u16 = 8;
const GTPA_O_TEI: u16 = 9;

/// Makes the device `k0` of a gateway send packets to `host` in a tunnel to `peer`, and accept those
/// from there, with `tei` in both directions.
pub fn add_context(kernel: &Netns, peer: Ipv4Addr, host: Ipv4Addr, tei: u32) {
    let index = kernel.sh("ip -o link show dev k0 | cut -d: -f1");
    let index: u32 = index.trim().parse().expect("a number");
    let answer = kernel.with(|| {
        // SAFETY: no memory is passed; a non-negative result is a descriptor without another owner.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC);
            assert!(fd >= 0, "netlink is there");
            File::from(OwnedFd::from_raw_fd(fd))
        };
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"gtp\0");
        let answer = ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &name);
        let family = find(answer.get(20..).unwrap_or_default(), CTRL_ATTR_FAMILY_ID);
        let family = family.expect("the device has loaded the module");
        let attributes = [
            attribute(GTPA_LINK, &index.to_ne_bytes()),
            attribute(GTPA_VERSION, &1u32.to_ne_bytes()),
            attribute(GTPA_PEER_ADDRESS, &peer.octets()),
            attribute(GTPA_MS_ADDRESS, &host.octets()),
            attribute(GTPA_I_TEI, &tei.to_ne_bytes()),
            attribute(GTPA_O_TEI, &tei.to_ne_bytes()),
        ];
        // The acknowledgement of the first request.
        let _ = read(&socket);
        let family = u16::from_ne_bytes([family[0], family[1]]);
        ask(&socket, family, GTP_CMD_NEWPDP, &attributes.concat())
    });
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    assert_eq!((kind, code), (NLMSG_ERROR, 0), "no context");
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// Returns the value of the first attribute of this kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        if u16::from_ne_bytes([c, d]) == wanted {
            return attributes.get(4..length);
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

/// Sends a request, and returns the first message of the answer.
fn ask(mut socket: &File, kind: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = 16 + 4 + attributes.len();
    let mut message = (length as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&REQUEST_WITH_ACK.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[command, 1, 0, 0]);
    message.extend_from_slice(attributes);
    socket.write_all(&message).expect("the kernel takes it");
    read(socket)
}

fn read(mut socket: &File) -> Vec<u8> {
    let mut buffer = vec![0; 8192];
    let length = socket.read(&mut buffer).expect("the kernel answers");
    buffer.truncate(length);
    buffer
}
