// SPDX-License-Identifier: Apache-2.0
//! Statistics of devices whose packets a provider takes, or sends past the device, uncounted.

use crate::slots::Slots;
use datapath::PortNo;
use netdev::{
    Device, DeviceStats, Kind, LinkSource, OwnDrops, Policing, QosReport, QosRequest, QueueStats,
    Reception, Status,
};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A device whose statistics include the providers' counts.
struct Counted {
    device: Arc<dyn Device>,
    slots: Arc<Slots>,
    port: PortNo,
}

/// Returns `device` with the counts that providers have of packets which the device does not count:
/// those providers that are there when the statistics are read.
pub(crate) fn counted(device: Arc<dyn Device>, slots: Arc<Slots>, port: PortNo) -> Arc<dyn Device> {
    if slots.iter().next().is_none() { device } else { Arc::new(Counted { device, slots, port }) }
}

fn plus(of_device: Option<u64>, more: u64) -> Option<u64> {
    of_device.map(|n| n.wrapping_add(more))
}

impl Device for Counted {
    fn name(&self) -> &str {
        self.device.name()
    }
    fn kind(&self) -> Kind {
        self.device.kind()
    }
    fn ifindex(&self) -> Option<u32> {
        self.device.ifindex()
    }
    fn status(&self) -> io::Result<Status> {
        self.device.status()
    }
    fn stats(&self) -> io::Result<DeviceStats> {
        let mut stats = self.device.stats()?;
        for (_, provider) in self.slots.present() {
            let counts = provider.port_counts(self.port);
            stats.rx_packets = plus(stats.rx_packets, counts.rx_packets);
            stats.rx_bytes = plus(stats.rx_bytes, counts.rx_bytes);
            stats.tx_packets = plus(stats.tx_packets, counts.tx_packets);
            stats.tx_bytes = plus(stats.tx_bytes, counts.tx_bytes);
            stats.rx_policed = plus(stats.rx_policed, counts.rx_policed);
        }
        Ok(stats)
    }
    fn custom_counters(&self) -> Vec<(String, u64)> {
        self.device.custom_counters()
    }
    fn own_drops(&self) -> OwnDrops {
        self.device.own_drops()
    }
    fn set_link_source(&self, source: LinkSource) {
        self.device.set_link_source(source);
    }
    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.device.set_mtu(mtu)
    }
    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.device.set_mac(mac)
    }
    fn set_admin_up(&self, up: bool) -> io::Result<()> {
        self.device.set_admin_up(up)
    }
    fn set_policing(&self, policing: Policing) -> io::Result<()> {
        self.device.set_policing(policing)
    }
    fn set_qos(&self, qos: Option<&QosRequest>) -> io::Result<Vec<String>> {
        self.device.set_qos(qos)
    }
    fn qos(&self) -> Option<QosReport> {
        self.device.qos()
    }
    fn qos_types(&self) -> &'static [&'static str] {
        self.device.qos_types()
    }
    fn queue_stats(&self, queue: u32) -> Option<QueueStats> {
        self.device.queue_stats(queue)
    }
    fn set_receiving(&self, reception: Reception) -> io::Result<()> {
        self.device.set_receiving(reception)
    }
    fn set_filter(&self, filter: BorrowedFd<'_>) -> io::Result<()> {
        self.device.set_filter(filter)
    }
    fn set_persistent(&self, owner: Option<&str>) -> io::Result<()> {
        self.device.set_persistent(owner)
    }
    fn transmit_queues(&self) -> Vec<u32> {
        self.device.transmit_queues()
    }
}
