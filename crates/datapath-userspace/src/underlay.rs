// SPDX-License-Identifier: Apache-2.0
//! Ports that the host's stack shares with the switch ([`PortKind::Underlay`]).
//!
//! The socket of such a port gets copies of the packets of tunnels, and the stack gets the packets as
//! well. While a port receives by its socket, a [`ServiceSink`] for each service keeps the stack from
//! answering that nobody listens. Where a faster tier receives, the stack gets none of the packets, and
//! there is no sink.
//!
//! [`PortKind::Underlay`]: datapath::PortKind::Underlay

use datapath::{PortNo, TunnelEndpoint};
use netdev::{Service, ServiceSink};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Errors of a host without IPv6 (`asm-generic/errno.h`).
const EAFNOSUPPORT: i32 = 97;
const EADDRNOTAVAIL: i32 = 99;

/// The services of tunnels, and the ports that receive them by their sockets. Under the lock under
/// which ports change.
#[derive(Debug, Default)]
pub(crate) struct SharedPorts {
    services: BTreeSet<Service>,
    receiving: BTreeSet<PortNo>,
    /// By service and family; `None`: another socket listens, or this host lacks the family.
    sinks: BTreeMap<(Service, bool), Option<ServiceSink>>,
}

impl SharedPorts {
    /// Returns the services whose packets these ports receive.
    pub(crate) fn services(&self) -> Vec<Service> {
        self.services.iter().copied().collect()
    }

    /// Sets the services. Returns false when they are the same as before.
    pub(crate) fn set_endpoints(&mut self, endpoints: &[TunnelEndpoint]) -> bool {
        let services: BTreeSet<Service> = endpoints.iter().map(|e| e.service).collect();
        let is_changed = services != self.services;
        self.services = services;
        self.open_sinks();
        is_changed
    }

    /// Notes whether a port receives by its socket.
    pub(crate) fn set_receiving(&mut self, port: PortNo, is_on: bool) {
        match is_on {
            true => self.receiving.insert(port),
            false => self.receiving.remove(&port),
        };
        self.open_sinks();
    }

    /// Opens the sinks that are needed now, and closes the others.
    fn open_sinks(&mut self) {
        if self.receiving.is_empty() {
            self.sinks.clear();
            return;
        }
        self.sinks.retain(|(service, _), _| self.services.contains(service));
        for service in &self.services {
            for is_ipv6 in [false, true] {
                let sink = self.sinks.entry((*service, is_ipv6));
                sink.or_insert_with(|| open(*service, is_ipv6));
            }
        }
    }
}

fn open(service: Service, is_ipv6: bool) -> Option<ServiceSink> {
    let error = match ServiceSink::open(service, is_ipv6) {
        Ok(sink) => return Some(sink),
        Err(error) => error,
    };
    let Service { protocol, port } = service;
    match error.raw_os_error() {
        Some(EAFNOSUPPORT | EADDRNOTAVAIL) => {} // the host has no IPv6
        _ if error.kind() == io::ErrorKind::AddrInUse => tracing::info!(
            target: "dpif_netdev",
            "UDP port {port} is in use by another program, which gets the packets of tunnels, too",
        ),
        _ => tracing::warn!(
            target: "dpif_netdev",
            "no socket can be opened for IP protocol {protocol}, port {port} ({error}): this host \
             answers packets of tunnels that nobody listens",
        ),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16) -> TunnelEndpoint {
        let service = Service { protocol: 17, port };
        TunnelEndpoint { address: [10, 0, 0, 1].into(), service }
    }

    fn sinks_follow() {
        let mut shared = SharedPorts::default();
        assert!(shared.set_endpoints(&[endpoint(4789), endpoint(6081)]));
        assert!(!shared.set_endpoints(&[endpoint(6081), endpoint(4789)]));
        assert!(shared.sinks.is_empty(), "no port receives");
        let is_free = |port: u16| std::net::UdpSocket::bind(("0.0.0.0", port)).is_ok();
        shared.set_receiving(PortNo(3), true);
        assert!(!is_free(4789) && !is_free(6081));
        shared.set_receiving(PortNo(4), true);
        shared.set_receiving(PortNo(3), false);
        assert!(!is_free(4789), "one port is left");
        assert!(shared.set_endpoints(&[endpoint(6081)]));
        assert!(is_free(4789) && !is_free(6081));
        shared.set_receiving(PortNo(4), false);
        assert!(is_free(6081));
    }

    #[test]
    fn sinks_are_there_while_a_port_receives() {
        testing::in_namespace_as_root(sinks_follow);
    }
}
