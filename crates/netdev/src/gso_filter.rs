// SPDX-License-Identifier: Apache-2.0
//! The filter of a socket with a receive ring: it refuses packets that `struct virtio_net_hdr`
//! cannot describe.
//!
//! The kernel drops such a packet (SCTP in segments, for example) after it has reserved the next
//! frame of the ring, and it does not return that frame: the ring receives nothing any more
//! (`tpacket_rcv`, net/packet/af_packet.c, with `PACKET_VNET_HDR`). Any host that sends a packet
//! like that would cut the port off. So the filter, which runs before, refuses and counts it.
//!
//! The kernel decides by `gso_type` of `struct skb_shared_info`, and so does the filter. No field
//! of a program's context has it. The filter reads the kernel's memory, at places that the kernel's
//! own type information states.
//!
//! A socket has one filter. That of the BPF tiers runs after this one, by a tail call.

use crate::bpf::{
    Attributes, BPF_MAP_CREATE, BPF_MAP_DELETE_ELEM, BPF_MAP_UPDATE_ELEM, BPF_PROG_LOAD,
    instruction,
};
use crate::btf::Btf;
use crate::mapping::Mapping;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;
/// The values of a map can be mapped into memory.
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// Offset of `gso_size` in `struct __sk_buff`.
const GSO_SIZE: i16 = 176;
/// Helpers `bpf_map_lookup_elem`, `bpf_tail_call` and `bpf_probe_read_kernel`.
const LOOKUP: i32 = 1;
const TAIL_CALL: i32 = 12;
const READ_KERNEL: i32 = 113;
/// The first Linux whose `virtio_net_hdr_from_skb` describes UDP in segments.
const DESCRIBES_UDP: (u32, u32) = (6, 2);

/// The facts about the running kernel that the filter needs.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Offsets in `struct sk_buff`.
    head: i32,
    end: i32,
    /// Offset in `struct skb_shared_info`.
    gso_type: i32,
    /// The bits of `gso_type` that the header can describe.
    described: i32,
}

impl Layout {
    fn of_kernel() -> io::Result<Layout> {
        let btf = Btf::of_kernel()?;
        let missing =
            || io::Error::other("the kernel's type information lacks a type of packet buffers");
        let describes_udp = sys::kernel_version()? >= DESCRIBES_UDP;
        let udp = describes_udp.then(|| btf.enumerator("SKB_GSO_UDP_L4")).flatten().unwrap_or(0);
        let of = || {
            let tcp = btf.enumerator("SKB_GSO_TCPV4")? | btf.enumerator("SKB_GSO_TCPV6")?;
            Some(Layout {
                head: i32::try_from(btf.member("sk_buff", "head")?).ok()?,
                end: i32::try_from(btf.member("sk_buff", "end")?).ok()?,
                gso_type: i32::try_from(btf.member("skb_shared_info", "gso_type")?).ok()?,
                described: i32::try_from(tcp | udp).ok()?,
            })
        };
        of().ok_or_else(missing)
    }

    /// Returns the facts, which are read once.
    fn cached() -> io::Result<Layout> {
        static LAYOUT: OnceLock<Layout> = OnceLock::new();
        if let Some(layout) = LAYOUT.get() {
            return Ok(*layout);
        }
        let layout = Layout::of_kernel()?;
        Ok(*LAYOUT.get_or_init(|| layout))
    }
}

/// The filter of one socket, and the count of packets that it refused.
pub(crate) struct GsoFilter {
    program: OwnedFd,
    /// An array of one 64-bit counter, in memory that the filter shares with the process.
    refused: Mapping,
    /// An array of one program, the next filter. The kernel empties it when this is closed.
    next: OwnedFd,
}

impl GsoFilter {
    /// Loads a filter.
    ///
    /// # Errors
    ///
    /// The process may not load programs that read the kernel's memory, or the kernel lacks type
    /// information.
    pub(crate) fn load() -> io::Result<GsoFilter> {
        if cfg!(not(target_pointer_width = "64")) {
            // There, `end` of `struct sk_buff` is a pointer.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let layout = Layout::cached()?;
        let counter = array(BPF_MAP_TYPE_ARRAY, 8, BPF_F_MMAPABLE)?;
        let refused = Mapping::of_descriptor(counter.as_fd(), 8, 0)?;
        let next = array(BPF_MAP_TYPE_PROG_ARRAY, 4, 0)?;
        let code = code(&layout, counter.as_raw_fd(), next.as_raw_fd());
        let license = c"Dual BSD/GPL";
        let load = Attributes::new()
            .u32(0, BPF_PROG_TYPE_SOCKET_FILTER)
            .u32(4, code.len() as u32)
            .address(8, code.as_ptr())
            .address(16, license.as_ptr());
        // SAFETY: `code` and the NUL-terminated `license` live through the call; the command
        // returns a descriptor.
        let program = unsafe { load.call_for_fd(BPF_PROG_LOAD)? };
        Ok(GsoFilter { program, refused, next })
    }

    /// Returns the program, for `SO_ATTACH_BPF`.
    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Sets the filter that decides about the packets that this one accepts. `None`: they are
    /// received.
    pub(crate) fn set_next(&self, filter: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let key = 0u32;
        let array = Attributes::new().fd(0, self.next.as_fd()).address(8, &raw const key);
        let Some(filter) = filter else {
            // SAFETY: the key is as long as the map was created with, and lives through the call.
            return match unsafe { array.call(BPF_MAP_DELETE_ELEM) } {
                Err(e) if e.raw_os_error() != Some(libc::ENOENT) => Err(e),
                _ => Ok(()),
            };
        };
        let value = filter.as_raw_fd() as u32;
        // SAFETY: as above, and for the value too.
        unsafe { array.address(16, &raw const value).call(BPF_MAP_UPDATE_ELEM)? };
        Ok(())
    }

    /// Returns the number of packets that the filter refused.
    pub(crate) fn refused(&self) -> u64 {
        // SAFETY: the mapping has the eight bytes of the counter, is aligned to a page, and lives
        // as long as self. The filter adds atomically.
        let count = unsafe { AtomicU64::from_ptr(self.refused.start().as_ptr().cast()) };
        count.load(Ordering::Relaxed)
    }
}

/// Creates an array of one value.
fn array(kind: u32, value_size: u32, flags: u32) -> io::Result<OwnedFd> {
    let (key_size, length) = (4, 1);
    let map = Attributes::new()
        .u32(0, kind)
        .u32(4, key_size)
        .u32(8, value_size)
        .u32(12, length)
        .u32(16, flags);
    // SAFETY: no addresses inside; the command returns a descriptor.
    unsafe { map.call_for_fd(BPF_MAP_CREATE) }
}

/// Returns the program: accepts a packet that is not in segments, or whose `gso_type` has one of
/// the bits, if the program in map `next` does; else counts it in map `refused`.
fn code(layout: &Layout, refused: i32, next: i32) -> [u64; 47] {
    const REFUSE: i16 = 29;
    const ACCEPT: i16 = 40;
    let mov = |to, from| instruction(0xbf, to, from, 0, 0);
    let set = |to, value| instruction(0xb7, to, 0, 0, value);
    let add = |to, value| instruction(0x07, to, 0, 0, value);
    let call = |helper| instruction(0x85, 0, 0, 0, helper);
    // Jumps from instruction `at` to `target` if the register is, or is not, zero.
    let if_zero = |at: i16, of, target: i16| instruction(0x15, of, 0, target - at - 1, 0);
    let if_not_zero = |at: i16, of, target: i16| instruction(0x55, of, 0, target - at - 1, 0);
    let load32 = |to, from, at| instruction(0x61, to, from, at, 0);
    [
        mov(6, 1),
        load32(2, 1, GSO_SIZE),
        if_zero(2, 2, ACCEPT),
        // r10 - 8: sk_buff::head. The context is the address of the sk_buff.
        mov(1, 10),
        add(1, -8),
        set(2, 8),
        mov(3, 6),
        add(3, layout.head),
        call(READ_KERNEL),
        if_not_zero(9, 0, REFUSE),
        // r10 - 16: sk_buff::end
        mov(1, 10),
        add(1, -16),
        set(2, 4),
        mov(3, 6),
        add(3, layout.end),
        call(READ_KERNEL),
        if_not_zero(16, 0, REFUSE),
        // r10 - 16: skb_shared_info::gso_type, of the structure at head + end
        instruction(0x79, 3, 10, -8, 0),
        load32(1, 10, -16),
        instruction(0x0f, 3, 1, 0, 0),
        add(3, layout.gso_type),
        mov(1, 10),
        add(1, -16),
        set(2, 4),
        call(READ_KERNEL),
        if_not_zero(25, 0, REFUSE),
        load32(1, 10, -16),
        instruction(0x57, 1, 0, 0, layout.described),
        if_not_zero(28, 1, ACCEPT),
        // REFUSE: the counter of index 0 increases
        instruction(0x62, 10, 0, -4, 0),
        mov(2, 10),
        add(2, -4),
        instruction(0x18, 1, 1, 0, refused), // BPF_PSEUDO_MAP_FD, in two slots
        0,
        call(LOOKUP),
        if_zero(35, 0, 38),
        set(1, 1),
        instruction(0xdb, 0, 1, 0, 0), // atomic addition
        set(0, 0),
        instruction(0x95, 0, 0, 0, 0),
        // ACCEPT: the next filter decides; without one, all bytes
        mov(1, 6),
        instruction(0x18, 2, 1, 0, next),
        0,
        set(3, 0),
        call(TAIL_CALL),
        instruction(0xb4, 0, 0, 0, -1),
        instruction(0x95, 0, 0, 0, 0),
    ]
}
