// SPDX-License-Identifier: Apache-2.0
//! What runs at the two ends of a switch: a client and a server, each on a thread in its own
//! namespace, pinned to a CPU.

mod echo;
mod paced;
mod setup;
mod steady;
mod stream;
mod turns;

pub use echo::{echo, echo_rounds};
pub use paced::{Flood, paced};
pub use setup::{Misses, Taken, misses};
pub use steady::steady;
pub use stream::bulk;
pub use turns::{connections, requests};

use crate::pin::{Cpus, pin};
use anyhow::{Context, Result, anyhow};
use slipswitch_tests::harness::Netns;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Where servers listen.
const PORT: u16 = 5201;
/// Of nothing heard, until an end gives up.
const SILENCE: Duration = Duration::from_secs(5);

/// The two ends.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Where the client is.
    pub client: Netns,
    /// Where the server is.
    pub server: Netns,
    /// The server's address.
    pub address: IpAddr,
    /// The client's thread runs on the one for traffic, the server's on the other.
    pub cpus: Cpus,
}

/// A server's listening socket.
pub struct Door {
    listener: TcpListener,
    over: Arc<AtomicBool>,
}

impl Door {
    /// The next connection; `None` when the client has finished.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn next(&self) -> Result<Option<TcpStream>> {
        let (stream, _) = self.listener.accept().context("accepting a connection")?;
        if self.over.load(Ordering::Acquire) {
            return Ok(None);
        }
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        stream.set_nodelay(true)?;
        Ok(Some(stream))
    }
}

impl Ends {
    /// Sends a byte to the server and back.
    ///
    /// # Errors
    /// When that takes longer than `patience`.
    pub fn reach_by_tcp(&self, patience: Duration) -> Result<()> {
        let serve = |door: &Door| {
            if let Some(mut stream) = door.next()? {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                stream.write_all(&byte)?;
            }
            Ok(())
        };
        let ask = move |address| {
            let mut stream = TcpStream::connect_timeout(&address, patience)?;
            stream.set_read_timeout(Some(patience))?;
            stream.write_all(&[1])?;
            Ok(stream.read_exact(&mut [0])?)
        };
        self.converse(serve, ask).map(drop)
    }

    /// Runs a server and a client by TCP; what each returns. The server has to end when the
    /// client has.
    ///
    /// # Errors
    /// Those of the client, else those of the server.
    pub fn converse<S: Send + 'static, C: Send + 'static>(
        &self,
        serve: impl FnOnce(&Door) -> Result<S> + Send + 'static,
        ask: impl FnOnce(SocketAddr) -> Result<C> + Send + 'static,
    ) -> Result<(S, C)> {
        let cpus = self.cpus;
        let address = SocketAddr::new(self.address, PORT);
        let over = Arc::new(AtomicBool::new(false));
        let (ready, listens) = mpsc::channel();
        let there = Arc::clone(&over);
        let server = self.server.spawn(move || {
            pin(cpus.other)?;
            let listener = TcpListener::bind(address).context("listening")?;
            ready.send(()).ok();
            serve(&Door { listener, over: there })
        });
        let listening = listens.recv_timeout(SILENCE).is_ok();
        let client = self.client.spawn(move || {
            pin(cpus.traffic)?;
            anyhow::ensure!(listening, "the server does not listen");
            ask(address)
        });
        let asked = client.join().map_err(|_| anyhow!("the client panicked"));
        // Whoever still waits for a connection gets one that says that it is over.
        over.store(true, Ordering::Release);
        self.server.with(move || TcpStream::connect_timeout(&address, SILENCE).map(drop)).ok();
        let served = server.join().map_err(|_| anyhow!("the server panicked"));
        let asked = asked.and_then(|a| a).context("the client")?;
        Ok((served.and_then(|s| s).context("the server")?, asked))
    }
}

/// Connects as a client does.
fn connect(address: &SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, SILENCE).context("connecting")?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
