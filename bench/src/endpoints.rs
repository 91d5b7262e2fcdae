// SPDX-License-Identifier: Apache-2.0
//! A client and a server at the two ports of a switch, each on a thread in its own namespace,
//! pinned to a CPU.

pub mod held;
pub mod tcp;
pub mod udp;

use crate::attempt::Worker;
use crate::netns::run;
use crate::pin::{Cpus, pin};
use anyhow::{Context, Result, anyhow, ensure};
use slipswitch_tests::harness::Netns;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// For the first packet: a switch may still be learning.
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(10);
/// For a first connection on links that may not carry TCP at all.
const TCP_TIMEOUT: Duration = Duration::from_secs(2);
/// Where servers listen.
const PORT: u16 = 5201;
/// How long an endpoint waits for the other.
const SILENCE: Duration = Duration::from_secs(5);

/// Where client and server run.
#[derive(Clone, Debug)]
pub struct Endpoints {
    pub client: Netns,
    pub server: Netns,
    /// The server's address.
    pub address: IpAddr,
    /// The client's thread runs on the CPU for traffic, the server's on the other.
    pub cpus: Cpus,
}

/// A server's listening socket.
pub struct Listener<'a> {
    listener: TcpListener,
    over: &'a AtomicBool,
}

impl Listener<'_> {
    /// The next connection; `None` when the client has finished.
    pub fn next(&self) -> Result<Option<TcpStream>> {
        let (stream, _) = self.listener.accept().context("accepting a connection")?;
        if self.over.load(Ordering::Acquire) {
            return Ok(None);
        }
        prepare(stream, SILENCE).map(Some)
    }
}

impl Endpoints {
    /// Sends a byte to the server and back.
    pub fn reach_by_tcp(&self, timeout: Duration) -> Result<()> {
        let serve = |listener: &Listener<'_>| tcp::mirror(listener, 1);
        let ask = move |address| {
            let mut stream = connect(&address, timeout)?;
            stream.write_all(&[1])?;
            Ok(stream.read_exact(&mut [0])?)
        };
        self.converse(serve, ask).map(drop)
    }

    /// Lets TCP pass between the hosts: switches their transmit checksum offload off if the system does
    /// not finish checksums. Returns the note that says so, for the page.
    pub fn let_tcp_pass(&self) -> Result<Option<String>> {
        if self.reach_by_tcp(TCP_TIMEOUT).is_ok() {
            return Ok(None);
        }
        for netns in [&self.client, &self.server] {
            run(netns, "ethtool -K eth0 tx off")?;
        }
        self.reach_by_tcp(FIRST_TIMEOUT).context("TCP does not pass")?;
        let note = "TCP does not pass while the hosts leave checksums to their devices, so this \
                    offload was switched off by hand (ethtool -K eth0 tx off), and large segments \
                    with it";
        Ok(Some(note.into()))
    }

    /// Runs a server and a client by TCP; what each returns. The server has to end when the
    /// client has. The client's error takes precedence.
    pub fn converse<S: Send + 'static, C: Send + 'static>(
        &self,
        serve: impl FnOnce(&Listener<'_>) -> Result<S> + Send + 'static,
        ask: impl FnOnce(SocketAddr) -> Result<C> + Send + 'static,
    ) -> Result<(S, C)> {
        let cpus = self.cpus;
        let address = SocketAddr::new(self.address, PORT);
        let (ready, listens) = mpsc::channel();
        let server = Worker::start(Some(&self.server), cpus.other, move |over| {
            let listener = TcpListener::bind(address).context("listening")?;
            ready.send(()).ok();
            serve(&Listener { listener, over })
        });
        let listening = listens.recv_timeout(SILENCE).is_ok();
        let client = self.client.spawn(move || {
            pin(cpus.traffic)?;
            ensure!(listening, "the server does not listen");
            ask(address)
        });
        let asked = client.join().map_err(|_| anyhow!("the client panicked"));
        server.announce();
        // Ends a server that still waits for a connection.
        self.server.with(move || TcpStream::connect_timeout(&address, SILENCE).map(drop)).ok();
        let served = server.stop();
        let asked = asked.and_then(|a| a).context("the client")?;
        Ok((served.context("the server")?, asked))
    }
}

fn connect(address: &SocketAddr, timeout: Duration) -> Result<TcpStream> {
    prepare(TcpStream::connect_timeout(address, timeout).context("connecting")?, timeout)
}

fn prepare(stream: TcpStream, timeout: Duration) -> Result<TcpStream> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
