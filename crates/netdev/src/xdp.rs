// SPDX-License-Identifier: Apache-2.0
//! Linux interfaces by `AF_XDP` sockets (Documentation/networking/af_xdp.rst).
//!
//! # Overview
//!
//! An XDP program of five instructions (`program`) redirects the packets of the interface's receive
//! queue *n* to socket *n*. Packets of queues without a socket continue to the host's stack. Each
//! socket has its own packet memory, one part for receiving and one for sending, and rings in
//! memory shared with the kernel (`ring`), so a batch costs at most one system call.
//!
//! `options:xdp-mode`:
//!
//! | value | program | packet memory |
//! |---|---|---|
//! | `native-with-zerocopy` | in the driver | the driver reads and writes it |
//! | `native` | in the driver | the kernel copies |
//! | `generic` | in the stack, any interface | the kernel copies |
//! | `best-effort` (default) | the first of these that works | |
//!
//! The program is attached by a BPF link: closing its descriptor detaches it, also after `kill -9`.
//!
//! # Known limitations
//!
//! * There is no offload metadata. The sender finishes checksums and segmentation in software. The
//!   receiver recognises an unfinished checksum from a *virtual* interface (veth) by its value
//!   ([`crate::finish::recognise_unfinished`]), so TCP between containers works without disabling
//!   offloads.
//! * XDP does not see a VLAN tag that the kernel carries outside the packet. Disable
//!   `tx-vlan-offload` on the other endpoint of a veth pair, or use `system`.
//! * The kernel drops frames above 3,840 bytes; [`crate::DeviceStats::rx_overrun`] counts them.
//! * Frames for which a busy interface has no room count as sent and wait in the transmit ring for
//!   the next transmission or a retry (`tx_retry`). Frames that wait when the device is closed are
//!   lost.
//! * When the interface comes up again after it was down, frames may still leave that count as
//!   sent, or as dropped because the interface was down.

mod program;
mod ring;
mod socket;
mod tx_retry;

use crate::device::{Opened, Queue, SendReport, Sender};
use crate::kernel::KernelDevice;
use crate::link::{ARPHRD_ETHER, By, Link, LinkClient};
use crate::open_error::OpenError;
use crate::packet_socket;
use crate::socket_close::PacketSocket;
use crate::spec::OpenSpec;
use packet::Packet;
use program::{Hook, Program};
use socket::{Binding, Transmitter, XdpQueue, XdpSocket};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The attachment of the program and the use of packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    NativeZeroCopy,
    Native,
    Generic,
}

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Mode::NativeZeroCopy => "native-with-zerocopy",
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }

    fn hook(self) -> Hook {
        match self {
            Mode::NativeZeroCopy | Mode::Native => Hook::Driver,
            Mode::Generic => Hook::Generic,
        }
    }
}

/// Opens `spec.name` by `AF_XDP`.
pub(crate) fn open(spec: &OpenSpec) -> Result<Opened, OpenError> {
    let bad = |option: &str, reason: String| OpenError::BadOption {
        name: spec.name.clone(),
        option: option.to_owned(),
        reason,
    };
    let modes: &[Mode] = match spec.options.get("xdp-mode").map_or("best-effort", String::as_str) {
        "best-effort" => &[Mode::NativeZeroCopy, Mode::Native, Mode::Generic],
        "native-with-zerocopy" => &[Mode::NativeZeroCopy],
        "native" => &[Mode::Native],
        "generic" => &[Mode::Generic],
        other => {
            return Err(bad(
                "xdp-mode",
                format!(
                    "\"{other}\" is not one of best-effort, native-with-zerocopy, native, generic"
                ),
            ));
        }
    };
    let need_wakeup = match spec.options.get("use-need-wakeup").map(String::as_str) {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => {
            return Err(bad("use-need-wakeup", format!("\"{other}\" is neither true nor false")));
        }
    };
    let err = |step| OpenError::system(&spec.name, step);
    let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
    let link = client.link(By::Name(&spec.name)).map_err(err("looking it up"))?;
    if link.hardware != ARPHRD_ETHER {
        return Err(OpenError::System {
            name: spec.name.clone(),
            step: "using an interface without Ethernet headers",
            source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        });
    }
    let queues = spec.n_rxq.max(1);
    let present = usize::try_from(link.rx_queues).unwrap_or(usize::MAX).max(1);
    if queues > present {
        return Err(bad(
            "n_rxq",
            format!("{queues} queues asked for, but the interface has {present}"),
        ));
    }
    // Before the sockets, because it shows later whether the interface is still the same one.
    // Without it, an interface that comes back with the same index is taken for one that never
    // left.
    let presence = packet_socket::bound_socket(link.index).ok();
    let mut last = None;
    for mode in modes {
        match open_mode(*mode, link.index, queues, need_wakeup) {
            Ok((program, sockets)) => {
                return Ok(assemble(spec, client, &link, *mode, program, sockets, presence));
            }
            Err(e) => {
                tracing::debug!(
                    target: "netdev_afxdp",
                    "{}: xdp-mode {} does not work: {}", spec.name, mode.as_str(), e.1
                );
                last = Some(e);
            }
        }
    }
    let (step, source) = last.unwrap_or(("choosing a mode", io::Error::other("no mode to try")));
    Err(OpenError::System { name: spec.name.clone(), step, source })
}

type StepError = (&'static str, io::Error);

fn open_mode(
    mode: Mode,
    index: u32,
    queues: usize,
    need_wakeup: bool,
) -> Result<(Program, Vec<XdpSocket>), StepError> {
    let at = |step: &'static str| move |e: io::Error| (step, e);
    let size = u32::try_from(queues)
        .map_err(|_| ("counting queues", io::Error::from_raw_os_error(libc::EINVAL)))?;
    let program = Program::load(size).map_err(at("loading the XDP program"))?;
    let program = program.attach(index, mode.hook()).map_err(at("attaching the XDP program"))?;
    let binding = Binding { zero_copy: mode == Mode::NativeZeroCopy, need_wakeup };
    let mut sockets = Vec::with_capacity(queues);
    for queue in 0..size {
        let socket =
            XdpSocket::open(index, queue, binding).map_err(at("opening an AF_XDP socket"))?;
        program.set_socket(queue, socket.fd()).map_err(at("entering the socket in its map"))?;
        sockets.push(socket);
    }
    Ok((program, sockets))
}

fn assemble(
    spec: &OpenSpec,
    client: LinkClient,
    link: &Link,
    mode: Mode,
    program: Program,
    sockets: Vec<XdpSocket>,
    presence: Option<PacketSocket>,
) -> Opened {
    let program = Arc::new(program);
    let shared: Vec<_> = sockets.iter().map(XdpSocket::shared).collect();
    let held = program.clone();
    let overrun = Box::new(move || {
        // This keeps the program attached while the device is open.
        let _attached = &held;
        shared.iter().map(|s| s.lost()).sum()
    });
    let extra = vec![
        ("xdp-mode".to_owned(), mode.as_str().to_owned()),
        ("xdp-zerocopy".to_owned(), (mode == Mode::NativeZeroCopy).to_string()),
    ];
    let device = Arc::new(
        KernelDevice::new(&spec.name, spec.kind, client, link.index)
            .with_overrun(overrun)
            .with_presence(presence.map(Arc::new))
            .with_extra(extra),
    );
    // Hardware finishes checksums before a frame arrives.
    let is_virtual = link.kind.is_some();
    let mut queues: Vec<Box<dyn Queue>> = Vec::with_capacity(sockets.len());
    let mut transmitters = Vec::with_capacity(sockets.len());
    for socket in sockets {
        let (receiver, transmitter) = socket.split();
        queues.push(Box::new(XdpQueue::new(receiver, device.clone(), program.clone(), is_virtual)));
        transmitters.push(Arc::new(transmitter));
    }
    let sender = XdpSender { transmitters, _program: program };
    let sender = device.egress.clone().limit(Arc::new(sender));
    Opened { queues, sender, device }
}

struct XdpSender {
    /// At least one.
    transmitters: Vec<Arc<Transmitter>>,
    _program: Arc<Program>,
}

impl Sender for XdpSender {
    fn send(&self, packets: &[Packet]) -> SendReport {
        let mut report = SendReport::default();
        // Each transmitter has its own queue. Packets of a flow that use two of them could overtake
        // each other.
        let own = THREAD.with(|number| *number) % self.transmitters.len().max(1);
        if let Some(transmitter) = self.transmitters.get(own)
            && !packets.is_empty()
        {
            transmitter.send(packets, &mut report);
        }
        report
    }
}

/// Number of threads that have sent so far.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread, in the order of first transmissions.
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}
