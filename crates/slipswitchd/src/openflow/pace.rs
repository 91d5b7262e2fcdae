// SPDX-License-Identifier: Apache-2.0
//! How a peer talks: now and then, or one request at the heels of the other.
//!
//! `ovs-ofctl add-flows` sends one flow mod and a barrier, and the next once the barrier is answered.
//! To sleep in between, and to be woken, takes longer than all the rest. So the next request is
//! waited for awake, for a moment. Where that was in vain (there is no hurry, or the peer needs
//! this very CPU to go on) it is not tried again for some requests, and for twice as many each time.

use super::stream::Stream;
use std::io;
use std::time::{Duration, Instant};

/// So long a request is waited for awake: about what waking up takes on both sides.
const MOMENT: Duration = Duration::from_micros(150);
/// Requests that are waited for asleep after one that was waited for in vain, at first and at most.
const PAUSE: (u32, u32) = (8, 1024);
/// After so many requests in a row that were waited for awake others have their turn.
const TURN: u32 = 16;

/// The pace of one peer.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Requests that are to be waited for asleep.
    asleep: u32,
    /// How many that will be when waiting is in vain.
    pause: u32,
    /// Requests in a row that were waited for awake.
    row: u32,
}

impl Pace {
    /// True when this peer had the control thread for itself for long enough; it begins anew.
    pub(super) fn is_others_turn(&mut self) -> bool {
        let enough = self.row >= TURN;
        if enough {
            self.row = 0;
        }
        enough
    }

    /// Reads into `buf` what comes within a moment. `None`: nothing has, or it is to be waited
    /// for asleep.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn read_soon(
        &mut self,
        stream: &Stream,
        buf: &mut [u8],
    ) -> io::Result<Option<usize>> {
        self.wait(|| stream.read_now(buf))
    }

    fn wait(
        &mut self,
        mut read: impl FnMut() -> io::Result<Option<usize>>,
    ) -> io::Result<Option<usize>> {
        if self.asleep > 0 {
            self.asleep -= 1;
            self.row = 0;
            return Ok(None);
        }
        let start = Instant::now();
        loop {
            if let Some(n) = read()? {
                self.pause = 0;
                self.row += 1;
                return Ok(Some(n));
            }
            if start.elapsed() >= MOMENT {
                self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
                self.asleep = self.pause;
                self.row = 0;
                return Ok(None);
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_peer_is_waited_for_awake_ever_more_rarely() {
        let mut pace = Pace::default();
        let mut tries = Vec::new();
        for request in 0..10_000 {
            let mut tried = false;
            let read = pace.wait(|| {
                tried = true;
                Ok(None)
            });
            assert_eq!(read.unwrap(), None);
            tries.extend(tried.then_some(request));
        }
        let gaps: Vec<u32> = tries.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(gaps[..9], [9, 17, 33, 65, 129, 257, 513, 1025, 1025]);
    }

    #[test]
    fn a_quick_peer_lets_others_have_their_turn() {
        let mut pace = Pace { asleep: 0, pause: 512, row: 0 };
        let turns = (0..10 * TURN).filter(|_| {
            assert_eq!(pace.wait(|| Ok(Some(8))).unwrap(), Some(8));
            pace.is_others_turn()
        });
        assert_eq!(turns.count(), 10);
        assert_eq!(pace.wait(|| Ok(None)).unwrap(), None);
        assert_eq!(pace.asleep, PAUSE.0, "what was before is forgotten");
    }

    #[test]
    fn errors_and_ends_are_told() {
        let mut pace = Pace::default();
        assert_eq!(pace.wait(|| Ok(Some(0))).unwrap(), Some(0));
        assert!(pace.wait(|| Err(io::Error::other("gone"))).is_err());
    }
}
