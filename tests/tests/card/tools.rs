// SPDX-License-Identifier: Apache-2.0
//! A switch on the card in software, with hosts at its cables.

use slipswitch_tests::harness::{
    Host, Kind, Mode, Switch, skip, wait_until, without_root, without_tool,
};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long something may take that should be there at once.
pub const SOON: Duration = Duration::from_secs(10);

/// The machine has one card.
static CARD: Mutex<()> = Mutex::new(());

/// A switch with a bridge `br0` on three ports of the card. The hosts 10.0.0.1, 10.0.0.2 and 10.0.0.3
/// are at their cables.
pub struct Site {
    pub switch: Switch,
    pub a: Host,
    pub b: Host,
    _c: Host,
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// Returns the module for the running kernel; `None`, after saying so, where there is none.
fn module() -> Option<PathBuf> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cards = std::env::var_os("SLIPSWITCH_TEST_CARD").map(PathBuf::from);
    let module = cards.map(|cards| cards.join(release.trim()).join("swcard.ko"));
    let module = module.filter(|module| module.is_file());
    if module.is_none() {
        skip("no card in software for this kernel: `cargo xtask vm` builds it for its guests");
    }
    module
}

fn run(line: &str) {
    let status = Command::new("sh").args(["-c", line]).status();
    assert!(status.is_ok_and(|status| status.success()), "{line}");
}

impl Site {
    /// Loads the card with these parameters, and starts a switch on it.
    pub fn new(parameters: &str) -> Option<Site> {
        if without_root() || without_tool(&["ip", "tc", "ping", "fping", "insmod", "ovs-vsctl"]) {
            return None;
        }
        let module = module()?;
        let one_at_a_time = CARD.lock().unwrap_or_else(PoisonError::into_inner);
        // Devices of an earlier test leave with the module, wherever they are.
        run(
            "modprobe -a cls_flower act_mirred act_vlan act_gact act_police act_tunnel_key vxlan sch_ingress",
        );
        run(&format!(
            "! lsmod | grep -q '^swcard ' || rmmod swcard
             insmod {} ports=3 {parameters}",
            module.display()
        ));
        let switch = Switch::start(Kind::under_test(), Mode::Real);
        switch.vsctl("set Open_vSwitch . other_config:hw-offload=true");
        switch.vsctl("add-br br0");
        let host = |n: u32| {
            let (port, wire) = (format!("card{n}"), format!("wire{n}"));
            let address = format!("10.0.0.{}/24", n + 1);
            let host = Host::wired(switch.netns(), &port, &wire, &address);
            switch.vsctl(&format!("add-port br0 {port}"));
            host
        };
        let (a, b, c) = (host(0), host(1), host(2));
        Some(Site { switch, a, b, _c: c, _one_at_a_time: one_at_a_time })
    }

    /// Waits until flows between the first two hosts are stable.
    #[track_caller]
    pub fn warm(&self) {
        assert!(self.a.reaches("10.0.0.2", SOON), "{}", self.switch.story());
        self.a.ping("10.0.0.2", 15);
    }

    /// The filters of the kernel at a port, as `tc` shows them.
    pub fn filters(&self, port: &str) -> String {
        self.switch.netns().sh(&format!("tc -s filter show dev {port} ingress || true"))
    }

    /// A number of the card: `rules`, `hits` or `misses`.
    pub fn debug(&self, name: &str) -> u64 {
        run("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug");
        let text = fs::read_to_string(format!("/sys/kernel/debug/swcard/{name}"));
        text.ok().and_then(|text| text.trim().parse().ok()).expect("a number of the card")
    }

    /// The verbose lines of the megaflows that hold all of `parts`. Each ends with a comma, so that
    /// `dp:tc,` is the card's and no part of `dp:tcx`.
    pub fn megaflows(&self, parts: &[&str]) -> Vec<String> {
        let text = self.switch.appctl("dpctl/dump-flows -m");
        let lines = text.lines().map(|line| format!("{line},"));
        lines.filter(|line| parts.iter().all(|part| line.contains(part))).collect()
    }
}

/// Sends packets until a megaflow's line holds all of `parts`: megaflows without packets end.
#[track_caller]
pub fn sees(site: &Site, parts: &[&str]) {
    let seen = wait_until(SOON, || {
        site.a.ping("10.0.0.2", 2);
        !site.megaflows(parts).is_empty()
    });
    assert!(
        seen,
        "no megaflow with {parts:?}:\n{}\n{}\n{}\n{}",
        site.megaflows(&[]).join("\n"),
        site.filters("card0"),
        site.switch.appctl("dpctl/offload-stats-show"),
        site.switch.story(),
    );
}
