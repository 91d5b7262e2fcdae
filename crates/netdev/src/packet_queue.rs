// SPDX-License-Identifier: Apache-2.0
//! The receive queue of a port with packet sockets.

use crate::device::Queue;
use crate::headers::VLAN_TAG;
use crate::kernel::KernelDevice;
use crate::packet_reader::{FrameSink, PacketReader, insert_tag};
use crate::packet_socket::ReceiveSocket;
use crate::pool::PacketPool;
use crate::receive::attach_offload;
use crate::vnet::VNET_HEADER;
use packet::Packet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Receives the frames of an interface.
pub(crate) struct PacketQueue {
    reader: PacketReader,
    device: Arc<KernelDevice>,
}

impl PacketQueue {
    pub(crate) fn new(socket: Arc<ReceiveSocket>, device: Arc<KernelDevice>) -> PacketQueue {
        PacketQueue { reader: PacketReader::new(socket), device }
    }
}

/// Appends frames to a list of packets.
struct Received<'a> {
    out: &'a mut Vec<Packet>,
    device: &'a KernelDevice,
}

impl FrameSink for Received<'_> {
    fn take(
        &mut self,
        mut packet: Packet,
        header: &[u8; VNET_HEADER],
        tag: Option<[u8; VLAN_TAG]>,
        pool: &mut PacketPool,
    ) {
        if complete(&mut packet, header, tag) {
            self.out.push(packet);
        } else {
            self.count_malformed();
            pool.give(packet);
        }
    }

    fn count_malformed(&mut self) {
        self.device.count_malformed();
    }

    fn is_present(&self) -> bool {
        self.device.is_present()
    }
}

/// Gives the frame its offload metadata and its tag. Returns false when the frame contradicts its
/// header.
fn complete(p: &mut Packet, header: &[u8; VNET_HEADER], tag: Option<[u8; VLAN_TAG]>) -> bool {
    attach_offload(p, header) && tag.is_none_or(|tag| insert_tag(p, tag))
}

impl Queue for PacketQueue {
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.reader.socket().fd())
    }

    fn recv(
        &mut self,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        let before = out.len();
        self.reader.read(&mut Received { out, device: &self.device }, pool, max)?;
        self.device.policer.apply(out, before, pool);
        Ok(out.len() - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_delivery_is_a_frame_or_refused(
            frame in proptest::collection::vec(any::<u8>(), 14..200),
            header: [u8; VNET_HEADER],
            tag: Option<[u8; VLAN_TAG]>,
        ) {
            let mut p = Packet::from_slice(&frame);
            if complete(&mut p, &header, tag) {
                prop_assert_eq!(p.len(), frame.len() + tag.map_or(0, |tag| tag.len()));
            }
        }
    }
}
