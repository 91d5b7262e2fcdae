// SPDX-License-Identifier: Apache-2.0
//! The disciplines and their parameters (`struct tc_..._qopt` and `TCA_..._*` of
//! include/uapi/linux/pkt_sched.h).

use super::LinkLimits;
use super::class::{Class, microsecond_ticks};
use super::options::Options;
use netlink::attribute::put;

/// Rate in bits per second of a link whose driver does not report one, as in Open vSwitch since 3.2.
const DEFAULT_SPEED: u64 = 10_000_000_000;

const TCA_HTB_INIT: u16 = 2;
const TCA_CODEL_TARGET: u16 = 1;
const TCA_CODEL_LIMIT: u16 = 2;
const TCA_CODEL_INTERVAL: u16 = 3;
const TCA_FQ_CODEL_FLOWS: u16 = 5;
const TCA_FQ_CODEL_QUANTUM: u16 = 6;

/// The class of packets without one: that of queue 0.
const DEFAULT_CLASS: u16 = 1;
/// `HTB_VER >> 16`
const HTB_VERSION: u32 = 3;
/// HTB's divisor of a rate for the bytes that a class sends in turn, as in Open vSwitch.
const RATE_TO_QUANTUM: u32 = 10;

/// Parameters of CoDel (RFC 8289), which FQ-CoDel (RFC 8290) has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Codel {
    /// The most packets that wait.
    limit: u32,
    /// Acceptable delay in microseconds.
    target: u32,
    /// Time in microseconds in which the delay must sink.
    interval: u32,
}

impl Codel {
    fn of(options: &mut Options<'_>) -> Codel {
        Codel {
            limit: options.word("limit", 10_240),
            target: options.word("target", 5_000),
            interval: options.word("interval", 100_000),
        }
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, TCA_CODEL_TARGET, &self.target.to_ne_bytes());
        put(&mut bytes, TCA_CODEL_LIMIT, &self.limit.to_ne_bytes());
        put(&mut bytes, TCA_CODEL_INTERVAL, &self.interval.to_ne_bytes());
        bytes
    }

    fn report(self) -> [(&'static str, u64); 3] {
        [
            ("limit", self.limit.into()),
            ("target", self.target.into()),
            ("interval", self.interval.into()),
        ]
    }
}

/// A discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    /// Hierarchical token bucket, with the rate of all queues in bytes per second.
    Htb { max: u64 },
    /// Hierarchical fair service curve, with that rate.
    Hfsc { max: u64 },
    /// Stochastic fairness: seconds between changes of the hash, and bytes in turn.
    Sfq { perturb: u32, quantum: u32 },
    /// Controlled delay.
    Codel(Codel),
    /// Controlled delay with a queue for each flow.
    FqCodel { codel: Codel, flows: u32, quantum: u32 },
    /// An emulated network: microseconds, packets, percent, microseconds.
    Netem { latency: u32, limit: u32, loss: u32, jitter: u32 },
}

impl Discipline {
    /// Parses the options of a row of this type. `None`: there is no such type.
    pub(super) fn of(
        kind: &str,
        options: &mut Options<'_>,
        link: LinkLimits,
    ) -> Option<Discipline> {
        let max = |options: &mut Options<'_>| {
            (options.positive("max-rate").or(link.speed).unwrap_or(DEFAULT_SPEED) / 8).max(1)
        };
        Some(match kind {
            "linux-htb" => Discipline::Htb { max: max(options) },
            "linux-hfsc" => Discipline::Hfsc { max: max(options) },
            "linux-sfq" => Discipline::Sfq {
                perturb: options.word("perturb", 10),
                quantum: options.word("quantum", link.mtu),
            },
            "linux-codel" => Discipline::Codel(Codel::of(options)),
            "linux-fq_codel" => Discipline::FqCodel {
                codel: Codel::of(options),
                flows: options.word("flows", 1_024),
                quantum: options.word("quantum", 1_514),
            },
            "linux-netem" => Discipline::Netem {
                latency: options.word("latency", 0),
                limit: options.word("limit", 1_000),
                loss: options.word("loss", 0).min(100),
                jitter: options.word("jitter", 0),
            },
            _ => return None,
        })
    }

    /// Returns `QoS:type`.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Discipline::Htb { .. } => "linux-htb",
            Discipline::Hfsc { .. } => "linux-hfsc",
            Discipline::Sfq { .. } => "linux-sfq",
            Discipline::Codel(_) => "linux-codel",
            Discipline::FqCodel { .. } => "linux-fq_codel",
            Discipline::Netem { .. } => "linux-netem",
        }
    }

    /// Returns the kernel's name (`TCA_KIND`).
    pub(super) fn kernel_kind(&self) -> &'static str {
        match self {
            Discipline::Htb { .. } => "htb",
            Discipline::Hfsc { .. } => "hfsc",
            Discipline::Sfq { .. } => "sfq",
            Discipline::Codel(_) => "codel",
            Discipline::FqCodel { .. } => "fq_codel",
            Discipline::Netem { .. } => "netem",
        }
    }

    /// Returns the rate in bytes per second that all classes have together; `None`: the discipline has
    /// no classes that the switch makes.
    pub(super) fn class_limit(&self) -> Option<u64> {
        match self {
            Discipline::Htb { max } | Discipline::Hfsc { max } => Some(*max),
            Discipline::Sfq { .. }
            | Discipline::Codel(_)
            | Discipline::FqCodel { .. }
            | Discipline::Netem { .. } => None,
        }
    }

    /// Returns the class of which the queues are children.
    pub(super) fn root_class(&self) -> Option<Class> {
        self.class_limit().map(Class::root)
    }

    /// Parses the options of a queue.
    pub(super) fn class(&self, options: &mut Options<'_>, most: u64, link: LinkLimits) -> Class {
        match self {
            Discipline::Hfsc { .. } => Class::hfsc(options, most),
            _ => Class::htb(options, most, link),
        }
    }

    /// Returns the value of `TCA_OPTIONS`.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Discipline::Htb { .. } => {
                // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts
                let words = [HTB_VERSION, RATE_TO_QUANTUM, DEFAULT_CLASS.into(), 0, 0];
                let mut bytes = Vec::new();
                put(&mut bytes, TCA_HTB_INIT, &words.map(u32::to_ne_bytes).concat());
                bytes
            }
            Discipline::Hfsc { .. } => DEFAULT_CLASS.to_ne_bytes().to_vec(),
            // struct tc_sfq_qopt: quantum, perturb_period, limit, divisor, flows
            Discipline::Sfq { perturb, quantum } => {
                [*quantum, *perturb, 0, 0, 0].map(u32::to_ne_bytes).concat()
            }
            Discipline::Codel(codel) => codel.encode(),
            Discipline::FqCodel { codel, flows, quantum } => {
                let mut bytes = codel.encode();
                put(&mut bytes, TCA_FQ_CODEL_FLOWS, &flows.to_ne_bytes());
                put(&mut bytes, TCA_FQ_CODEL_QUANTUM, &quantum.to_ne_bytes());
                bytes
            }
            // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
            Discipline::Netem { latency, limit, loss, jitter } => {
                let loss = u64::from(*loss) * u64::from(u32::MAX) / 100;
                let words = [
                    microsecond_ticks((*latency).into()),
                    *limit,
                    loss as u32, // at most u32::MAX
                    0,
                    0,
                    microsecond_ticks((*jitter).into()),
                ];
                words.map(u32::to_ne_bytes).concat()
            }
        }
    }

    /// Returns the value of `TCA_OPTIONS` of a class.
    pub(super) fn encode_class(&self, class: &Class, link: LinkLimits) -> Vec<u8> {
        match self {
            Discipline::Hfsc { .. } => class.encode_hfsc(),
            _ => class.encode_htb(link),
        }
    }

    /// Returns the options in force.
    pub(super) fn report(&self) -> Vec<(&'static str, u64)> {
        match self {
            Discipline::Htb { max } | Discipline::Hfsc { max } => vec![("max-rate", max * 8)],
            Discipline::Sfq { perturb, quantum } => {
                vec![("perturb", (*perturb).into()), ("quantum", (*quantum).into())]
            }
            Discipline::Codel(codel) => codel.report().to_vec(),
            Discipline::FqCodel { codel, flows, quantum } => {
                let more = [("flows", (*flows).into()), ("quantum", (*quantum).into())];
                codel.report().into_iter().chain(more).collect()
            }
            Discipline::Netem { latency, limit, loss, jitter } => vec![
                ("latency", (*latency).into()),
                ("limit", (*limit).into()),
                ("loss", (*loss).into()),
                ("jitter", (*jitter).into()),
            ],
        }
    }

    /// Returns the options of a class that are in force.
    pub(super) fn report_class(&self, class: &Class) -> Vec<(&'static str, u64)> {
        let rates = [("min-rate", class.min * 8), ("max-rate", class.max * 8)];
        match self {
            Discipline::Hfsc { .. } => rates.to_vec(),
            _ => {
                let priority = (class.priority != 0).then_some(("priority", class.priority.into()));
                let burst = [("burst", class.burst * 8)];
                burst.into_iter().chain(priority).chain(rates).collect()
            }
        }
    }
}
