// SPDX-License-Identifier: Apache-2.0
//! An OpenFlow server that answers requests and keeps no rules: the least time that adding rules
//! can take with the tool.

use crate::attempt::Worker;
use anyhow::{Context, Result, bail};
use openflow::Version;
use openflow::frame::{Frames, HEADER_SIZE, Negotiation, hello, negotiate};
use openflow::message::{Body, BundleControl, BundleControlKind, Message, Protocol, Versions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a bundle's control message. Rules are longer.
const CONTROL_SIZE: usize = HEADER_SIZE + 8;
/// Bytes read at once.
const READ: usize = 1 << 16;

/// Listens at `path`, on the CPU `cpu`, and serves one connection after the other. The thread
/// polls: being woken is part of what a switch takes, and not of the least.
pub fn start(path: &Path, cpu: usize) -> Result<Worker<()>> {
    let listener =
        UnixListener::bind(path).with_context(|| format!("listening at {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(Worker::start(None, cpu, move |stop| serve(&listener, stop)))
}

fn serve(listener: &UnixListener, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => answer(stream, stop)?,
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(e) => return Err(e).context("accepting a connection"),
        }
    }
    Ok(())
}

/// Answers until the other side closes.
fn answer(mut stream: UnixStream, stop: &AtomicBool) -> Result<()> {
    stream.set_nonblocking(true)?;
    stream.write_all(&hello(Versions::KNOWN, 0))?;
    let (mut frames, mut bytes, mut agreed_version) = (Frames::new(), vec![0; READ], None);
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(length) => frames.push(bytes.get(..length).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                std::hint::spin_loop();
                continue;
            }
            // The tool has its answers.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e).context("reading"),
        }
        while let Some(message) = frames.next_message()? {
            let Some(version) = agreed_version else {
                agreed_version = Some(agreed(message)?);
                continue;
            };
            if let Some(reply) = reply(message, version)? {
                stream.write_all(&reply).context("answering")?;
            }
        }
    }
    Ok(())
}

fn agreed(first: &[u8]) -> Result<Version> {
    match negotiate(Versions::KNOWN, first) {
        Negotiation::Agreed(version) => Ok(version),
        Negotiation::Failed { reason, .. } | Negotiation::NoHello { reason } => bail!(reason),
    }
}

/// Answers a barrier, and the beginning and the end of a bundle. Longer messages, such as rules,
/// are not decoded.
fn reply(message: &[u8], version: Version) -> Result<Option<Vec<u8>>> {
    if message.len() > CONTROL_SIZE {
        return Ok(None);
    }
    let protocol = Protocol::new(version);
    let Ok(Message { xid, body }) = Message::decode(message, &protocol) else { return Ok(None) };
    let confirmed = |control, kind| Body::BundleControl(BundleControl { kind, ..control });
    let body = match body {
        Body::BarrierRequest => Body::BarrierReply,
        Body::BundleControl(control) => match control.kind {
            BundleControlKind::OpenRequest => confirmed(control, BundleControlKind::OpenReply),
            BundleControlKind::CommitRequest => confirmed(control, BundleControlKind::CommitReply),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Message::new(xid, body).encode(&protocol).map(Some).context("encoding a reply")
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::message::BundleFlags;
    use testing::directory;

    #[test]
    fn bundles_are_opened_and_committed() {
        use BundleControlKind::{
            CommitReply, CommitRequest, DiscardRequest, OpenReply, OpenRequest,
        };
        let protocol = Protocol::new(Version::V14);
        let control = |kind| {
            let control = BundleControl { bundle_id: 3, kind, flags: BundleFlags::ORDERED };
            Message::new(9, Body::BundleControl(control)).encode(&protocol).unwrap()
        };
        let replies = [(OpenRequest, Some(OpenReply)), (CommitRequest, Some(CommitReply))];
        for (request, expected) in replies.into_iter().chain([(DiscardRequest, None)]) {
            let reply = reply(&control(request), Version::V14).unwrap();
            assert_eq!(reply, expected.map(control));
        }
    }

    #[test]
    fn barriers_are_answered_and_rules_are_not_decoded() {
        let dir = directory();
        let path = dir.path().join("answerer");
        let server = start(&path, crate::pin::cpus().unwrap().other).unwrap();
        let protocol = Protocol::new(Version::V13);
        let barrier = Message::new(7, Body::BarrierRequest).encode(&protocol).unwrap();
        // A flow that no switch would take: its match is longer than the message.
        let mut flow = vec![4, 14, 0, 64, 0, 0, 0, 6];
        flow.resize(64, 0xff);
        let only = Versions::NONE.with(Version::V13);
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&[hello(only, 1), flow, barrier].concat()).unwrap();

        let mut frames = Frames::new();
        let mut messages = Vec::new();
        let mut bytes = [0; 256];
        while messages.len() < 2 {
            let length = stream.read(&mut bytes).unwrap();
            assert!(length > 0, "only {messages:?} came");
            frames.push(&bytes[..length]);
            while let Some(message) = frames.next_message().unwrap() {
                messages.push(Message::decode(message, &protocol).unwrap());
            }
        }
        assert!(matches!(messages[0].body, Body::Hello(_)), "{messages:?}");
        assert_eq!(messages[1], Message::new(7, Body::BarrierReply));
        drop(server);
        assert!(UnixStream::connect(&path).is_err());
    }
}
