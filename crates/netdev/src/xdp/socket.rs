// SPDX-License-Identifier: Apache-2.0
//! A queue's `AF_XDP` sockets with their packet memory: receiving and sending.
//!
//! One socket receives, another one sends. Both use the same packet memory and belong to the same
//! queue (`XDP_SHARED_UMEM`). The kernel signals room in a socket's send buffer for every packet that
//! it frees. If the socket is in an `epoll` set, each signal takes two locks. So the socket that sends
//! is in none.
//!
//! The packet memory is an array of frames. Each frame belongs to exactly one of: the kernel (its
//! address is in the fill or transmit ring, or the kernel took it from there), the receiver (taken
//! from the receive ring, not yet put back into the fill ring) or the transmitter's list of free
//! frames. The first RX_FRAMES frames serve reception only, the others transmission only, so
//! receiver and transmitter never access the same memory.

use super::program::Program;
use super::ring::Ring;
use super::tx_retry::{Outcome, Stalled, TxRetry};
use crate::device::{Queue, SendReport};
use crate::kernel::KernelDevice;
use crate::mapping::Mapping;
use crate::pool::PacketPool;
use crate::receive::{ReceiveError, gone};
use crate::{finish, headers, sys};
use libc::xdp_desc;
use packet::Packet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a frame of packet memory.
const FRAME: usize = 4096;
const RX_FRAMES: u32 = 2048;
const TX_FRAMES: u32 = 1024;
/// Number of system calls without progress after which the transmitter leaves the frames for a
/// retry.
const IDLE_KICKS: u32 = 8;
/// Transmitters that have frames in their rings and wait for a retry.
static TX_RETRY: TxRetry = TxRetry::new();
/// Maximum wait for a queue that another socket uses.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

// include/uapi/linux/if_xdp.h: places of the rings.
const RX_PAGE: i64 = 0;
const TX_PAGE: i64 = 0x8000_0000;
const FILL_PAGE: i64 = 0x1_0000_0000;
const COMPLETION_PAGE: i64 = 0x1_8000_0000;

/// Errors of a socket whose interface is down or gone.
const UNBOUND: [i32; 3] = [libc::ENETDOWN, libc::ENXIO, libc::ENODEV];

/// The options of a socket's binding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub zero_copy: bool,
    pub need_wakeup: bool,
}

/// The parts of a queue's sockets that receiver and transmitter share.
pub(super) struct Shared {
    receive: OwnedFd,
    send: OwnedFd,
    memory: Mapping,
    binding: Binding,
    /// Number of the kernel's descriptors that were outside of the packet memory.
    wrong: AtomicU64,
}

impl Shared {
    /// Returns the number of frames that the kernel dropped because they did not fit or no frame
    /// was free.
    pub(super) fn lost(&self) -> u64 {
        let s = sys::option::<libc::xdp_statistics>(
            self.receive.as_fd(),
            libc::SOL_XDP,
            libc::XDP_STATISTICS,
        );
        s.map_or(0, |s| s.rx_dropped + s.rx_ring_full) + self.wrong.load(Ordering::Relaxed)
    }

    /// Returns the location of `length` bytes at `address` of the packet memory; `None` when they
    /// are not all inside of frames `from..to`.
    fn locate(&self, address: u64, length: usize, from: u32, to: u32) -> Option<ptr::NonNull<u8>> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(length)?;
        let inside = start >= from as usize * FRAME
            && end <= to as usize * FRAME
            && end <= self.memory.len();
        // SAFETY: start <= end <= the mapping's length.
        inside.then(|| unsafe { self.memory.start().add(start) })
    }
}

/// The bound sockets of a queue, with all receive frames in the fill ring.
pub(super) struct XdpSocket {
    shared: Arc<Shared>,
    rx: Ring<xdp_desc>,
    fill: Ring<u64>,
    tx: Ring<xdp_desc>,
    completion: Ring<u64>,
}

impl XdpSocket {
    /// Opens sockets for `queue` of interface `index`.
    pub(super) fn open(index: u32, queue: u32, binding: Binding) -> io::Result<XdpSocket> {
        let frames = (RX_FRAMES + TX_FRAMES) as usize;
        let memory = Mapping::anonymous(frames * FRAME)?;
        // The socket that sends registers the memory: zero copy of Linux 5.17 crashes where that
        // socket receives only.
        let send = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let fd = send.as_fd();
        // SAFETY: integers only; zero is valid.
        let mut area: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        area.addr = memory.start().as_ptr().expose_provenance() as u64;
        area.len = memory.len() as u64;
        area.chunk_size = FRAME as u32;
        // From here on the kernel writes to `memory`, which is unmapped only after the sockets
        // are closed, or before without harm: the kernel holds its pages by itself.
        sys::set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &area)?;
        let size = |fd, name, n: u32| sys::set_option(fd, libc::SOL_XDP, name, &(n as i32));
        size(fd, libc::XDP_UMEM_FILL_RING, RX_FRAMES)?;
        size(fd, libc::XDP_UMEM_COMPLETION_RING, TX_FRAMES)?;
        size(fd, libc::XDP_TX_RING, TX_FRAMES)?;
        let places: libc::xdp_mmap_offsets =
            sys::option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let tx = Ring::map(fd, &places.tx, TX_PAGE, TX_FRAMES)?;
        let mut fill = Ring::map(fd, &places.fr, FILL_PAGE, RX_FRAMES)?;
        let completion = Ring::map(fd, &places.cr, COMPLETION_PAGE, TX_FRAMES)?;
        for i in 0..RX_FRAMES {
            fill.push(u64::from(i) * FRAME as u64);
        }
        fill.publish();
        // SAFETY: integers only; zero is valid.
        let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_ifindex = index;
        address.sxdp_queue_id = queue;
        address.sxdp_flags = if binding.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        if binding.need_wakeup {
            address.sxdp_flags |= libc::XDP_USE_NEED_WAKEUP;
        }
        bind(fd, &address)?;
        let receive = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        size(receive.as_fd(), libc::XDP_RX_RING, RX_FRAMES)?;
        let rx = Ring::map(receive.as_fd(), &places.rx, RX_PAGE, RX_FRAMES)?;
        // The other options are those of the first socket.
        address.sxdp_flags = libc::XDP_SHARED_UMEM;
        address.sxdp_shared_umem_fd = send.as_raw_fd() as u32; // a descriptor is not negative
        sys::bind(receive.as_fd(), &address)?;
        let shared = Arc::new(Shared { receive, send, memory, binding, wrong: AtomicU64::new(0) });
        Ok(XdpSocket { shared, rx, fill, tx, completion })
    }

    /// The socket that receives.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.receive.as_fd()
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// The receiving and the sending half.
    pub(super) fn split(self) -> (Receiver, Transmitter) {
        let free = (RX_FRAMES..RX_FRAMES + TX_FRAMES).map(|i| u64::from(i) * FRAME as u64);
        let transmitter = Transmitter {
            shared: self.shared.clone(),
            side: Mutex::new(TxSide {
                tx: self.tx,
                completion: self.completion,
                free: free.collect(),
                is_stalled: false,
            }),
        };
        (Receiver { shared: self.shared, rx: self.rx, fill: self.fill }, transmitter)
    }
}

/// Binds a socket. The kernel releases the queue of a closed socket with a delay, so a busy queue
/// is tried again until [`BUSY_TIMEOUT`].
fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let end = Instant::now() + BUSY_TIMEOUT;
    loop {
        match sys::bind(fd, address) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// The receiving half of a socket.
pub(super) struct Receiver {
    shared: Arc<Shared>,
    rx: Ring<xdp_desc>,
    fill: Ring<u64>,
}

/// A receive queue of an `AF_XDP` device.
pub(super) struct XdpQueue {
    half: Receiver,
    device: Arc<KernelDevice>,
    /// Keeps the program attached.
    _program: Arc<Program>,
    recognise: bool,
    is_gone: bool,
}

impl XdpQueue {
    pub(super) fn new(
        half: Receiver,
        device: Arc<KernelDevice>,
        program: Arc<Program>,
        recognise: bool,
    ) -> XdpQueue {
        XdpQueue { half, device, _program: program, recognise, is_gone: false }
    }

    /// Copies a frame out of the packet memory and returns the frame's memory to the kernel.
    fn take(&mut self, desc: xdp_desc, pool: &mut PacketPool) -> Option<Packet> {
        let Receiver { shared, fill, .. } = &mut self.half;
        let length = desc.len as usize;
        let Some(from) = shared.locate(desc.addr, length, 0, RX_FRAMES) else {
            shared.wrong.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let mut p = pool.take();
        // SAFETY: `locate` checked that the bytes are inside of the mapping; the frame belongs to
        // the receiver between the receive ring and the fill ring, so the kernel does not write to
        // it.
        p.extend(unsafe { std::slice::from_raw_parts(from.as_ptr(), length) });
        // The fill ring has an entry for every receive frame.
        fill.push(desc.addr & !(FRAME as u64 - 1));
        if length < headers::ETH_HEADER {
            self.device.count_malformed();
            pool.give(p);
            return None;
        }
        if self.recognise {
            finish::recognise_unfinished(&mut p);
        }
        Some(p)
    }

    /// Returns `ENODEV` when the kernel unbound the socket because the interface is gone.
    fn check_bound(&mut self) -> io::Result<()> {
        let error: i32 =
            sys::option(self.half.shared.receive.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR)?;
        let error = io::Error::from_raw_os_error(error);
        let is_present = || self.device.is_present();
        if matches!(ReceiveError::new(error, &UNBOUND, is_present), ReceiveError::Gone) {
            self.is_gone = true;
            return Err(gone());
        }
        Ok(())
    }
}

impl Queue for XdpQueue {
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.half.shared.receive.as_fd())
    }

    fn recv(
        &mut self,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        if self.is_gone {
            return Err(gone());
        }
        let before = out.len();
        let mut taken = 0;
        while taken < max {
            let Some(desc) = self.half.rx.pop() else { break };
            taken += 1;
            if let Some(p) = self.take(desc, pool) {
                out.push(p);
            }
        }
        if taken == 0 {
            self.check_bound()?;
        } else {
            self.half.rx.release();
            self.half.fill.publish();
        }
        if self.half.fill.needs_wakeup() {
            // SAFETY: no memory is passed. The call only wakes the kernel; its result is ignored.
            unsafe {
                libc::recvfrom(
                    self.half.shared.receive.as_raw_fd(),
                    ptr::null_mut(),
                    0,
                    libc::MSG_DONTWAIT,
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            };
        }
        self.device.policer.apply(out, before, pool);
        Ok(out.len() - before)
    }
}

/// The sending half of a socket. Threads take turns by its lock.
pub(super) struct Transmitter {
    shared: Arc<Shared>,
    side: Mutex<TxSide>,
}

struct TxSide {
    tx: Ring<xdp_desc>,
    completion: Ring<u64>,
    /// Addresses of free frames.
    free: Vec<u64>,
    /// It waits in [`TX_RETRY`].
    is_stalled: bool,
}

impl Transmitter {
    fn side(&self) -> MutexGuard<'_, TxSide> {
        self.side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `packets` when other threads have finished.
    pub(super) fn send(self: &Arc<Self>, packets: &[Packet], report: &mut SendReport) {
        let mut side = self.side();
        let (sent, is_left) = self.send_locked(&mut side, packets);
        *report += sent;
        if is_left && !side.is_stalled {
            let stalled = Arc::downgrade(self);
            side.is_stalled = TX_RETRY.add(stalled);
        }
    }

    /// Sends `packets`. Returns the report and whether frames are left that need a retry.
    fn send_locked(&self, side: &mut TxSide, packets: &[Packet]) -> (SendReport, bool) {
        let mut report = SendReport::default();
        for p in packets {
            if p.len() < headers::ETH_HEADER {
                report.dropped_malformed += 1;
            } else if finish::is_finished(p) {
                self.enqueue(side, p.data(), &mut report);
            } else {
                match finish::finish(p) {
                    Err(_) => report.dropped_malformed += 1,
                    Ok(frames) => {
                        let mut one = SendReport::default();
                        for f in &frames {
                            self.enqueue(side, f.data(), &mut one);
                        }
                        report += SendReport::of_one(&one);
                    }
                }
            }
        }
        side.tx.publish();
        let transmitted = self.transmit(side);
        if let Err(e) = &transmitted
            && matches!(e.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV))
        {
            report.dropped_down += report.sent;
            report.sent = 0;
        }
        (report, transmitted.unwrap_or(false))
    }

    /// Copies `frame` into a free frame and puts it into the transmit ring, unpublished.
    fn enqueue(&self, side: &mut TxSide, frame: &[u8], report: &mut SendReport) {
        if frame.len() > FRAME {
            report.dropped_too_long += 1;
            return;
        }
        if side.free.is_empty() {
            side.tx.publish();
            // If it fails no frame becomes free, which is counted below.
            let _ = self.transmit(side);
        }
        let Some(address) = side.free.pop() else {
            report.dropped_full += 1;
            return;
        };
        let last = RX_FRAMES + TX_FRAMES;
        let Some(to) = self.shared.locate(address, frame.len(), RX_FRAMES, last) else {
            // Cannot happen: `free` holds addresses of whole transmit frames.
            report.dropped_error += 1;
            return;
        };
        // SAFETY: `locate` checked that the bytes are inside of the mapping; the frame was in
        // `free`, so neither another thread nor the kernel accesses it; `frame` lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(frame.as_ptr(), to.as_ptr(), frame.len()) };
        let desc = xdp_desc { addr: address, len: frame.len() as u32, options: 0 };
        if side.tx.push(desc) {
            report.sent += 1;
        } else {
            side.free.push(address);
            report.dropped_full += 1;
        }
    }

    /// Makes the kernel send the frames in the transmit ring, and takes finished frames back. In
    /// copy mode one call sends a few frames only, so it is repeated while it progresses. Returns
    /// true when frames are left for which the kernel is too busy and that it does not send by
    /// itself.
    fn transmit(&self, side: &mut TxSide) -> io::Result<bool> {
        let zero_copy = self.shared.binding.zero_copy;
        let mut idle = 0;
        let mut pending = side.tx.pending();
        while pending > 0 && (!zero_copy || side.tx.needs_wakeup()) {
            let kicked = self.kick();
            self.reclaim(side);
            match kicked {
                Ok(()) if zero_copy => return Ok(false), // the driver sends the rest
                Err(e) if !is_busy(&e) => return Err(e),
                Ok(()) | Err(_) => {}
            }
            let now = side.tx.pending();
            idle = if now < pending { 0 } else { idle + 1 };
            pending = now;
            if idle >= IDLE_KICKS {
                return Ok(true);
            }
        }
        self.reclaim(side);
        Ok(false)
    }

    fn kick(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        sys::check_len(unsafe {
            libc::sendto(
                self.shared.send.as_raw_fd(),
                ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null(),
                0,
            )
        })?;
        Ok(())
    }

    /// Takes back frames that the kernel has sent.
    fn reclaim(&self, side: &mut TxSide) {
        let mut any = false;
        while let Some(address) = side.completion.pop() {
            any = true;
            if self.shared.locate(address, FRAME, RX_FRAMES, RX_FRAMES + TX_FRAMES).is_some() {
                side.free.push(address);
            } else {
                self.shared.wrong.fetch_add(1, Ordering::Relaxed);
            }
        }
        if any {
            side.completion.release();
        }
    }
}

impl Stalled for Transmitter {
    fn retry(&self) -> Outcome {
        let mut side = self.side();
        let before = side.tx.pending();
        // If it fails the interface is down or gone, and retries do not help.
        let is_left = self.transmit(&mut side).unwrap_or(false);
        side.is_stalled = is_left;
        match is_left {
            false => Outcome::Done,
            true if side.tx.pending() < before => Outcome::Progress,
            true => Outcome::Stuck,
        }
    }
}

/// Returns true for errors after which the kernel may accept the frame a moment later.
fn is_busy(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    let busy = [libc::EAGAIN, libc::EBUSY, libc::ENOBUFS, libc::ENOMEM, libc::EINTR];
    number.is_some_and(|number| busy.contains(&number))
}
