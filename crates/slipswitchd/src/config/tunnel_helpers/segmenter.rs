// SPDX-License-Identifier: Apache-2.0
//! Devices that segment packets for tunnels whose headers differ between segments. Without them such packets go
//! up.

use super::{Absent, RETRY, Report};
use crate::config::context::Context;
use crate::config::state::Remarks;
use bridge::tunnel::{Config, OrFlow};
use datapath::{TunnelKind, offload};
use netdev::SegmenterDevices;
use placement::PlacedDatapath;
use std::net::IpAddr;
use std::time::Instant;

/// Name of the packets, for people.
const TITLE: &str = "large packets that are segmented first";

/// The devices, or the reason why there are none.
#[derive(Debug, Default)]
pub(super) enum Segmenter {
    /// No tunnel needs them.
    #[default]
    Unneeded,
    Open(SegmenterDevices),
    Absent(Absent),
}

/// Returns true when each segment of packets of some tunnel needs a header of its own.
pub(super) fn is_wanted(context: &Context<'_>) -> bool {
    let mut ports = context.switch.bridges().flat_map(|bridge| bridge.ports.values());
    ports.any(|port| {
        port.dp_port.is_some() && port.tunnel.as_ref().is_some_and(|t| !t.is_kernel && differs(t))
    })
}

/// Returns true when headers of a tunnel may have checksums, which they have over IPv6, or sequence numbers.
fn differs(tunnel: &Config) -> bool {
    let has_checksum = tunnel.checksum || !matches!(tunnel.remote, OrFlow::Fixed(IpAddr::V4(_)));
    let is_numbered = tunnel.sequence
        || matches!(tunnel.kind, TunnelKind::Erspan | TunnelKind::Ip6Erspan | TunnelKind::Gtpu);
    has_checksum || is_numbered
}

/// Deletes the devices that an earlier daemon has left.
pub(super) fn discard(owner: &str) {
    if let Err(error) = SegmenterDevices::discard(owner) {
        tracing::warn!(target: "tunnel", "devices that an earlier daemon left for {TITLE} stay ({error})");
    }
}

impl Segmenter {
    /// Makes the devices, or removes them.
    pub(super) fn sync(
        &mut self,
        placed: &PlacedDatapath,
        is_wanted: bool,
        owner: &str,
        remarks: &mut Remarks,
    ) {
        let is_stale = match self {
            Segmenter::Unneeded => is_wanted,
            _ if !is_wanted => true,
            Segmenter::Open(devices) => !devices.are_up(),
            Segmenter::Absent(absent) => absent.is_due(),
        };
        if is_stale {
            std::mem::take(self).end(placed);
            if is_wanted {
                *self = Segmenter::make(placed, owner);
            }
        }
        if let Segmenter::Absent(absent) = self {
            absent.tell(remarks, &format!("{TITLE} run in userspace: {}", absent.reason));
        }
    }

    fn make(placed: &PlacedDatapath, owner: &str) -> Segmenter {
        let devices = match SegmenterDevices::open(owner) {
            Ok(devices) => devices,
            Err(error) => return Segmenter::Absent(Absent::new(&error)),
        };
        let (entrance, exit) = (devices.entrance(), devices.exit());
        match placed.set_segmenter(Some(&offload::Segmenter { entrance, exit })) {
            Ok(()) => {
                tracing::info!(target: "tunnel", "{} segments {TITLE}", devices.name());
                Segmenter::Open(devices)
            }
            Err(reason) => {
                Segmenter::Open(devices).end(placed);
                let until = Some(Instant::now() + RETRY);
                Segmenter::Absent(Absent { reason: reason.to_string(), is_ordinary: false, until })
            }
        }
    }

    /// Removes the devices.
    pub(super) fn end(self, placed: &PlacedDatapath) {
        let Segmenter::Open(devices) = self else { return };
        // No provider, no program.
        let _ = placed.set_segmenter(None);
        let name = devices.name().to_owned();
        if let Err(error) = devices.remove() {
            tracing::warn!(target: "tunnel", "{name} stays ({error}): ip link del {name} removes it");
        }
    }

    /// Returns a report; `None` when no tunnel needs the devices.
    pub(super) fn report(&self) -> Option<Report> {
        let text = match self {
            Segmenter::Unneeded => return None,
            Segmenter::Open(devices) => format!("{}, segments them", devices.name()),
            Segmenter::Absent(absent) => format!("none: {}", absent.reason),
        };
        Some(Report { title: TITLE.to_owned(), closed: false, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_whose_segments_differ() {
        let over = |remote: &str| {
            Config::new(TunnelKind::Geneve, OrFlow::Fixed(remote.parse().expect("an address")))
        };
        assert!(!differs(&over("192.0.2.1")));
        assert!(differs(&Config { checksum: true, ..over("192.0.2.1") }));
        assert!(differs(&over("2001:db8::1")));
        assert!(differs(&Config { sequence: true, ..over("192.0.2.1") }));
        assert!(differs(&Config { kind: TunnelKind::Erspan, ..over("192.0.2.1") }));
        assert!(differs(&Config { remote: OrFlow::Flow, ..over("192.0.2.1") }));
    }
}
