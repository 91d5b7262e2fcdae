// SPDX-License-Identifier: Apache-2.0
//! Clients and servers by TCP: a bulk transfer, echoes, requests, connections.

use super::{Endpoints, Listener, SILENCE, connect};
use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A bulk transfer is not measured until the congestion window is open, some hundred round trips.
const BULK_WARM_UP: Duration = Duration::from_millis(50);
/// Bytes of one write: several GSO packets.
const CHUNK: usize = 512 << 10;
/// Echoes before the measured ones.
const ECHO_WARM_UP: u32 = 3;
/// Fewest echoes of a measurement, however long they take.
const FEWEST_ECHOES: u32 = 5;

/// Gbit/s that one connection carries during `window`.
pub fn bulk(endpoints: &Endpoints, window: Duration) -> Result<f64> {
    let serve = move |listener: &Listener<'_>| match listener.next()? {
        Some(stream) => receive(stream, window),
        None => bail!("no connection"),
    };
    Ok(endpoints.converse(serve, |address| send(connect(&address, SILENCE)?))?.0)
}

/// Reads during the window; then the connection is closed.
fn receive(mut stream: TcpStream, window: Duration) -> Result<f64> {
    let mut buffer = vec![0; CHUNK];
    let warm = Instant::now();
    while warm.elapsed() < BULK_WARM_UP {
        ensure!(stream.read(&mut buffer)? > 0, "the sender ended");
    }
    let (begin, mut bytes) = (Instant::now(), 0);
    while begin.elapsed() < window {
        let read = stream.read(&mut buffer).context("receiving")?;
        ensure!(read > 0, "the sender ended");
        bytes += read;
    }
    Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9)
}

/// Sends until the receiver closes.
fn send(mut stream: TcpStream) -> Result<()> {
    let buffer = vec![0x5a; CHUNK];
    loop {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Ok(());
            }
            Err(e) => return Err(e).context("sending"),
        }
    }
}

/// Microseconds from before a message of `size` bytes is sent until all of it is back, as a mean
/// over `most` echoes on one connection, or over those that begin within `limit`. Each endpoint
/// has one thread. The server sends a message back when it has all of it.
pub fn echo(endpoints: &Endpoints, size: usize, most: u32, limit: Duration) -> Result<f64> {
    let serve = move |listener: &Listener<'_>| mirror(listener, size);
    Ok(endpoints.converse(serve, move |address| echoes(&address, size, most, limit))?.1)
}

/// Sends messages of `size` bytes back until the only client closes.
pub fn mirror(listener: &Listener<'_>, size: usize) -> Result<()> {
    let Some(mut stream) = listener.next()? else { return Ok(()) };
    let mut message = vec![0; size];
    loop {
        match stream.read_exact(&mut message) {
            Ok(()) => stream.write_all(&message)?,
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

fn echoes(address: &SocketAddr, size: usize, most: u32, limit: Duration) -> Result<f64> {
    let mut stream = connect(address, SILENCE)?;
    let mut message = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut message);
    let mut back = vec![0; size];
    let mut once = || -> Result<Duration> {
        let begin = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut back)?;
        let took = begin.elapsed();
        ensure!(back == message, "{size} bytes came back changed");
        Ok(took)
    };
    for _ in 0..ECHO_WARM_UP {
        once()?;
    }
    let (begin, mut sum, mut count) = (Instant::now(), Duration::ZERO, 0);
    while count < most && (count < FEWEST_ECHOES || begin.elapsed() < limit) {
        sum += once()?;
        count += 1;
    }
    Ok(sum.as_secs_f64() * 1e6 / f64::from(count.max(1)))
}

/// Requests of one byte that are answered by one byte a second, one at a time, on one connection.
pub fn requests(endpoints: &Endpoints, window: Duration) -> Result<f64> {
    let serve = |listener: &Listener<'_>| mirror(listener, 1);
    let ask = move |address| {
        let mut stream = connect(&address, SILENCE)?;
        rate(window, || request(&mut stream))
    };
    Ok(endpoints.converse(serve, ask)?.1)
}

/// Connections that are made, used for one request and closed in a second, one at a time.
pub fn connections(endpoints: &Endpoints, window: Duration) -> Result<f64> {
    let serve = |listener: &Listener<'_>| {
        while let Some(mut stream) = listener.next()? {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            // The server closes first: its side keeps the address, and the client's is free.
            stream.write_all(&byte)?;
        }
        Ok(())
    };
    let ask = move |address| {
        rate(window, || {
            let mut stream = connect(&address, SILENCE)?;
            request(&mut stream)?;
            let ended = stream.read(&mut [0]).context("waiting for the end")?;
            ensure!(ended == 0, "more than one byte came back");
            Ok(())
        })
    };
    Ok(endpoints.converse(serve, ask)?.1)
}

fn request(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(&[1]).context("asking")?;
    stream.read_exact(&mut [0]).context("waiting for an answer")
}

/// How often a second `work` was done.
fn rate(window: Duration, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let (begin, mut count) = (Instant::now(), 0u32);
    while begin.elapsed() < window {
        work()?;
        count += 1;
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}
