// SPDX-License-Identifier: Apache-2.0
//! Why a connection ended, for the log and for `Controller:status:last_error`.

use bridge::connection::CloseCause;
use rustix::io::Errno;
use std::fmt;
use std::io;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed it.
    Peer,
    /// This side closed it.
    Closed {
        /// The kind of reason that this side had.
        cause: CloseCause,
        /// The reason, for the log.
        reason: String,
    },
    /// The transport failed.
    Failed(io::Error),
}

impl End {
    /// Returns Open vSwitch's words for `last_error`: those of the C library for an errno, or "End of
    /// file". `None` where nothing went wrong.
    pub(crate) fn last_error(&self) -> Option<String> {
        match self {
            End::Peer => Some("End of file".to_owned()),
            End::Closed { cause: CloseCause::Requested, .. } => None,
            End::Closed { cause: CloseCause::Silent, .. } => Some(text_of(Errno::TIMEDOUT)),
            End::Closed { cause: CloseCause::Protocol, .. } => Some(text_of(Errno::PROTO)),
            End::Failed(error) => Some(error_text(error)),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Peer => f.write_str("connection closed by peer"),
            End::Closed { reason, .. } => write!(f, "connection dropped ({reason})"),
            End::Failed(error) => write!(f, "connection dropped ({error})"),
        }
    }
}

/// Returns Open vSwitch's words for an error of a transport: those of its errno. Errors of TLS, which
/// has none, are protocol errors there.
pub(super) fn error_text(error: &io::Error) -> String {
    match error.kind() {
        _ if error.raw_os_error().is_some() => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_owned()
        }
        io::ErrorKind::TimedOut => text_of(Errno::TIMEDOUT),
        io::ErrorKind::UnexpectedEof => "End of file".to_owned(),
        io::ErrorKind::InvalidData => text_of(Errno::PROTO),
        io::ErrorKind::Unsupported => text_of(Errno::NOPROTOOPT),
        _ => error.to_string(),
    }
}

fn text_of(errno: Errno) -> String {
    error_text(&io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_in_the_words_of_open_vswitch() {
        let closed = |cause| End::Closed { cause, reason: "why".to_owned() }.last_error();
        let failed = |error: io::Error| End::Failed(error).last_error().expect("an error");
        assert_eq!(End::Peer.last_error().as_deref(), Some("End of file"));
        assert_eq!(closed(CloseCause::Requested), None);
        assert_eq!(closed(CloseCause::Silent).as_deref(), Some("Connection timed out"));
        assert_eq!(closed(CloseCause::Protocol).as_deref(), Some("Protocol error"));
        assert_eq!(failed(Errno::CONNREFUSED.into()), "Connection refused");
        let tls = io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate");
        assert_eq!(failed(tls), "Protocol error");
        let no_files = io::Error::new(io::ErrorKind::Unsupported, "not configured");
        assert_eq!(failed(no_files), "Protocol not available");
    }
}
