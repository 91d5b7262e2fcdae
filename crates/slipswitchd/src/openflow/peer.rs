// SPDX-License-Identifier: Apache-2.0
//! The task of one OpenFlow connection.

use super::control::SharedControl;
use super::end::End;
use super::spin::AdaptiveSpin;
use super::stream::Stream;
use bridge::connection::{ConnectionId, Connections, Options};
use bridge::snapshot::BridgeIndex;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes read at a time.
const CHUNK: usize = 64 * 1024;
/// Time that a peer has to read the remaining output when its connection is closed.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Serves one connection until either side ends it. Returns why it ended.
pub(crate) async fn serve(
    control: &SharedControl,
    mut stream: Stream,
    bridge: BridgeIndex,
    options: Options,
    started: impl FnOnce(ConnectionId),
) -> End {
    let (id, waker) = {
        let mut control = control.borrow_mut();
        let parts = control.parts();
        let id = parts.connections.accept(bridge, options, parts.now);
        let waker = parts.services.register(id);
        control.publish_and_wake();
        (id, waker)
    };
    started(id);
    let end = run(control, &mut stream, id, &waker).await.unwrap_or_else(End::Failed);
    let mut control = control.borrow_mut();
    let parts = control.parts();
    parts.services.forget(id);
    parts.connections.closed(id);
    control.publish_and_wake();
    end
}

async fn run(
    control: &SharedControl,
    stream: &mut Stream,
    id: ConnectionId,
    waker: &tokio::sync::Notify,
) -> io::Result<End> {
    let mut buf = vec![0u8; CHUNK];
    let mut spin = AdaptiveSpin::default();
    loop {
        // Output first, and all of it: a long reply goes on only as the peer reads.
        loop {
            let output = control.borrow_mut().parts().connections.take_output(id);
            if output.is_empty() {
                break;
            }
            if let Some(end) = write(control, stream, id, waker, &output).await? {
                return Ok(end);
            }
            let mut control = control.borrow_mut();
            let parts = control.parts();
            parts.connections.run(parts.switch, parts.now);
            control.publish_and_wake();
        }
        stream.flush().await?;
        let (reads, is_unfinished) = {
            let mut control = control.borrow_mut();
            let connections = control.parts().connections;
            if let Some(end) = closing(connections, id) {
                return Ok(end);
            }
            (connections.wants_input(id), connections.has_unfinished_request(id))
        };
        if is_unfinished {
            tokio::task::yield_now().await;
            let mut control = control.borrow_mut();
            let parts = control.parts();
            parts.connections.receive(id, &[], parts.switch, parts.now);
            control.publish_and_wake();
            continue;
        }
        if spin.is_others_turn() {
            tokio::task::yield_now().await;
        }
        let at_once = if reads { spin.read_soon(stream, &mut buf)? } else { None };
        let n = match at_once {
            Some(n) => n,
            None => tokio::select! {
                read = stream.read(&mut buf), if reads => read?,
                () = waker.notified() => continue,
            },
        };
        if n == 0 {
            return Ok(End::Peer);
        }
        let chunk = buf.get(..n).unwrap_or_default();
        let mut control = control.borrow_mut();
        let parts = control.parts();
        parts.connections.receive(id, chunk, parts.switch, parts.now);
        control.publish_and_wake();
    }
}

/// Returns the reason why this side has to close a connection; `None` when there is none.
fn closing(connections: &Connections, id: ConnectionId) -> Option<End> {
    let reason = connections.closing(id)?.to_owned();
    connections.close_cause(id).map(|cause| End::Closed { cause, reason })
}

/// Writes all of `output`. A peer that does not read makes this wait, until the connection is to
/// be closed: the peer did not answer a probe, its bridge is gone, or its settings have changed.
/// Returns that end; `None` when all is written.
async fn write(
    control: &SharedControl,
    stream: &mut Stream,
    id: ConnectionId,
    waker: &tokio::sync::Notify,
    output: &[u8],
) -> io::Result<Option<End>> {
    let whole = async {
        stream.write_all(output).await?;
        stream.flush().await
    };
    tokio::pin!(whole);
    loop {
        tokio::select! {
            biased;
            written = &mut whole => return written.map(|()| None),
            () = waker.notified() => {
                let end = closing(control.borrow_mut().parts().connections, id);
                if let Some(end) = end {
                    return match tokio::time::timeout(LAST_OUTPUT, &mut whole).await {
                        Ok(written) => written.map(|()| None),
                        Err(_) => Ok(Some(end)),
                    };
                }
                // Otherwise there is more output, which the caller takes next.
            }
        }
    }
}
