// SPDX-License-Identifier: Apache-2.0
//! One byte there, one byte back: on a connection that stays, or on a new one each time.

use super::{Door, Ends, connect};
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Requests answered a second, one at a time, on one connection.
///
/// # Errors
/// When the connection fails or is silent.
pub fn requests(ends: &Ends, window: Duration) -> Result<f64> {
    let serve = |door: &Door| match door.next()? {
        Some(stream) => answer_all(stream),
        None => Ok(()),
    };
    let ask = move |address| {
        let mut stream = connect(&address)?;
        rate(window, || turn(&mut stream))
    };
    Ok(ends.converse(serve, ask)?.1)
}

/// Connections made, used for one request and closed a second, one at a time.
///
/// # Errors
/// When a connection fails or is silent.
pub fn connections(ends: &Ends, window: Duration) -> Result<f64> {
    let serve = |door: &Door| {
        while let Some(mut stream) = door.next()? {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            // The server closes first: its end keeps the address, and the client's is free.
            stream.write_all(&byte)?;
        }
        Ok(())
    };
    let ask = move |address| {
        rate(window, || {
            let mut stream = connect(&address)?;
            turn(&mut stream)?;
            let ended = stream.read(&mut [0]).context("waiting for the end")?;
            anyhow::ensure!(ended == 0, "more than one byte came back");
            Ok(())
        })
    };
    Ok(ends.converse(serve, ask)?.1)
}

fn answer_all(mut stream: TcpStream) -> Result<()> {
    let mut byte = [0];
    loop {
        match stream.read_exact(&mut byte) {
            Ok(()) => stream.write_all(&byte)?,
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

fn turn(stream: &mut TcpStream) -> Result<()> {
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
