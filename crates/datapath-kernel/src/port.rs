// SPDX-License-Identifier: Apache-2.0
//! The control side of the kernel's ports.

use crate::vport::Kind;
use datapath::{PortInfo, PortKind};
use netdev::{
    Device, DeviceStats, LinkSource, OpenError, OpenSpec, OwnDrops, Policing, QosReport,
    QosRequest, QueueStats, Status,
};
use std::io;
use std::sync::Arc;

/// A port.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) info: PortInfo,
    pub(crate) device: Arc<dyn Device>,
}

/// Returns the kernel's kind of a port; `None`: the kernel's datapath has no such ports.
pub(crate) fn kind_of(kind: PortKind) -> Option<Kind> {
    match kind {
        PortKind::Vport => Some(Kind::Device),
        PortKind::InternalVport => Some(Kind::Internal),
        PortKind::System
        | PortKind::Internal
        | PortKind::Tap
        | PortKind::AfXdp
        | PortKind::AfXdpNonPmd
        | PortKind::Dummy
        | PortKind::DummyInternal
        | PortKind::DummyPmd
        | PortKind::Patch
        | PortKind::Tunnel(_)
        | PortKind::Underlay => None,
    }
}

/// A device whose packets the kernel's datapath has.
struct VportDevice {
    inner: Arc<dyn Device>,
    kind: netdev::Kind,
}

/// Opens the control side of an interface. Its socket receives nothing.
///
/// # Errors
///
/// There is no such interface, or the system's error.
pub(crate) fn open(name: &str, kind: Kind) -> Result<Arc<dyn Device>, OpenError> {
    let spec =
        OpenSpec { is_shared: true, muted: true, ..OpenSpec::new(name, netdev::Kind::System) };
    let inner = netdev::open(&spec)?.device;
    let kind = match kind {
        Kind::Internal => netdev::Kind::Internal,
        Kind::Device | Kind::Other(_) => netdev::Kind::System,
    };
    Ok(Arc::new(VportDevice { inner, kind }))
}

impl Device for VportDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> netdev::Kind {
        self.kind
    }

    fn ifindex(&self) -> Option<u32> {
        self.inner.ifindex()
    }

    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn stats(&self) -> io::Result<DeviceStats> {
        let of_device = self.inner.stats()?;
        if self.kind != netdev::Kind::Internal {
            return Ok(of_device);
        }
        // The host sends what the switch receives.
        Ok(DeviceStats {
            rx_packets: of_device.tx_packets,
            tx_packets: of_device.rx_packets,
            rx_bytes: of_device.tx_bytes,
            tx_bytes: of_device.rx_bytes,
            rx_errors: of_device.tx_errors,
            tx_errors: of_device.rx_errors,
            rx_dropped: of_device.tx_dropped,
            tx_dropped: of_device.rx_dropped,
            ..DeviceStats::default()
        })
    }

    fn custom_counters(&self) -> Vec<(String, u64)> {
        self.inner.custom_counters()
    }

    fn own_drops(&self) -> OwnDrops {
        self.inner.own_drops()
    }

    fn set_link_source(&self, source: LinkSource) {
        self.inner.set_link_source(source);
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.inner.set_mtu(mtu)
    }

    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.inner.set_mac(mac)
    }

    fn set_admin_up(&self, up: bool) -> io::Result<()> {
        self.inner.set_admin_up(up)
    }

    fn set_policing(&self, policing: Policing) -> io::Result<()> {
        match policing.is_on() {
            false => Ok(()),
            true => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn set_qos(&self, qos: Option<&QosRequest>) -> io::Result<Vec<String>> {
        match qos {
            Some(qos) if !self.qos_types().contains(&&*qos.kind) => {
                self.inner.set_qos(None)?;
                Err(io::ErrorKind::Unsupported.into())
            }
            _ => self.inner.set_qos(qos),
        }
    }

    fn qos(&self) -> Option<QosReport> {
        self.inner.qos()
    }

    /// The kernel sends past the switch's own policers.
    fn qos_types(&self) -> &'static [&'static str] {
        let (_, disciplines) = self.inner.qos_types().split_last().unwrap_or((&"", &[]));
        disciplines
    }

    fn transmit_queues(&self) -> Vec<u32> {
        self.inner.transmit_queues()
    }

    fn queue_stats(&self, queue: u32) -> Option<QueueStats> {
        self.inner.queue_stats(queue)
    }

    /// The kernel keeps an internal port's interface until the port is removed.
    fn set_persistent(&self, owner: Option<&str>) -> io::Result<()> {
        let _ = owner;
        Ok(())
    }
}
