// SPDX-License-Identifier: Apache-2.0
//! The asking side, for tools: blocking, without a runtime.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::framer::Framer;
use crate::server::reason;
use crate::socket_name::SocketName;

/// The largest reply in bytes that a client takes: a dump of a very large flow table.
const MAX_REPLY: usize = 1 << 32;

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The target is a name, and its pidfile does not lead to a process.
    #[error("cannot read pidfile \"{}\" ({})", path.display(), reason(source))]
    Pidfile {
        /// Path of the pidfile.
        path: PathBuf,
        /// Why it does not.
        source: io::Error,
    },
    /// Nobody answers at the socket.
    #[error("cannot connect to \"{}\" ({})", path.display(), reason(source))]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke, or the daemon did not answer in time.
    #[error("{}: transaction error ({})", path.display(), reason(source))]
    Transaction {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is none: not JSON, or not a string.
    #[error("{}: bad reply: {reason}", path.display())]
    BadReply {
        /// Path of the socket.
        path: PathBuf,
        /// The reason, in words.
        reason: String,
    },
    /// The daemon answered with an error; its text as it came.
    #[error("{0}")]
    Refused(String),
}

/// The socket of `target`: an absolute path stands for itself; a name stands for the daemon whose
/// number is in `RUNDIR/NAME.pid`, that is, for `RUNDIR/NAME.PID.ctl`.
///
/// # Errors
/// [`CallError::Pidfile`] when the pidfile cannot be read or holds no process number.
pub fn socket_path(rundir: &Path, target: &str) -> Result<PathBuf, CallError> {
    if target.starts_with('/') {
        return Ok(PathBuf::from(target));
    }
    let path = rundir.join(format!("{target}.pid"));
    let read = || -> io::Result<u32> {
        let text = fs::read_to_string(&path)?;
        text.trim().parse().ok().filter(|pid| *pid > 0).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "it does not hold a process number")
        })
    };
    match read() {
        Ok(pid) => Ok(rundir.join(format!("{target}.{pid}.ctl"))),
        Err(source) => Err(CallError::Pidfile { path, source }),
    }
}

/// `$OVS_RUNDIR`, or Debian's default.
pub fn default_rundir() -> PathBuf {
    match std::env::var_os("OVS_RUNDIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from("/var/run/openvswitch"),
    }
}

/// Asks `target` (see [`socket_path`], with [`default_rundir`]) to run `command` and waits for
/// the answer, as long as it takes.
///
/// # Errors
/// See [`CallError`]; the daemon's own refusal is [`CallError::Refused`].
pub fn call<S: AsRef<str>>(target: &str, command: &str, args: &[S]) -> Result<String, CallError> {
    call_socket(&socket_path(&default_rundir(), target)?, command, args, None)
}

/// [`call`] for a socket's path, waiting at most `timeout` for each step.
///
/// # Errors
/// As [`call`].
pub fn call_socket<S: AsRef<str>>(
    path: &Path,
    command: &str,
    args: &[S],
    timeout: Option<Duration>,
) -> Result<String, CallError> {
    Connection::open(path, timeout)?.call(command, args)
}

/// A connection for several commands, one after the other.
#[derive(Debug)]
pub struct Connection {
    path: PathBuf,
    stream: UnixStream,
    framer: Framer,
}

impl Connection {
    /// Connects to the socket at `path`; each later step waits at most `timeout`.
    ///
    /// # Errors
    /// [`CallError::Connect`] when nobody answers.
    pub fn open(path: &Path, timeout: Option<Duration>) -> Result<Connection, CallError> {
        let connect = |source| CallError::Connect { path: path.to_owned(), source };
        let stream = SocketName::new(path)
            .and_then(|name| UnixStream::connect(name.path()))
            .map_err(connect)?;
        stream.set_read_timeout(timeout).map_err(connect)?;
        stream.set_write_timeout(timeout).map_err(connect)?;
        Ok(Connection { path: path.to_owned(), stream, framer: Framer::new(MAX_REPLY) })
    }

    /// Runs `command` and waits for the answer.
    ///
    /// # Errors
    /// See [`CallError`]. After any but [`CallError::Refused`] the connection is of no more use.
    pub fn call<S: AsRef<str>>(&mut self, command: &str, args: &[S]) -> Result<String, CallError> {
        self.send(command, args)?;
        self.receive()
    }

    /// Asks for `command` and does not wait: answers come in the order of what was asked, each by a
    /// [`Connection::receive`]. A caller that sends many requests without reading replies may block
    /// forever.
    ///
    /// # Errors
    /// [`CallError::Transaction`]; the connection is of no more use.
    pub fn send<S: AsRef<str>>(&mut self, command: &str, args: &[S]) -> Result<(), CallError> {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let request = json!({"method": command, "params": args, "id": 0}).to_string();
        let broken = |source| CallError::Transaction { path: self.path.clone(), source };
        self.stream.write_all(request.as_bytes()).map_err(broken)
    }

    /// The next answer.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub fn receive(&mut self) -> Result<String, CallError> {
        let path = &self.path;
        let broken = |source| CallError::Transaction { path: path.clone(), source };
        let bad = |reason: String| CallError::BadReply { path: path.clone(), reason };

        let mut buffer = [0; 16 * 1024];
        let object = loop {
            if let Some(object) = self.framer.next_object().map_err(|e| bad(e.to_string()))? {
                break object;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(broken(io::Error::other("End of file"))),
                Ok(n) => self.framer.push(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        };
        let mut reply: Map<String, Value> =
            serde_json::from_slice(&object).map_err(|e| bad(e.to_string()))?;
        match (reply.remove("error"), reply.remove("result")) {
            (Some(Value::String(error)), _) => Err(CallError::Refused(error)),
            (None | Some(Value::Null), Some(Value::String(result))) => Ok(result),
            _ => Err(bad("neither \"result\" nor \"error\" is a string".into())),
        }
    }
}
