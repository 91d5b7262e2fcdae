// SPDX-License-Identifier: Apache-2.0
//! Texts in the syntax of datapaths (`dpctl`): flows and actions.

use flow::text::{no_names, no_numbers, odp};

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    flow_text(&text);
    action_text(&text);
}

fn flow_text(text: &str) {
    let Ok((key, mask)) = odp::parse(text, &no_numbers) else { return };
    assert_eq!(key, key.masked(&mask), "the key has no bit outside of the mask");
    odp::format(&key, &mask, odp::Style { verbose: true }, &no_names);
    let printed = odp::format(&key, &mask, odp::Style::default(), &no_names);
    // As in OVS, what is not printed reads as a frame without an Ethernet type, from a port.
    if mask.0.dl_type.get() == 0 || mask.0.recirc_id.get() == 0 {
        return;
    }
    let Ok((key2, mask2)) = odp::parse(&printed, &no_numbers) else {
        panic!("{printed} does not parse")
    };
    let again = odp::format(&key2, &mask2, odp::Style::default(), &no_names);
    assert_eq!(again, printed);
    assert_eq!((key2, mask2), (key, mask), "{printed}");
}

fn action_text(text: &str) {
    let Ok(list) = datapath::text::parse(text, &|_| None) else { return };
    let printed = datapath::text::format_plain(&list);
    match datapath::text::parse(&printed, &|_| None) {
        Ok(again) => assert_eq!(datapath::text::format_plain(&again), printed),
        Err(e) => panic!("{printed}: {e}"),
    }
}
