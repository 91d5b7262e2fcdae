// SPDX-License-Identifier: Apache-2.0
//! The control side of the kernel's ports.

use crate::vport::Kind;
use datapath::{PortInfo, PortKind, TunnelKind};
use netdev::{
    Device, DeviceStats, LinkSource, OpenError, OpenSpec, OwnDrops, Policing, QosReport,
    QosRequest, QueueStats, Status, TunnelDeviceSpec,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A port.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) info: PortInfo,
    /// The control side of the device; `None` for a tunnel port.
    pub(crate) device: Option<Arc<dyn Device>>,
    /// The address that an internal port gets when it is made.
    pub(crate) mac: Option<[u8; 6]>,
    /// Its MTU, too.
    pub(crate) mtu: Option<u32>,
}

impl Port {
    /// Gives the new device of an internal port its address and its MTU.
    pub(crate) fn configure(&self) -> io::Result<()> {
        let Some(device) = &self.device else { return Ok(()) };
        self.mac.map_or(Ok(()), |mac| device.set_mac(mac))?;
        self.mtu.map_or(Ok(()), |mtu| device.set_mtu(mtu))
    }
}

/// Returns the kernel's kind of a port; `None`: the kernel's datapath has no such ports.
pub(crate) fn kind_of(kind: PortKind) -> Option<Kind> {
    match kind {
        PortKind::Vport | PortKind::TunnelVport(_) => Some(Kind::Device),
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

/// Returns true when the kernel's datapath has tunnels of this kind.
pub const fn has_tunnels(kind: TunnelKind) -> bool {
    match kind {
        TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gre | TunnelKind::Ip6Gre => true,
        TunnelKind::Bareudp
        | TunnelKind::Erspan
        | TunnelKind::Gtpu
        | TunnelKind::Ip6Erspan
        | TunnelKind::Lisp
        | TunnelKind::Srv6
        | TunnelKind::Stt => false,
    }
}

/// Returns the device beneath a tunnel port with these options (`dst_port`, `exts`); `None` for
/// kinds without [`has_tunnels`], and for a `dst_port` that is no number.
pub(crate) fn tunnel_device(
    kind: TunnelKind,
    options: &BTreeMap<String, String>,
) -> Option<TunnelDeviceSpec> {
    let port = || options.get("dst_port")?.parse().ok();
    let gbp = options.get("exts").is_some_and(|exts| exts == "gbp");
    match kind {
        TunnelKind::Vxlan => Some(TunnelDeviceSpec::Vxlan { port: port()?, gbp }),
        TunnelKind::Geneve => Some(TunnelDeviceSpec::Geneve { port: port()? }),
        TunnelKind::Gre => Some(TunnelDeviceSpec::Gre),
        TunnelKind::Ip6Gre => Some(TunnelDeviceSpec::Ip6Gre),
        TunnelKind::Bareudp
        | TunnelKind::Erspan
        | TunnelKind::Gtpu
        | TunnelKind::Ip6Erspan
        | TunnelKind::Lisp
        | TunnelKind::Srv6
        | TunnelKind::Stt => None,
    }
}

/// Returns true for the name of a tunnel port, which is that of its device.
pub(crate) fn is_tunnel_port(name: &str) -> bool {
    let is_number = |port: &str| port.parse::<u16>().is_ok();
    let port = name.strip_prefix("vxlan_sys_").or_else(|| name.strip_prefix("genev_sys_"));
    matches!(name, "gre_sys" | "ip6gre_sys") || port.is_some_and(is_number)
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

    /// [`crate::KernelDatapath`] limits them in the kernel.
    fn set_policing(&self, _: Policing) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
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
