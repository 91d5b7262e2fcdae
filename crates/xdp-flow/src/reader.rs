// SPDX-License-Identifier: Apache-2.0
//! Filters of any program, as the kernel's messages describe them
//! (include/uapi/linux/rtnetlink.h, pkt_cls.h).

use datapath_tc::act::{self, Act};
use datapath_tc::filter::{ACTS, CHAIN, FIXED, FLAGS, IN_HW_COUNT, KIND, OPTIONS, counts, flag};
use datapath_tc::keys::Keys;
use netlink::attribute::{array, find, read};
use netlink::message::text;

/// The numbers that distinguish a filter from the others of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Chain; packets begin in 0.
    pub chain: u32,
    /// Lower ones are met first.
    pub priority: u16,
    /// Number of the filter within its priority.
    pub handle: u32,
}

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcFilter {
    /// Where it is.
    pub place: Place,
    /// Ethernet type that packets must have outermost, host integer; 3 (`ETH_P_ALL`) for any.
    pub protocol: u16,
    /// The classifier.
    pub kind: String,
    /// The content.
    pub body: Body,
    /// Packets that the kernel counts for it.
    pub packets: u64,
    /// Their bytes after the Ethernet header.
    pub bytes: u64,
}

/// The content of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A flower filter.
    Flower {
        /// The keys that are known.
        keys: Keys,
        /// An attribute that is not.
        unknown: Option<u16>,
        /// The actions; `None` when one is of an unknown kind or form.
        acts: Option<Vec<Act>>,
        /// A card has it.
        in_hw: bool,
    },
    /// The kernel does not run it: it is for cards only. Has the actions; `None` when one is of an
    /// unknown kind or form.
    CardOnly(Option<Vec<Act>>),
    /// A filter of another classifier.
    Other {
        /// A card has it.
        in_hw: bool,
    },
}

impl Body {
    /// Whether a card may hand packets over after a part of the filter: after it went to a chain, or
    /// at an action that the card does not run. The kernel continues from there.
    pub fn hands_over(&self) -> bool {
        match self {
            Body::Flower { in_hw: true, acts, .. } | Body::CardOnly(acts) => {
                let is_part = |act: &Act| matches!(act, Act::Goto(_) | Act::Ct(_) | Act::ClearCt);
                acts.as_ref().is_none_or(|acts| acts.iter().any(is_part))
            }
            Body::Flower { in_hw: false, .. } => false,
            Body::Other { in_hw } => *in_hw,
        }
    }
}

/// The attribute with the flags of a classifier (include/uapi/linux/pkt_cls.h).
fn flags_attribute(kind: &str) -> Option<u16> {
    match kind {
        "flower" => Some(FLAGS),
        "matchall" => Some(3),
        "bpf" => Some(9),
        "u32" => Some(11),
        _ => None,
    }
}

/// Reads the message of RTM_NEWTFILTER, after its netlink header. `None` when it is cut short, and for
/// the head of a list of flower filters, which is no filter.
pub fn filter(message: &[u8]) -> Option<TcFilter> {
    let (fixed, attributes) = message.split_at_checked(FIXED)?;
    let word = |at: usize| fixed.get(at..).and_then(array).map(u32::from_ne_bytes);
    let (handle, info) = (word(8)?, word(16)?);
    let kind = text(find(attributes, KIND)?);
    let chain = find(attributes, CHAIN).and_then(array).map_or(0, u32::from_ne_bytes);
    let place = Place { chain, priority: (info >> 16) as u16, handle };
    let protocol = u16::from_be(info as u16);
    let options = find(attributes, OPTIONS).unwrap_or_default();
    let flags = flags_attribute(&kind).and_then(|kind| find(options, kind)).and_then(array);
    let flags = flags.map_or(0, u32::from_ne_bytes);
    let in_hw = flags & flag::IN_HW != 0;
    let (mut body, mut packets, mut bytes) = (Body::Other { in_hw }, 0, 0);
    if kind == "flower" {
        if handle == 0 {
            return None;
        }
        body = flower(options, flags);
        let counts = counts(find(options, ACTS).unwrap_or_default());
        (packets, bytes) = (counts.packets, counts.bytes);
    }
    Some(TcFilter { place, protocol, kind, body, packets, bytes })
}

fn flower(options: &[u8], flags: u32) -> Body {
    let (mut keys, mut unknown, mut acts) = (Keys::default(), None, Some(Vec::new()));
    for (kind, value) in read(options) {
        match kind {
            ACTS => acts = act::parse(value).map(|(acts, _)| acts),
            FLAGS | IN_HW_COUNT => {}
            _ if keys.read(kind, value) => {}
            _ => unknown = Some(kind),
        }
    }
    if flags & flag::SKIP_SW != 0 {
        return Body::CardOnly(acts);
    }
    keys.settle();
    Body::Flower { keys, unknown, acts, in_hw: flags & flag::IN_HW != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::attribute::{nest, put};

    fn message(kind: &str, handle: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let info = 7 << 16 | u32::from(0x0800u16.to_be());
        let words = [0, 3, handle, 0xffff_fff2, info];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        put(&mut bytes, KIND, format!("{kind}\0").as_bytes());
        put(&mut bytes, CHAIN, &9u32.to_ne_bytes());
        nest(&mut bytes, OPTIONS, fill);
        bytes
    }

    #[test]
    fn filters_of_any_kind_are_read() {
        let drop = |bytes: &mut Vec<u8>| {
            put(bytes, 8, &[0x08, 0x00]);
            nest(bytes, ACTS, |bytes| act::write(bytes, &[Act::Drop], [1; 16]));
        };
        let read = filter(&message("flower", 1, drop)).unwrap();
        assert_eq!(read.place, Place { chain: 9, priority: 7, handle: 1 });
        assert_eq!(read.protocol, 0x0800);
        let Body::Flower { unknown: None, acts: Some(acts), in_hw: false, .. } = read.body else {
            panic!("{:?}", read.body)
        };
        assert_eq!(acts, [Act::Drop]);
        assert_eq!(filter(&message("flower", 0, |_| {})), None);
        assert_eq!(filter(&message("u32", 0, |_| {})).unwrap().body, Body::Other { in_hw: false });
        let card = |bytes: &mut Vec<u8>| put(bytes, 11, &flag::IN_HW.to_ne_bytes());
        assert!(filter(&message("u32", 0, card)).unwrap().body.hands_over());
        let skip = |bytes: &mut Vec<u8>| put(bytes, FLAGS, &flag::SKIP_SW.to_ne_bytes());
        let body = filter(&message("flower", 1, skip)).unwrap().body;
        assert_eq!(body, Body::CardOnly(Some(Vec::new())));
        assert!(!body.hands_over());
        let odd = |bytes: &mut Vec<u8>| put(bytes, 200, &[1]);
        let read = filter(&message("flower", 1, odd)).unwrap();
        assert!(matches!(read.body, Body::Flower { unknown: Some(200), .. }));
    }
}
