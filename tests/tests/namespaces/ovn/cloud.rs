// SPDX-License-Identifier: Apache-2.0
//! OVN's daemons: a central host with the databases, and a controller for each switch.

use super::super::tools::SOON;
use slipswitch_tests::harness::{
    Host, Kind, Mode, Process, Sandbox, Switch, patient, wait_until, without_privilege,
    without_tool,
};
use std::time::Duration;

/// In place of an address that will come later.
const NONE: &str = "169.254.1.1/32";

/// Databases, northd, and switches that controllers drive. Everything talks by sockets in the
/// directories of the sandboxes, so the central host needs no namespace.
pub struct Cloud {
    pub chassis: Vec<Switch>,
    // Before the sandbox: they end while their directory is there.
    daemons: Vec<Process>,
    central: Sandbox,
}

/// Settings of a switch that its controller reads.
pub struct Chassis<'a> {
    /// The address of its tunnels.
    pub address: &'a str,
    /// Further commands for `ovs-vsctl`, each with its `--`.
    pub commands: &'a str,
}

impl Cloud {
    /// Starts OVN with a switch for each entry; `None`, after saying so, where that is not possible.
    pub fn new(chassis: &[Chassis<'_>]) -> Option<Cloud> {
        let tools = ["ovn-nbctl", "ovn-sbctl", "ovn-northd", "ovn-controller", "busybox", "curl"];
        if without_privilege() || without_tool(&tools) {
            return None;
        }
        let central = Sandbox::new();
        let mut daemons = Vec::new();
        for (name, schema) in [("nb", "ovn-nb"), ("sb", "ovn-sb")] {
            let created = central
                .sh(&format!("ovsdb-tool create {name}.db /usr/share/ovn/{schema}.ovsschema"));
            assert!(created.ok(), "{}", created.text());
            let (db, remote) = (format!("{name}.db"), format!("--remote=punix:{name}.sock"));
            let unixctl = format!("--unixctl={}", central.file(&format!("{name}.ctl")).display());
            let arguments = [&db, &remote, &unixctl, "-vconsole:off", "-vsyslog:off"];
            daemons.push(Process::start(&central, None, name, "ovsdb-server", &arguments));
            let init = format!("{} init", tool(&central, name));
            let answers = wait_until(SOON, || central.sh(&init).ok());
            assert!(
                answers,
                "{}{}",
                central.sh(&init).text(),
                central.read(&format!("{name}.err"))
            );
        }
        let database =
            |name: &str| format!("unix:{}", central.file(&format!("{name}.sock")).display());
        let northd = [
            &format!("OVN_RUNDIR={}", central.dir().display()),
            "ovn-northd",
            &format!("--ovnnb-db={}", database("nb")),
            &format!("--ovnsb-db={}", database("sb")),
            &format!("--unixctl={}", central.file("northd.ctl").display()),
            "-vconsole:info",
            "-vsyslog:off",
        ];
        daemons.push(Process::start(&central, None, "northd", "env", &northd));
        let southbound = database("sb");
        let mut cloud = Cloud { chassis: Vec::new(), daemons, central };
        for entry in chassis {
            cloud.add(entry, &southbound);
        }
        Some(cloud)
    }

    fn add(&mut self, entry: &Chassis<'_>, southbound: &str) {
        let switch = Switch::start(Kind::under_test(), Mode::Real);
        let name = format!("hv{}", self.chassis.len() + 1);
        let Chassis { address, commands } = entry;
        switch.vsctl(&format!(
            "set open . external_ids:system-id={name} external_ids:hostname={name} \
             external_ids:ovn-remote={southbound} external_ids:ovn-encap-type=geneve \
             external_ids:ovn-encap-ip={address} external_ids:ovn-bridge-datapath-type=netdev \
             {commands}"
        ));
        let dir = switch.sandbox().dir().display();
        let controller = [
            &format!("OVN_RUNDIR={dir}"),
            "ovn-controller",
            &format!("unix:{dir}/db.sock"),
            "-vconsole:info",
            "-vsyslog:off",
        ];
        let netns = Some(switch.netns());
        let process = Process::start(switch.sandbox(), netns, "controller", "env", &controller);
        // Dropped before the switch's directory is.
        self.daemons.push(process);
        self.chassis.push(switch);
    }

    /// `ovn-nbctl ARGUMENTS`, which has to succeed; its output.
    #[track_caller]
    pub fn nbctl(&self, arguments: &str) -> String {
        self.ctl("nb", arguments)
    }

    #[track_caller]
    fn ctl(&self, database: &str, arguments: &str) -> String {
        let line = format!("{} {arguments}", tool(&self.central, database));
        let output = self.central.sh(&line);
        assert!(output.ok(), "{line}: {}\n{}", output.text(), self.story());
        output.stdout
    }

    /// Waits until all chassis have the flows of what was asked for so far.
    #[track_caller]
    pub fn sync(&self) {
        let wait = patient(Duration::from_secs(20)).as_secs();
        self.ctl("nb", &format!("--timeout={wait} --wait=hv sync"));
    }

    /// Logs of the controllers and switches, and the chassis that OVN knows, for a failure.
    pub fn story(&self) -> String {
        let chassis = self.chassis.iter().map(|switch| {
            format!("{}\n{}", switch.sandbox().read("controller.err"), switch.story())
        });
        let shown = self.central.sh(&format!("{} show", tool(&self.central, "sb")));
        chassis
            .chain([self.central.read("northd.err"), shown.text()])
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// A container on a chassis, without an address when `address` is empty. `port` is the name of its logical port, and of its device at the switch.
    pub fn container(&self, chassis: usize, port: &str, mac: &str, address: &str) -> Host {
        let switch = &self.chassis[chassis];
        let host = Host::new(switch.netns(), port, if address.is_empty() { NONE } else { address });
        if address.is_empty() {
            host.netns.sh("ip addr flush dev eth0");
        }
        // 58 bytes less than usual are left by Geneve with OVN's option.
        host.netns.sh(&format!("ip link set eth0 address {mac} mtu 1442"));
        host.finish_checksums();
        switch.vsctl(&format!(
            "add-port br-int {port} -- set interface {port} external_ids:iface-id={port}"
        ));
        host
    }
}

fn tool(central: &Sandbox, database: &str) -> String {
    format!("ovn-{database}ctl --db=unix:{}", central.file(&format!("{database}.sock")).display())
}
