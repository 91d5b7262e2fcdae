// SPDX-License-Identifier: Apache-2.0
//! A controller's end of an OpenFlow connection: sends bytes as they are, and keeps what comes.

use crate::case::protocol;
use openflow::Version;
use openflow::frame::{Frames, HEADER_SIZE, hello};
use openflow::message::{
    Body, FlowMod, FlowModCommand, FragmentHandling, Message, SwitchConfig, Versions,
};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An answer that takes longer than this is none.
const PATIENCE: Duration = Duration::from_secs(20);
/// OFPT_ERROR.
const ERROR: u8 = 1;
/// OFPT_ECHO_REQUEST and OFPT_ECHO_REPLY.
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// OFPT_FLOW_REMOVED.
const FLOW_REMOVED: u8 = 11;

/// A connection to one bridge in one version.
#[derive(Debug)]
pub struct Controller {
    stream: UnixStream,
    frames: Frames,
    version: Version,
    xid: u32,
    /// Messages that nobody asked for, and have not been taken.
    unasked: Vec<Vec<u8>>,
}

impl Controller {
    /// Connects to a bridge's management socket; packets for controllers will come whole.
    pub fn connect(socket: &Path, version: Version) -> std::io::Result<Controller> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let frames = Frames::new();
        let mut c = Controller { stream, frames, version, xid: 0, unasked: Vec::new() };
        let mut greeting = hello(Versions::default().with(version), 0);
        let config = SwitchConfig {
            fragments: FragmentHandling::Normal,
            invalid_ttl_to_controller: None,
            miss_send_len: u16::MAX,
        };
        greeting.extend(c.encoded(Body::SetConfig(config))?.1);
        if version == Version::V10 {
            greeting.extend(c.encoded(Body::FlowModTableId(true))?.1);
        }
        // Until the first change of flows OVS takes every connection for one of OpenFlow 1.0,
        // whose misses go to controllers. This one changes nothing.
        let nothing = FlowMod {
            command: FlowModCommand::Delete,
            cookie: u64::MAX,
            cookie_mask: u64::MAX,
            table_id: 253,
            ..FlowMod::add(0, flow::Match::ANY, &[])
        };
        greeting.extend(c.encoded(Body::FlowMod(Box::new(nothing)))?.1);
        c.stream.write_all(&greeting)?;
        c.receive()?; // The switch's own hello.
        c.request(Body::EchoRequest(Vec::new()))?;
        Ok(c)
    }

    /// The transaction id for the next message.
    pub fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    fn encoded(&mut self, body: Body) -> std::io::Result<(u32, Vec<u8>)> {
        let xid = self.next_xid();
        let bytes = Message { xid, body }.encode(&protocol(self.version));
        Ok((xid, bytes.map_err(std::io::Error::other)?))
    }

    /// Sends messages, each with its transaction id, and a barrier; for each of them all that came
    /// with its id until the barrier was answered.
    pub fn ask(&mut self, messages: &[(u32, Vec<u8>)]) -> std::io::Result<Vec<Vec<Vec<u8>>>> {
        let (barrier, last) = self.encoded(Body::BarrierRequest)?;
        let all: Vec<&[u8]> =
            messages.iter().map(|(_, bytes)| bytes.as_slice()).chain([last.as_slice()]).collect();
        self.stream.write_all(&all.concat())?;
        let mut answers = vec![Vec::new(); messages.len()];
        loop {
            let message = self.receive()?;
            let id = message.get(4..HEADER_SIZE).unwrap_or_default();
            if id == barrier.to_be_bytes() {
                return Ok(answers);
            }
            let asked = messages.iter().position(|(xid, _)| id == xid.to_be_bytes());
            match asked.and_then(|n| answers.get_mut(n)) {
                Some(answers) => answers.push(message),
                None => self.unasked.push(message),
            }
        }
    }

    /// Asks for several things at once.
    pub fn requests(&mut self, bodies: Vec<Body>) -> std::io::Result<Vec<Vec<Vec<u8>>>> {
        let messages: std::io::Result<Vec<_>> =
            bodies.into_iter().map(|body| self.encoded(body)).collect();
        self.ask(&messages?)
    }

    /// Asks for something.
    pub fn request(&mut self, body: Body) -> std::io::Result<Vec<Vec<u8>>> {
        Ok(self.requests(vec![body])?.concat())
    }

    /// The number of flow-removed messages that have not been taken yet.
    pub fn told(&self) -> usize {
        self.unasked.iter().filter(|m| m.get(1) == Some(&FLOW_REMOVED)).count()
    }

    /// Waits for `count` flow-removed messages.
    ///
    /// # Errors
    /// They do not arrive in time.
    pub fn await_told(&mut self, count: usize) -> std::io::Result<()> {
        while self.told() < count {
            let message = self.receive()?;
            self.unasked.push(message);
        }
        Ok(())
    }

    /// Takes the asynchronous messages since the last call, without transaction ids.
    pub fn unasked(&mut self) -> std::io::Result<Vec<Vec<u8>>> {
        self.request(Body::EchoRequest(Vec::new()))?;
        Ok(std::mem::take(&mut self.unasked))
    }

    /// Hangs up, and waits until the switch has done the same: then it has noticed.
    pub fn end(mut self) -> std::io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        std::io::copy(&mut self.stream, &mut std::io::sink())?;
        Ok(())
    }

    /// The version spoken.
    pub fn version(&self) -> Version {
        self.version
    }

    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(message) = self.frames.next_message().map_err(std::io::Error::other)? {
                let message = message.to_vec();
                // OVS closes a connection whose peer does not answer echo requests.
                if message.get(1) == Some(&ECHO_REQUEST) {
                    let mut reply = message.clone();
                    reply.splice(1..2, [ECHO_REPLY]);
                    self.stream.write_all(&reply)?;
                }
                return Ok(message);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.frames.push(buffer.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// An error message's type, code and what it is about, else `None`.
pub fn error_of(message: &[u8]) -> Option<String> {
    (message.get(1) == Some(&ERROR)).then(|| {
        let version = message.first().copied().and_then(Version::from_wire);
        let decoded = Message::decode(message, &protocol(version.unwrap_or(Version::V10)));
        match decoded {
            Ok(Message { body: Body::Error(error), .. }) => {
                format!("{:?} about {} bytes", error.error, error.data.len())
            }
            other => format!("{other:?}"),
        }
    })
}
