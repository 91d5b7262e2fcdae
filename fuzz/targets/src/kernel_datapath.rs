// SPDX-License-Identifier: Apache-2.0
//! Messages of `openvswitch.ko`: upcalls, and megaflows of a dump.

use datapath_kernel::family::Body;
use datapath_kernel::packet_message::{self, Cause};
use datapath_kernel::{Numbering, actions, cookie, flow_message, instance, keys, vport};

/// The kernel's port 0 is the switch's port 1,000.
const NUMBERING: Numbering = Numbering { first: 1000 };

pub fn run(bytes: &[u8]) {
    if let Some(received) = packet_message::decode(bytes, NUMBERING) {
        assert!(received.packet.len() <= bytes.len());
        if let Cause::Action(userdata) = received.cause {
            let again = cookie::encode(&userdata);
            assert_eq!(cookie::decode(&again), Some(userdata));
        }
    }
    let Some(body) = Body::decode(bytes) else { return };
    flow_message::decode_stats(&body);
    instance::decode_stats(&body);
    vport::Vport::decode(&body);
    let Some(flow) = flow_message::decode(&body, NUMBERING) else { return };
    // A megaflow that is read and can be written is the same when it is read again.
    let matching = NUMBERING.match_to_kernel(&flow.matching);
    if let Some(Ok(encoded)) = matching.map(|matching| keys::encode(&matching)) {
        let again = keys::decode_match(&encoded.key, &encoded.mask);
        let again = again.map(|matching| NUMBERING.of_kernel(&matching));
        let again = again.expect("what is written is read");
        assert!(flow.matching.matches(again.key()), "{:?}\n{again:?}", flow.matching);
    }
    if let Ok(encoded) = actions::encode(&flow.actions, NUMBERING) {
        assert_eq!(actions::decode(&encoded, NUMBERING).as_deref(), Some(&*flow.actions));
    }
}
