// SPDX-License-Identifier: Apache-2.0
//! The XDP program that redirects to the sockets (include/uapi/linux/bpf.h).

use crate::bpf::{
    Attributes, BPF_LINK_CREATE, BPF_LINK_DETACH, BPF_MAP_CREATE, BPF_MAP_UPDATE_ELEM,
    BPF_PROG_LOAD, instruction,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// `enum bpf_attach_type`: XDP.
const BPF_XDP: u32 = 37;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_PASS: i32 = 2;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;
/// Helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// The hook at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// In the driver, before the kernel allocates a packet for the frame.
    Driver,
    /// In the stack.
    Generic,
}

/// The program with its map of sockets, one for each receive queue; attached until dropped.
pub(super) struct Program {
    sockets: OwnedFd,
    program: OwnedFd,
    /// Closing it detaches the program.
    link: Option<OwnedFd>,
}

impl Program {
    /// Loads the program with a map for `queues` sockets.
    pub(super) fn load(queues: u32) -> io::Result<Program> {
        let map = Attributes::new()
            .u32(0, BPF_MAP_TYPE_XSKMAP)
            .u32(4, 4) // key: queue number
            .u32(8, 4) // value: descriptor
            .u32(12, queues);
        // SAFETY: no addresses inside; the command returns a descriptor.
        let sockets = unsafe { map.call_for_fd(BPF_MAP_CREATE)? };
        let code = [
            // r2 = ctx->rx_queue_index
            instruction(0x61, 2, 1, RX_QUEUE_INDEX, 0),
            // r1 = the map (BPF_PSEUDO_MAP_FD), in two slots
            instruction(0x18, 1, 1, 0, sockets.as_raw_fd()),
            0,
            // r3 = the result if the map has no socket for the queue
            instruction(0xb7, 3, 0, 0, XDP_PASS),
            // return bpf_redirect_map(r1, r2, r3)
            instruction(0x85, 0, 0, 0, REDIRECT_MAP),
            instruction(0x95, 0, 0, 0, 0),
        ];
        let license = c"Dual BSD/GPL";
        let load = Attributes::new()
            .u32(0, BPF_PROG_TYPE_XDP)
            .u32(4, code.len() as u32)
            .address(8, code.as_ptr())
            .address(16, license.as_ptr())
            .u32(68, BPF_XDP);
        // SAFETY: `code` and the NUL-terminated `license` live through the call; the command
        // returns a descriptor.
        let program = unsafe { load.call_for_fd(BPF_PROG_LOAD)? };
        Ok(Program { sockets, program, link: None })
    }

    /// Attaches the program to interface `index`.
    pub(super) fn attach(mut self, index: u32, hook: Hook) -> io::Result<Program> {
        let flags = match hook {
            Hook::Driver => XDP_FLAGS_DRV_MODE,
            Hook::Generic => XDP_FLAGS_SKB_MODE,
        };
        let create = Attributes::new()
            .fd(0, self.program.as_fd())
            .u32(4, index)
            .u32(8, BPF_XDP)
            .u32(12, flags);
        // SAFETY: no addresses inside; the command returns a descriptor.
        self.link = Some(unsafe { create.call_for_fd(BPF_LINK_CREATE)? });
        Ok(self)
    }

    /// Redirects frames of receive queue `queue` to `socket`.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let update = Attributes::new()
            .fd(0, self.sockets.as_fd())
            .address(8, &raw const queue)
            .address(16, &raw const value);
        // SAFETY: key and value are 4 bytes each, as the map was created, and live through the
        // call.
        unsafe { update.call(BPF_MAP_UPDATE_ELEM)? };
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Closing the descriptor detaches too, but later if a child process that is being started
        // still has a copy. EINVAL: the interface is gone.
        if let Some(link) = &self.link {
            let detach = Attributes::new().fd(0, link.as_fd());
            // SAFETY: no addresses inside.
            let _ = unsafe { detach.call(BPF_LINK_DETACH) };
        }
    }
}
