// SPDX-License-Identifier: Apache-2.0
//! Packet threads on cores, and the load of their receive queues.

use crate::tools::{SOON, pair};
use slipswitch_tests::harness::{Flood, stranger, wait_until};
use std::time::Duration;

/// Time for two measurements of loads.
const MEASURED: Duration = Duration::from_secs(25);

#[test]
fn queues_of_threads_on_cores_show_their_load_and_move() {
    let Some((switch, a, b)) = pair() else { return };
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    for port in ["h1", "h2", "h3"] {
        switch.vsctl(&format!("set interface {port} other_config:tier=userspace"));
    }
    let pin = |core: u32| {
        switch.vsctl(&format!(
            "set interface h3 other_config:pmd-rxq-affinity=0:{core} \
             -- set Open_vSwitch . other_config:pmd-cpu-mask=3"
        ));
    };
    pin(1);
    let show = || switch.appctl("dpif-netdev/pmd-rxq-show -secs 5");
    // The paragraph of a core.
    let of_core = |core: u32| {
        let text = show();
        let title = format!("core_id {core}:\n");
        let paragraph = text.split("pmd thread numa_id 0 ").find_map(|p| p.strip_prefix(&*title));
        paragraph.unwrap_or_default().to_owned()
    };
    let is_alone = || {
        let one = of_core(1);
        one.contains("isolated : true") && one.contains("port: h3") && !one.contains("port: h1")
    };
    assert!(wait_until(SOON, is_alone), "{}", show());
    assert!(of_core(0).contains("port: h1") && of_core(0).contains("port: h2"), "{}", show());
    let flood = Flood::start(&c, 7, stranger);
    let is_loaded = || {
        let usage = of_core(1).split("pmd usage:").nth(1).map(str::trim_start).map(str::to_owned);
        let percent = usage.and_then(|text| text.split(" %").next()?.trim().parse::<u32>().ok());
        percent.is_some_and(|percent| percent > 0)
    };
    assert!(wait_until(MEASURED, is_loaded), "{}", show());
    drop(flood);
    // Without isolation the other queues may come to this core, and do.
    switch.vsctl(
        "set Open_vSwitch . other_config:pmd-rxq-isolate=false other_config:pmd-rxq-assign=roundrobin",
    );
    assert_eq!(switch.appctl("dpif-netdev/pmd-rxq-rebalance"), "");
    let is_shared =
        || !of_core(1).contains("isolated : true") && of_core(1).matches("port: h").count() == 2;
    assert!(wait_until(SOON, is_shared), "{}", show());
    assert!(a.reaches("10.0.0.2", SOON) && b.reaches("10.0.0.1", SOON));
    // Without a mask one thread is enough.
    switch.vsctl("remove Open_vSwitch . other_config pmd-cpu-mask");
    assert!(wait_until(SOON, || show().contains("main thread:")), "{}", show());
    assert!(a.reaches("10.0.0.2", SOON));
    // A core without a thread is in the log; nothing else is.
    let warnings = switch.warnings();
    assert!(
        warnings.iter().all(|line| line.contains("pmd-rxq-affinity names core 1")),
        "{warnings:?}"
    );
}
