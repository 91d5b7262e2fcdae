// SPDX-License-Identifier: Apache-2.0
//! Threads that answer upcalls.

use crate::family::Family;
use crate::kernel_datapath::Shared;
use crate::packet_message::{self, Cause, Received};
use datapath::{Actions, DropReason, Upcall, UpcallKind, Upcaller};
use netlink::Socket;
use netlink::message::messages;
use netlink::socket::Events;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Most upcalls that are answered together.
const BATCH: usize = 32;
/// Bytes of upcalls that wait for a thread, as in Open vSwitch.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The threads.
pub(crate) struct Handlers {
    stop: OwnedFd,
    threads: Vec<JoinHandle<()>>,
    /// The sockets from which they receive.
    sockets: Vec<OwnedFd>,
    batches: Arc<Batches>,
}

/// The numbers of batches that all threads have begun to receive, and that they have answered.
#[derive(Default)]
struct Batches {
    begun: AtomicU64,
    done: AtomicU64,
}

/// Opens a socket for upcalls, and returns it with its number.
pub(crate) fn open_socket() -> io::Result<(Socket, u32)> {
    let socket = crate::family::open_socket()?;
    // Without privileges the buffer is as large as the system allows.
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
    }
    let address = rustix::net::getsockname(&socket)?;
    let address = rustix::net::netlink::SocketAddrNetlink::try_from(address)?;
    Ok((socket, address.pid()))
}

impl Handlers {
    /// Starts a thread for each socket.
    pub(crate) fn start(shared: &Arc<Shared>, sockets: Vec<Socket>) -> io::Result<Handlers> {
        let mut handlers = Handlers {
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
            threads: Vec::new(),
            sockets: Vec::new(),
            batches: Arc::default(),
        };
        for (n, upcalls) in sockets.into_iter().enumerate() {
            let stop = handlers.stop.try_clone()?;
            handlers.sockets.push(upcalls.as_fd().try_clone_to_owned()?);
            let batches = handlers.batches.clone();
            let requests = crate::family::open_socket()?;
            let shared = Arc::downgrade(shared);
            let handler = Handler { shared, upcalls, requests, stop, batches, upcaller: None };
            let thread =
                std::thread::Builder::new().name(format!("handler{n}")).spawn(|| handler.run())?;
            handlers.threads.push(thread);
        }
        Ok(handlers)
    }

    /// Returns true when no upcall waits for a thread, and none is being answered.
    pub(crate) fn are_idle(&self) -> bool {
        let begun = || self.batches.begun.load(Ordering::SeqCst);
        let before = begun();
        // While no batch is being answered, none of them can cause an upcall.
        if self.batches.done.load(Ordering::SeqCst) != before {
            return false;
        }
        let mut sockets: Vec<_> = self
            .sockets
            .iter()
            .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN))
            .collect();
        let none = rustix::time::Timespec::default();
        poll(&mut sockets, Some(&none)) == Ok(0) && begun() == before
    }

    /// Returns true after [`Handlers::stop`].
    pub(crate) fn are_stopped(&self) -> bool {
        self.threads.is_empty()
    }

    /// Stops the threads and waits for them, unless the caller is one.
    pub(crate) fn stop(&mut self) {
        // A counter that is not at its limit takes the number.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let own = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!(target: "dpif_netlink", "a thread of upcalls has panicked");
            }
        }
    }
}

struct Handler {
    shared: Weak<Shared>,
    upcalls: Socket,
    requests: Socket,
    stop: OwnedFd,
    batches: Arc<Batches>,
    upcaller: Option<Box<dyn Upcaller>>,
}

impl Handler {
    fn run(mut self) {
        loop {
            let mut wanted = [
                PollFd::from_borrowed_fd(self.upcalls.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            ];
            match poll(&mut wanted, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return fail(&error.into()),
            }
            if wanted.iter().skip(1).any(|stop| stop.revents().contains(PollFlags::IN)) {
                return;
            }
            let Some(shared) = self.shared.upgrade() else { return };
            let mut batch = Vec::new();
            // Before the socket is empty.
            self.batches.begun.fetch_add(1, Ordering::SeqCst);
            let received = receive(&mut self.upcalls, &shared, &mut batch);
            if received.is_ok() {
                self.answer(&shared, &batch);
            }
            self.batches.done.fetch_add(1, Ordering::SeqCst);
            if let Err(error) = received {
                return fail(&error);
            }
        }
    }

    fn answer(&mut self, shared: &Shared, batch: &[Received]) {
        let Some(factory) = shared.factory() else {
            return shared.count_drops(DropReason::UpcallLimit, batch.len());
        };
        if batch.is_empty() {
            return;
        }
        let upcaller = self.upcaller.get_or_insert_with(|| factory.upcaller());
        let upcalls: Vec<Upcall<'_>> = batch.iter().map(upcall).collect();
        let mut answers: Vec<Actions> = Vec::with_capacity(batch.len());
        upcaller.upcalls(&upcalls, &mut answers);
        for (received, actions) in batch.iter().zip(answers) {
            shared.run(
                &mut self.requests,
                &received.packet,
                &received.key,
                &actions,
                received.remainder,
            );
        }
    }
}

fn upcall(received: &Received) -> Upcall<'_> {
    Upcall {
        kind: match &received.cause {
            Cause::Miss => UpcallKind::Miss,
            Cause::Action(userdata) => UpcallKind::Action(userdata),
        },
        packet: &received.packet,
        key: &received.key,
        in_port: datapath::PortNo(received.key.in_port.get()),
        pressed: false,
    }
}

/// Receives the upcalls that wait, at most as many as are answered together.
fn receive(socket: &mut Socket, shared: &Shared, batch: &mut Vec<Received>) -> io::Result<()> {
    let kind = shared.families.number(Family::Packet);
    while batch.len() < BATCH {
        let datagram = match socket.events()? {
            Events::None => return Ok(()),
            // The kernel counts the packets that it could not queue.
            Events::Overrun => continue,
            Events::Datagram(datagram) => datagram,
        };
        for message in messages(datagram).filter(|message| message.kind == kind) {
            match packet_message::decode(message.payload, shared.numbering) {
                Some(received) => batch.push(received),
                None => shared.count_drops(DropReason::Malformed, 1),
            }
        }
    }
    Ok(())
}

fn fail(error: &io::Error) {
    tracing::error!(
        target: "dpif_netlink",
        "a socket of upcalls failed ({error}): its packets are lost; restart the switch",
    );
}
