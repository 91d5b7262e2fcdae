// SPDX-License-Identifier: Apache-2.0
//! Messages that come back, each compared with what was sent.

use super::{Door, Ends, connect};
use anyhow::{Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Exchanges before those that count.
const WARM_UP: u32 = 3;
/// Fewest exchanges of a measurement, however long they take.
const FEWEST: u32 = 5;

/// Microseconds from before a message of `size` bytes is sent until all of it is back, as a mean
/// over `most` exchanges on one connection, or over those that begin within `limit`. Both ends
/// have one thread. The server sends a message back when it has all of it.
///
/// # Errors
/// When a message does not come back as it was.
pub fn echo(ends: &Ends, size: usize, most: u32, limit: Duration) -> Result<f64> {
    let serve = move |door: &Door| match door.next()? {
        Some(stream) => mirror(stream, size),
        None => Ok(()),
    };
    Ok(ends.converse(serve, move |address| exchange(&address, size, most, limit))?.1)
}

/// How many exchanges of a size are measured at most: the BlueField page has 50.
pub fn echo_rounds() -> u32 {
    50
}

fn mirror(mut stream: TcpStream, size: usize) -> Result<()> {
    let mut message = vec![0; size];
    loop {
        match stream.read_exact(&mut message) {
            Ok(()) => stream.write_all(&message)?,
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

fn exchange(address: &SocketAddr, size: usize, most: u32, limit: Duration) -> Result<f64> {
    let mut stream = connect(address)?;
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
    for _ in 0..WARM_UP {
        once()?;
    }
    let (begin, mut sum, mut count) = (Instant::now(), Duration::ZERO, 0);
    while count < most && (count < FEWEST || begin.elapsed() < limit) {
        sum += once()?;
        count += 1;
    }
    Ok(sum.as_secs_f64() * 1e6 / f64::from(count.max(1)))
}
