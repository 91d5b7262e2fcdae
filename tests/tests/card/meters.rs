// SPDX-License-Identifier: Apache-2.0
//! Meters of flows in the card.

use crate::tools::{SOON, Site, sees};
use slipswitch_tests::harness::wait_until;

/// Returns packets and drops of the meter 1 by `ovs-ofctl meter-stats`.
fn meter(site: &Site) -> (u64, u64) {
    let text = site.switch.ofctl("-O OpenFlow13 meter-stats br0 meter=1");
    let number = |name: &str| {
        let rest = text.split_once(name).map(|(_, rest)| rest).unwrap_or_default();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{name} in {text}"))
    };
    let drops = text.rsplit_once("packet_count:").map(|(_, rest)| rest).unwrap_or_default();
    let drops: String = drops.chars().take_while(char::is_ascii_digit).collect();
    (number("packet_in_count:"), drops.parse().unwrap_or_else(|_| panic!("drops in {text}")))
}

/// Has the flows of both directions share the meter 1, and waits until they are in the card.
fn metered(site: &Site, meter: &str) {
    site.switch.ofctl(&format!("-O OpenFlow13 add-meter br0 meter=1,{meter}"));
    site.switch
        .ofctl("-O OpenFlow13 add-flow br0 priority=10,icmp,in_port=card0,actions=meter:1,card1");
    site.switch
        .ofctl("-O OpenFlow13 add-flow br0 priority=10,icmp,in_port=card1,actions=meter:1,card0");
    site.switch.ofctl("-O OpenFlow13 add-flow br0 priority=1,actions=NORMAL");
    site.warm();
    for port in ["in_port(card0)", "in_port(card1)"] {
        sees(site, &[port, "icmp", "meter(", "offloaded:yes, dp:tc,"]);
    }
}

#[test]
fn flows_in_the_card_share_a_meter_and_it_counts_its_drops() {
    let Some(site) = Site::new("") else { return };
    metered(&site, "pktps,burst,stats,bands=type=drop,rate=10,burst_size=20");
    let filters = site.filters("card0");
    assert!(filters.contains("police 0x736") && filters.contains("in_hw_count 1"), "{filters}");
    let (packets, drops) = meter(&site);
    assert!(packets > 0);
    let hits = site.debug("hits");
    let answered = site.a.ping("10.0.0.2", 100);
    assert!((1..100).contains(&answered), "{answered} echoes");
    assert!(site.debug("hits") - hits > 100, "they meet the card");
    let counted = wait_until(SOON, || {
        let (p, d) = meter(&site);
        p >= packets + 100 && d >= drops + 100 - u64::from(answered)
    });
    assert!(counted, "{:?} after {:?}, {answered} echoes", meter(&site), (packets, drops));
    assert!(site.switch.counter("datapath_drop_meter") > 0);
}

#[test]
fn another_rate_reaches_flows_in_the_card() {
    let Some(site) = Site::new("") else { return };
    metered(&site, "kbps,burst,stats,bands=type=drop,rate=100000,burst_size=100000");
    assert_eq!(site.a.ping("10.0.0.2", 20), 20);
    site.switch.ofctl(
        "-O OpenFlow13 mod-meter br0 meter=1,kbps,burst,stats,bands=type=drop,rate=1,burst_size=1",
    );
    // A bucket of 125 bytes, which gains as many in a second.
    let slow = wait_until(SOON, || {
        !site.megaflows(&["in_port(card0)", "icmp", "dp:tc,"]).is_empty()
            && site.a.ping("10.0.0.2", 20) < 5
    });
    assert!(slow, "{}\n{}", site.filters("card0"), site.megaflows(&[]).join("\n"));
    assert!(site.filters("card0").contains("rate 1Kbit"), "{}", site.filters("card0"));
}

#[test]
fn a_meter_that_no_policer_does_keeps_its_flows_on_the_host() {
    let Some(site) = Site::new("") else { return };
    let meter = "bands=type=drop,rate=1000,burst_size=1000,type=drop,rate=2000,burst_size=2000";
    site.switch.ofctl(&format!("-O OpenFlow13 add-meter br0 meter=1,pktps,burst,stats,{meter}"));
    site.switch
        .ofctl("-O OpenFlow13 add-flow br0 priority=10,icmp,in_port=card0,actions=meter:1,card1");
    site.switch.ofctl("-O OpenFlow13 add-flow br0 priority=1,actions=NORMAL");
    site.warm();
    sees(&site, &["in_port(card0)", "meter(", "offloaded:partial", "unsupported-action"]);
    let stats = site.switch.appctl("dpctl/offload-stats-show");
    assert!(stats.contains("the meter has not one band"), "{stats}");
}
