// SPDX-License-Identifier: Apache-2.0
//! Checks whether another program deleted the datapath or a port, and makes it again.

use crate::instance::Instance;
use crate::kernel_datapath::KernelDatapath;
use crate::port;
use crate::vport::{Kind, Vport};
use datapath::Datapath;
use rustix::io::Errno;
use std::collections::BTreeSet;

impl KernelDatapath {
    /// Makes again what another program deleted. Does nothing when the last inspection was less than
    /// a second ago. Megaflows come back by the next sweep.
    pub(crate) fn inspect(&self) {
        let shared = self.shared();
        if !self.inspection.is_due(shared.clock.now()) {
            return;
        }
        let mut ports = self.port_table();
        if self.is_stopped() {
            return;
        }
        let there: BTreeSet<u32> = match shared.vports() {
            Ok(all) => all.into_iter().map(|vport| vport.number).collect(),
            Err(error) if error.errno() == Some(Errno::NODEV.raw_os_error()) => {
                if !self.make_again() {
                    return;
                }
                BTreeSet::new()
            }
            Err(error) => {
                tracing::debug!(
                    target: "dpif_netlink", "{}: ports cannot be read ({error})", self.name(),
                );
                return;
            }
        };
        for port in ports.open.values_mut() {
            let number = shared.numbering.to_kernel(port.info.number);
            let Some(number) = number.filter(|number| !there.contains(number)) else { continue };
            let Some(kind) = port::kind_of(port.info.kind) else { continue };
            let vport = Vport { number, name: port.info.name.clone(), kind };
            match shared.add_vport(&vport) {
                Ok(()) => tracing::warn!(
                    target: "dpif_netlink",
                    "{}: another program has removed port {}, which is added again: see that no \
                     second ovs-vswitchd runs",
                    self.name(),
                    vport.name,
                ),
                // Its device is gone, which the switch notices elsewhere, or has another owner.
                Err(error) => {
                    tracing::debug!(
                        target: "dpif_netlink",
                        "{}: port {} stays away ({error})", self.name(), vport.name,
                    );
                    continue;
                }
            }
            if kind == Kind::Internal {
                // The device is another one of the same name.
                port.device = port::open(&vport.name, kind).ok();
                if let Err(error) = port.configure() {
                    tracing::warn!(
                        target: "dpif_netlink",
                        "{}: {} lacks its address or MTU ({error}); set them by \"ip link set\"",
                        self.name(),
                        vport.name,
                    );
                }
            }
        }
    }

    /// Makes the datapath again, with its meters. False when that cannot be done.
    fn make_again(&self) -> bool {
        let shared = self.shared();
        let name = self.name().trim_start_matches("system@");
        let made = shared.with_socket(|socket| {
            let made = Instance::open(socket, &shared.families, name, &shared.by_cpu);
            Ok(made.map_err(|error| error.to_string()))
        });
        match made.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(instance) => {
                tracing::warn!(
                    target: "dpif_netlink",
                    "{}: another program has deleted the datapath, which is made again: see that no \
                     second ovs-vswitchd runs",
                    self.name(),
                );
                shared.set_datapath(instance.ifindex);
                self.set_meters();
                true
            }
            Err(error) => {
                tracing::debug!(target: "dpif_netlink", "{}: {error}", self.name());
                false
            }
        }
    }
}
