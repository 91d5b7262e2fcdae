// SPDX-License-Identifier: Apache-2.0
//! The kind of devices under Slipswitch's ports, and the results that can be compared on them.

use crate::case::{Case, Megaflows, Step};
use datapath::Tier;
use flow::Field;
use openflow::Action;

/// Longest frame that is sent to ports with an MTU of 1500: actions may add headers to it.
const LONGEST: usize = 1400;

/// Shortest frame that stays whole with two VLAN headers more or less.
const SHORTEST: usize = 28;

/// IPv6 extension headers that programs in the kernel follow.
const FOLLOWED: usize = 6;

/// The kind of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Dummies on both sides, and a clock that stands.
    Dummies,
    /// Veth pairs, with Slipswitch's ends forced to this tier. Open vSwitch has dummies: what its
    /// tables and actions mean does not depend on devices, and dummies lose nothing.
    Devices(Tier),
}

/// A kind of steps or frames that cannot be compared over devices.
pub struct Beyond {
    /// Its name.
    pub name: &'static str,
    /// The reason for the exclusion.
    pub reason: &'static str,
    of: fn(&Step) -> bool,
}

/// All of them. Timeouts are left out of flows, too, and with them what `fin_timeout` does.
pub const BEYOND: &[Beyond] = &[
    Beyond {
        name: "time at a tier",
        reason: "the kernel's clock cannot be stopped, nor moved; a tier has no timeouts, but reports \
                 when a flow was last used",
        of: |step| matches!(step, Step::Warp(_)),
    },
    Beyond {
        name: "traces at a tier",
        reason: "a trace runs no packet, and names datapath ports, whose numbers differ",
        of: |step| matches!(step, Step::Trace { .. }),
    },
    Beyond {
        name: "damaged messages at a tier",
        reason: "they are about OpenFlow, and may give a flow a timeout",
        of: |step| matches!(step, Step::Message { .. }),
    },
    Beyond {
        name: "long frames at a tier",
        reason: "each kind of device reports frames that are too long in its own way",
        of: |step| frame(step).is_some_and(|f| f.len() > LONGEST),
    },
    Beyond {
        name: "tags that the kernel drops",
        reason: "the kernel drops a frame with less than two bytes after a VLAN header and its \
                 inner type, before a switch or the other end sees it",
        of: |step| frame(step).is_some_and(|f| f.len() < SHORTEST),
    },
    Beyond {
        name: "long chains of IPv6 extension headers",
        reason: "in BPF at most six are followed; a packet with more goes to a packet thread each time",
        of: |step| frame(step).is_some_and(|f| extensions(f) > FOLLOWED),
    },
    Beyond {
        name: "tunnels at a tier",
        reason: "addresses of an underlay are those of dummies",
        of: |step| match step {
            Step::Configure(arguments) => {
                arguments.contains("set interface t") || arguments.starts_with("set port t")
            }
            Step::Options { .. } | Step::Underlay(_) => true,
            // Without mappings a flow about options is refused, with one of several errors.
            Step::Flow { change, .. } => {
                let of_option = |f: &Field| f.option().is_some() && !change.matching.is_any(*f);
                Field::ALL.iter().any(of_option)
                    || format!("{:?}", change.actions).contains("TunMetadata")
            }
            _ => false,
        },
    },
    Beyond {
        name: "bonds at a tier",
        reason: "its members are dummies",
        of: |step| match step {
            Step::Configure(arguments) => arguments.contains("bond0"),
            Step::Packet { port, .. } => port.starts_with('q'),
            _ => false,
        },
    },
    Beyond {
        name: "types of VLANs without a VLAN header",
        reason: "OVS drops the first packet for it; of the megaflow it forgets the type, and learns \
                 from the second",
        of: |step| frame(step).is_some_and(is_partial),
    },
];

fn frame(step: &Step) -> Option<&[u8]> {
    match step {
        Step::Packet { frame, .. } => Some(frame),
        _ => None,
    }
}

/// The number of consecutive IPv6 extension headers, whole or not.
fn extensions(frame: &[u8]) -> usize {
    let (key, layers) = flow::extract::extract_limited(frame, 1, flow::VLANS);
    let ip = layers.l3.and_then(|at| frame.get(usize::from(at)..)).unwrap_or_default();
    let (mut next, mut rest) = (ip.get(6).copied(), ip.get(40..).unwrap_or_default());
    let mut count = 0;
    while let Some(kind @ (0 | 43 | 44 | 51 | 60)) = next.filter(|_| key.dl_type.get() == 0x86dd) {
        count += 1;
        let units = rest.get(1).map_or(0, |units| usize::from(*units));
        let len = match kind {
            44 => 8,
            51 => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        next = rest.first().copied();
        rest = rest.get(len..).unwrap_or_default();
    }
    count
}

fn is_partial(frame: &[u8]) -> bool {
    let key = flow::extract::extract_limited(frame, 1, flow::VLANS).0;
    let [outer, _] = key.vlans;
    matches!(key.dl_type.get(), 0x8100 | 0x88a8) && outer.tci.get() & flow::VLAN_CFI == 0
}

/// Returns false for frames that the kernel drops on some paths (`skb_vlan_untag`). They are left
/// out when outputs are compared.
pub fn carries(frame: &[u8]) -> bool {
    let is_tagged = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
    !is_tagged || frame.len() >= 20
}

impl Ground {
    /// True when no step is beyond it, as one may be in a case that was made smaller.
    pub fn bears(self, steps: &[Step]) -> bool {
        let is_beyond = |step: &Step| BEYOND.iter().any(|kind| (kind.of)(step));
        self == Ground::Dummies || !steps.iter().any(is_beyond)
    }

    /// The ground called `name`, a tier's.
    pub fn parse(name: &str) -> Option<Ground> {
        [Ground::Dummies, Ground::Devices(Tier::Tcx), Ground::Devices(Tier::Xdp)]
            .into_iter()
            .find(|ground| ground.name() == name)
    }

    /// Its name: that of the tier.
    pub fn name(self) -> &'static str {
        match self {
            Ground::Dummies => Tier::Userspace.name(),
            Ground::Devices(tier) => tier.name(),
        }
    }

    /// How often each packet is sent: a tier gets its flow with the first.
    pub fn times(self) -> usize {
        match self {
            Ground::Dummies => 1,
            Ground::Devices(_) => 2,
        }
    }

    /// The case without what cannot be compared here, and how much there was of each kind of
    /// [`BEYOND`].
    pub fn fit(self, mut case: Case) -> (Case, Vec<u64>) {
        let mut counts = vec![0; BEYOND.len()];
        if self == Ground::Dummies {
            return (case, counts);
        }
        case.steps.retain(|step| {
            let kind = BEYOND.iter().position(|kind| (kind.of)(step));
            kind.and_then(|k| counts.get_mut(k)).map(|count| *count += 1).is_none()
        });
        case.steps.iter_mut().for_each(without_timeouts);
        if case.megaflows == Megaflows::None {
            // Without one nothing runs at the tier.
            case.megaflows = Megaflows::Purged;
        }
        (case, counts)
    }
}

fn without_timeouts(step: &mut Step) {
    match step {
        Step::Flow { change, .. } => {
            (change.idle_timeout, change.hard_timeout) = (0, 0);
            change.actions = timeless(&change.actions).into();
        }
        Step::Group { change, .. } => {
            for bucket in &mut change.buckets {
                bucket.actions = timeless(&bucket.actions).into();
            }
        }
        _ => {}
    }
}

fn timeless(actions: &[Action]) -> Vec<Action> {
    let one = |action: &Action| match action {
        Action::FinTimeout { .. } => Action::FinTimeout { idle: 0, hard: 0 },
        Action::Learn(learn) => {
            let mut learn = learn.clone();
            (learn.idle_timeout, learn.hard_timeout) = (0, 0);
            (learn.fin_idle_timeout, learn.fin_hard_timeout) = (0, 0);
            Action::Learn(learn)
        }
        Action::Clone(inner) => Action::Clone(timeless(inner)),
        Action::WriteActions(inner) => Action::WriteActions(timeless(inner)),
        other => other.clone(),
    };
    actions.iter().map(one).collect()
}
