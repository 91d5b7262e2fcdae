// SPDX-License-Identifier: Apache-2.0
//! Queues: configuration and statistics.

use crate::PortNo;
use std::time::Duration;

/// Configuration of a queue (OFPT_QUEUE_GET_CONFIG_REPLY, OFPMP_QUEUE_DESC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The port.
    pub port: PortNo,
    /// The queue.
    pub queue: u32,
    /// Guaranteed rate in tenths of a percent; above 1000 is disabled; `None` when not set.
    pub min_rate: Option<u16>,
    /// Highest rate in tenths of a percent; above 1000 is disabled; `None` when not set.
    pub max_rate: Option<u16>,
}

/// OFPST_QUEUE request, OFPMP_QUEUE_DESC request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRequest {
    /// The port; [`PortNo::ALL`] (1.0) and [`PortNo::NONE`] (1.1+) for all: always given
    /// as [`PortNo::NONE`] here.
    pub port: PortNo,
    /// The queue; [`QueueRequest::ALL`] for all.
    pub queue: u32,
}

impl QueueRequest {
    /// All queues.
    pub const ALL: u32 = 0xffff_ffff;
}

/// Statistics of a queue. `u64::MAX` is "unknown" for every counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The port.
    pub port: PortNo,
    /// The queue.
    pub queue: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped because of overrun.
    pub tx_errors: u64,
    /// How long it has been there (1.3+); `None` when unknown.
    pub duration: Option<Duration>,
}
