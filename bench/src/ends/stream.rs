// SPDX-License-Identifier: Apache-2.0
//! As many bytes as one connection carries.

use super::{Door, Ends, connect};
use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Until the window is open, at some hundred round trips, and the ends have fallen into step.
const WARM_UP: Duration = Duration::from_millis(50);
/// Bytes of one write, as much as a GSO packet takes several times over.
const CHUNK: usize = 512 << 10;

/// Gbit/s that arrive during `window`.
///
/// # Errors
/// When the connection fails or is silent.
pub fn bulk(ends: &Ends, window: Duration) -> Result<f64> {
    let serve = move |door: &Door| match door.next()? {
        Some(stream) => receive(stream, window),
        None => anyhow::bail!("no connection"),
    };
    Ok(ends.converse(serve, |address| send(connect(&address)?))?.0)
}

/// Reads during the window; then the connection is closed.
fn receive(mut stream: TcpStream, window: Duration) -> Result<f64> {
    let mut buffer = vec![0; CHUNK];
    let warm = Instant::now();
    while warm.elapsed() < WARM_UP {
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
