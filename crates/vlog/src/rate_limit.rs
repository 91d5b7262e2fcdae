// SPDX-License-Identifier: Apache-2.0
//! Rate limiting of call sites: a token bucket that counts what it holds back and says so with
//! the next line it lets through.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The price of one message. With a refill of `rate` tokens a millisecond, `rate` messages a
/// minute are sustained.
const MESSAGE_TOKENS: u64 = 60_000;

/// A token bucket for one call site or for several that share it.
///
/// Usable in a `static`; any thread may call it. It starts full, so the first `burst` messages
/// pass at once.
///
/// ```
/// static LIMIT: vlog::RateLimit = vlog::RateLimit::new(5, 20);
/// vlog::warn_rl!(LIMIT, "bad packet on port {}", 3);
/// ```
#[derive(Debug)]
pub struct RateLimit {
    /// Messages a minute, which is also tokens a millisecond.
    rate: u64,
    /// Most tokens that can be saved up.
    capacity: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: u64,
    filled: Option<Instant>,
    dropped: u64,
    first_dropped: Option<Instant>,
    last_dropped: Option<Instant>,
}

/// The decision about one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The message is logged.
    Log,
    /// Log the report first, then the message.
    LogAfter(Dropped),
    /// Do not log it; it has been counted.
    Drop,
}

/// How many messages were held back, and when. Displays as OVS words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Number of messages.
    pub count: u64,
    /// Time since the first of them.
    pub since_first: Duration,
    /// Time since the last of them.
    pub since_last: Duration,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Dropped {} log messages in last {} seconds (most recently, {} seconds ago) due to \
             excessive rate",
            self.count,
            self.since_first.as_secs(),
            self.since_last.as_secs()
        )
    }
}

impl RateLimit {
    /// A bucket that sustains `rate` messages a minute after a first `burst` of messages. A
    /// `burst` of 0 lets nothing pass.
    pub const fn new(rate: u32, burst: u32) -> RateLimit {
        let capacity = burst as u64 * MESSAGE_TOKENS;
        RateLimit {
            rate: rate as u64,
            capacity,
            state: Mutex::new(State {
                tokens: capacity,
                filled: None,
                dropped: 0,
                first_dropped: None,
                last_dropped: None,
            }),
        }
    }

    /// Decides about one message at `now`, which must not run backwards (an earlier `now` counts
    /// as no time passed).
    pub fn check_at(&self, now: Instant) -> Admission {
        // A panic cannot happen while the lock is held; were it to, the counters stay usable.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = state.filled.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        if state.filled.is_none() || elapsed_ms > 0 {
            state.tokens = state
                .tokens
                .saturating_add(self.rate.saturating_mul(elapsed_ms))
                .min(self.capacity);
            state.filled = Some(now);
        }
        match state.tokens.checked_sub(MESSAGE_TOKENS) {
            None => {
                state.dropped = state.dropped.saturating_add(1);
                state.first_dropped.get_or_insert(now);
                state.last_dropped = Some(now);
                Admission::Drop
            }
            Some(left) => {
                state.tokens = left;
                let first = state.first_dropped.take();
                let last = state.last_dropped.take();
                match (std::mem::take(&mut state.dropped), first, last) {
                    (0, ..) | (_, None, _) | (_, _, None) => Admission::Log,
                    (count, Some(first), Some(last)) => Admission::LogAfter(Dropped {
                        count,
                        since_first: now.saturating_duration_since(first),
                        since_last: now.saturating_duration_since(last),
                    }),
                }
            }
        }
    }

    /// Decides about one message of the module that `target` belongs to, now. Always
    /// [`Admission::Log`] while `vlog/disable-rate-limit` is in force for the module.
    pub fn check(&self, target: &str) -> Admission {
        if crate::logger().honors_rate_limits(target) {
            self.check_at(Instant::now())
        } else {
            Admission::Log
        }
    }
}

/// Logs an event through a [`RateLimit`](crate::RateLimit): `rate_limited!(LIMIT, LEVEL, target:
/// "module", "format", ...)`, with `LEVEL` a [`tracing::Level`]. The shorter forms are
/// [`warn_rl!`](crate::warn_rl) and its sisters.
#[macro_export]
macro_rules! rate_limited {
    ($limit:expr, $level:expr, target: $target:expr, $($arg:tt)+) => {
        if $crate::tracing::enabled!(target: $target, $level) {
            match $crate::RateLimit::check(&$limit, $target) {
                $crate::Admission::Drop => {}
                $crate::Admission::Log => {
                    $crate::tracing::event!(target: $target, $level, $($arg)+);
                }
                $crate::Admission::LogAfter(dropped) => {
                    $crate::tracing::event!(target: $target, $level, "{}", dropped);
                    $crate::tracing::event!(target: $target, $level, $($arg)+);
                }
            }
        }
    };
    ($limit:expr, $level:expr, $($arg:tt)+) => {
        $crate::rate_limited!($limit, $level, target: ::core::module_path!(), $($arg)+)
    };
}

/// `error_rl!(LIMIT, [target: "module",] "format", ...)`: a rate-limited ERR message.
#[macro_export]
macro_rules! error_rl {
    ($limit:expr, $($arg:tt)+) => {
        $crate::rate_limited!($limit, $crate::tracing::Level::ERROR, $($arg)+)
    };
}

/// `warn_rl!(LIMIT, [target: "module",] "format", ...)`: a rate-limited WARN message.
#[macro_export]
macro_rules! warn_rl {
    ($limit:expr, $($arg:tt)+) => {
        $crate::rate_limited!($limit, $crate::tracing::Level::WARN, $($arg)+)
    };
}

/// `info_rl!(LIMIT, [target: "module",] "format", ...)`: a rate-limited INFO message.
#[macro_export]
macro_rules! info_rl {
    ($limit:expr, $($arg:tt)+) => {
        $crate::rate_limited!($limit, $crate::tracing::Level::INFO, $($arg)+)
    };
}

/// `debug_rl!(LIMIT, [target: "module",] "format", ...)`: a rate-limited DBG message.
#[macro_export]
macro_rules! debug_rl {
    ($limit:expr, $($arg:tt)+) => {
        $crate::rate_limited!($limit, $crate::tracing::Level::DEBUG, $($arg)+)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_then_rate_then_report() {
        let limit = RateLimit::new(60, 3); // one a second
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for _ in 0..3 {
            assert_eq!(limit.check_at(at(0)), Admission::Log);
        }
        assert_eq!(limit.check_at(at(100)), Admission::Drop);
        assert_eq!(limit.check_at(at(999)), Admission::Drop);
        let Admission::LogAfter(dropped) = limit.check_at(at(4_100)) else {
            panic!("the bucket has refilled");
        };
        assert_eq!(
            dropped.to_string(),
            "Dropped 2 log messages in last 4 seconds (most recently, 3 seconds ago) due to \
             excessive rate"
        );
        // 4.1 seconds saved three messages (the capacity); one is spent.
        assert_eq!(limit.check_at(at(4_100)), Admission::Log);
        assert_eq!(limit.check_at(at(4_100)), Admission::Log);
        assert_eq!(limit.check_at(at(4_100)), Admission::Drop);
    }

    #[test]
    fn clock_that_runs_backwards_and_empty_buckets_are_harmless() {
        let limit = RateLimit::new(u32::MAX, u32::MAX);
        let now = Instant::now() + Duration::from_secs(10);
        assert_eq!(limit.check_at(now), Admission::Log);
        assert_eq!(limit.check_at(now - Duration::from_secs(5)), Admission::Log);
        assert_eq!(RateLimit::new(10, 0).check_at(now), Admission::Drop);
    }
}
