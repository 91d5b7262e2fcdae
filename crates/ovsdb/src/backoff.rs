// SPDX-License-Identifier: Apache-2.0
//! How long to wait before the next attempt to connect.

use std::time::Duration;

/// The wait before the first real pause; doubles up to [`MAX`].
const MIN: Duration = Duration::from_secs(1);
/// The longest wait.
const MAX: Duration = Duration::from_secs(8);

/// Counts failures. After a connection that worked, each remote may be tried at once; then the
/// waits are 1, 2, 4, 8, 8, … seconds. A connection worked when the replica became current on it
/// and it lasted at least a second. One that became current but lasted less starts the waits over
/// and gives no free attempt, so that a server which fails right after its first answer is not
/// asked in a tight loop.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    free: usize,
    next: Duration,
}

/// The decision after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// How long to wait.
    pub(crate) wait: Duration,
    /// How much to say about it.
    pub(crate) say: Say,
}

/// The log entry for a pause, if any, so that a long absence does not fill the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// Nothing: the pause is short.
    Nothing,
    /// The number of seconds.
    Wait,
    /// Log that further attempts are not logged.
    LastWord,
    /// Log nothing: the suppression of further logging was logged before.
    Quiet,
}

impl Backoff {
    /// For `remotes` remotes, of which one is being tried already.
    pub(crate) fn new(remotes: usize) -> Self {
        Backoff { free: remotes.saturating_sub(1), next: MIN }
    }

    /// A connection worked and is gone.
    pub(crate) fn worked(&mut self, remotes: usize) {
        *self = Backoff { free: remotes.max(1), next: MIN };
    }

    /// A connection worked, but only just.
    pub(crate) fn worked_briefly(&mut self) {
        *self = Backoff { free: 0, next: MIN };
    }

    /// The pause after a failure.
    pub(crate) fn failed(&mut self) -> Pause {
        if self.free > 0 {
            self.free -= 1;
            return Pause { wait: Duration::ZERO, say: Say::Nothing };
        }
        let wait = self.next.min(MAX);
        let say = match wait {
            MIN => Say::Nothing,
            MAX if self.next > MAX => Say::Quiet,
            MAX => Say::LastWord,
            _ => Say::Wait,
        };
        // A value beyond MAX only records that the last message was logged.
        self.next = (wait * 2).min(MAX * 2);
        Pause { wait, say }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_eight_seconds() {
        let mut backoff = Backoff::new(2);
        let steps: Vec<(u64, Say)> =
            (0..7).map(|_| backoff.failed()).map(|p| (p.wait.as_secs(), p.say)).collect();
        assert_eq!(
            steps,
            [
                (0, Say::Nothing),
                (1, Say::Nothing),
                (2, Say::Wait),
                (4, Say::Wait),
                (8, Say::LastWord),
                (8, Say::Quiet),
                (8, Say::Quiet),
            ]
        );
        backoff.worked(1);
        assert_eq!(backoff.failed().wait, Duration::ZERO);
        assert_eq!(backoff.failed().wait, MIN);
        backoff.failed();
        backoff.worked_briefly();
        assert_eq!(backoff.failed().wait, MIN);
    }
}
