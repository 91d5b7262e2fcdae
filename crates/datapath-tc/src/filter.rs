// SPDX-License-Identifier: Apache-2.0
//! A flower filter as a message of rtnetlink (include/uapi/linux/rtnetlink.h, `struct tcmsg`).

use crate::act::{self, Act};
use crate::keys::Keys;
use crate::policer::PolicerCounts;
use netlink::attribute::{array, find, nest, put, read};

/// Bytes of `struct tcmsg`.
pub const FIXED: usize = 20;
/// `TCA_KIND`
pub const KIND: u16 = 1;
/// `TCA_OPTIONS`
pub const OPTIONS: u16 = 2;
/// `TCA_CHAIN`
pub const CHAIN: u16 = 11;
/// `TCA_FLOWER_ACT`
pub const ACTS: u16 = 3;
/// `TCA_FLOWER_FLAGS`
pub const FLAGS: u16 = 22;
/// `TCA_FLOWER_IN_HW_COUNT`
pub const IN_HW_COUNT: u16 = 86;
const NAME: &[u8] = b"flower\0";

/// Returns a `struct tcmsg`: family, interface, handle, parent and info.
pub fn tcmsg(words: [u32; FIXED / 4]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The filters of a device that packets meet (`TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_...)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// Packets that come in by the device.
    Ingress,
    /// Packets that the host sends by it, as by an internal port.
    Egress,
}

impl Hook {
    pub(crate) const ALL: [Hook; 2] = [Hook::Ingress, Hook::Egress];

    /// Returns the fixed part of a request for all filters there (`struct tcmsg`).
    pub(crate) fn fixed(self, ifindex: u32) -> Vec<u8> {
        tcmsg([0, ifindex, 0, self.parent(), 0])
    }

    /// Returns the parent of the filters there.
    pub fn parent(self) -> u32 {
        match self {
            Hook::Ingress => 0xffff_fff2,
            Hook::Egress => 0xffff_fff3,
        }
    }
}

/// Where a filter is: what distinguishes it from all others of the machine's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The device.
    pub ifindex: u32,
    /// Its side.
    pub hook: Hook,
    /// Filters that packets meet after `goto chain`; 0 for the first.
    pub chain: u32,
    /// Lower ones are met first. One priority has one protocol.
    pub priority: u16,
    /// Ethernet type that packets must have outermost, host integer.
    pub protocol: u16,
    /// Number of the filter, chosen by its owner.
    pub handle: u32,
}

/// The places that run a filter, as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// The card if it can, and the kernel.
    #[default]
    Both,
    /// The card, or the filter is refused.
    SkipSoftware,
    /// The kernel.
    SkipHardware,
}

/// Bits of `TCA_CLS_FLAGS_*`.
pub mod flag {
    /// The filter is not for cards.
    pub const SKIP_HW: u32 = 1;
    /// The filter is for cards only.
    pub const SKIP_SW: u32 = 2;
    /// A card has the filter.
    pub const IN_HW: u32 = 4;
    /// The driver's words come also with a filter that is accepted.
    pub const VERBOSE: u32 = 16;
}

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Where it is.
    pub place: Place,
    /// The keys that it compares.
    pub keys: Keys,
    /// The actions on matching packets.
    pub acts: Vec<Act>,
    /// The owner's mark on the last action: a flow's identity.
    pub cookie: [u8; 16],
    /// The places that run it.
    pub policy: Policy,
}

impl Filter {
    /// The fixed part and the attributes of RTM_NEWTFILTER.
    pub fn message(&self) -> Vec<u8> {
        let mut bytes = self.place.fixed();
        put(&mut bytes, KIND, NAME);
        put(&mut bytes, CHAIN, &self.place.chain.to_ne_bytes());
        nest(&mut bytes, OPTIONS, |bytes| {
            self.keys.write(bytes);
            let policy = match self.policy {
                Policy::Both => 0,
                Policy::SkipSoftware => flag::SKIP_SW,
                Policy::SkipHardware => flag::SKIP_HW,
            };
            put(bytes, FLAGS, &(policy | flag::VERBOSE).to_ne_bytes());
            nest(bytes, ACTS, |bytes| act::write(bytes, &self.acts, self.cookie));
        });
        bytes
    }
}

impl Place {
    /// `struct tcmsg`
    fn fixed(&self) -> Vec<u8> {
        let info = u32::from(self.priority) << 16 | u32::from(self.protocol.to_be());
        tcmsg([0, self.ifindex, self.handle, self.hook.parent(), info])
    }

    /// The fixed part and the attributes of RTM_DELTFILTER and RTM_GETTFILTER.
    pub fn message(&self) -> Vec<u8> {
        let mut bytes = self.fixed();
        put(&mut bytes, KIND, NAME);
        put(&mut bytes, CHAIN, &self.chain.to_ne_bytes());
        bytes
    }

    /// Reads the place of a message about a filter of any kind. `None` when it is cut short, or at
    /// no side of one device, as in a shared block.
    fn parse(message: &[u8]) -> Option<(Place, &[u8])> {
        let (fixed, attributes) = message.split_at_checked(FIXED)?;
        let (words, _) = fixed.as_chunks::<4>();
        let [_, ifindex, handle, parent, info] = *words else { return None };
        let [ifindex, handle, parent, info] =
            [ifindex, handle, parent, info].map(u32::from_ne_bytes);
        let hook = Hook::ALL.into_iter().find(|hook| hook.parent() == parent)?;
        let chain = find(attributes, CHAIN).and_then(array).map_or(0, u32::from_ne_bytes);
        let place = Place {
            ifindex,
            hook,
            chain,
            priority: (info >> 16) as u16,
            protocol: u16::from_be(info as u16),
            handle,
        };
        Some((place, attributes))
    }
}

/// Counts of a filter's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// In the kernel and in cards.
    pub packets: u64,
    /// As the kernel counts them: in software without the Ethernet header.
    pub bytes: u64,
    /// Of `packets`, those of cards.
    pub card_packets: u64,
    /// Of `bytes`, those of cards.
    pub card_bytes: u64,
}

/// A filter as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Where it is.
    pub place: Place,
    /// Keys and actions, if they are of forms that this crate makes.
    pub filter: Option<Filter>,
    /// How many cards have it.
    pub in_hw_count: u32,
    /// It is in a card.
    pub in_hw: bool,
    /// The largest counts among its actions: an action in the middle counts what a later one sends.
    pub counts: Counts,
    /// The policers among its actions, by their index.
    pub policers: Vec<(u32, PolicerCounts)>,
}

impl Shown {
    /// Reads the message of RTM_NEWTFILTER, after its netlink header. `None` for a filter of another
    /// kind, without a number (the head of a list), or at no side of one device.
    pub fn parse(message: &[u8]) -> Option<Shown> {
        let (place, attributes) = Place::parse(message)?;
        if find(attributes, KIND) != Some(NAME) || place.handle == 0 {
            return None;
        }
        let options = find(attributes, OPTIONS)?;
        let word = |kind| find(options, kind).and_then(array).map_or(0, u32::from_ne_bytes);
        let flags = word(FLAGS);
        let acts = find(options, ACTS).unwrap_or_default();
        Some(Shown {
            place,
            filter: filter(place, options, flags),
            in_hw_count: word(IN_HW_COUNT),
            in_hw: flags & flag::IN_HW != 0,
            counts: counts(acts),
            policers: read(acts).filter_map(|(_, act)| act::policer_counts(act)).collect(),
        })
    }
}

/// Keys and actions in the options of a filter; `None` when it has some that this crate does not
/// make.
fn filter(place: Place, options: &[u8], flags: u32) -> Option<Filter> {
    let mut keys = Keys::default();
    let mut acts = (Vec::new(), None);
    for (kind, value) in read(options) {
        match kind {
            ACTS => acts = act::parse(value)?,
            FLAGS | IN_HW_COUNT => {}
            _ if keys.read(kind, value) => {}
            _ => return None,
        }
    }
    keys.settle();
    let policy = match flags & (flag::SKIP_HW | flag::SKIP_SW) {
        flag::SKIP_HW => Policy::SkipHardware,
        flag::SKIP_SW => Policy::SkipSoftware,
        _ => Policy::Both,
    };
    let (acts, cookie) = acts;
    Some(Filter { place, keys, acts, cookie: cookie?, policy })
}

/// `TCA_STATS_BASIC`, `TCA_STATS_BASIC_HW` and `TCA_STATS_PKT64`, which follows the one that it belongs to.
const BASIC: u16 = 1;
const BASIC_HW: u16 = 7;
const PACKETS: u16 = 8;

/// Returns the largest counts among the actions in the attribute [`ACTS`]. Policers are left out where
/// there is another action: they count the packets of all filters that share them.
pub fn counts(acts: &[u8]) -> Counts {
    let is_own = |act: &&[u8]| act::policer_counts(act).is_none();
    let has_own = read(acts).any(|(_, act)| is_own(&act));
    let mut most = Counts::default();
    for act in read(acts).map(|(_, act)| act).filter(|act| !has_own || is_own(act)) {
        let counts = counts_of(find(act, act::STATS).unwrap_or_default());
        most.packets = most.packets.max(counts.packets);
        most.bytes = most.bytes.max(counts.bytes);
        most.card_packets = most.card_packets.max(counts.card_packets);
        most.card_bytes = most.card_bytes.max(counts.card_bytes);
    }
    most
}

/// Returns the counts in the statistics of an action.
pub(crate) fn counts_of(stats: &[u8]) -> Counts {
    let mut counts = Counts::default();
    let mut of_card = false;
    for (kind, value) in read(stats) {
        let bytes = array(value).map_or(0, u64::from_ne_bytes);
        let packets = value.get(8..).and_then(array).map_or(0, u32::from_ne_bytes);
        match kind {
            BASIC => {
                (counts.bytes, counts.packets) = (bytes, packets.into());
                of_card = false;
            }
            BASIC_HW => {
                (counts.card_bytes, counts.card_packets) = (bytes, packets.into());
                of_card = true;
            }
            // Here the first eight bytes are the packets.
            PACKETS if of_card => counts.card_packets = bytes,
            PACKETS => counts.packets = bytes,
            _ => {}
        }
    }
    counts
}
