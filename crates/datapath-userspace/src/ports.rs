// SPDX-License-Identifier: Apache-2.0
//! Ports: open devices, their queues, and the account that pays for their misses.

use crate::budget::Account;
use crate::config::Config;
use crate::handover::Handover;
use datapath::{PortError, PortInfo, PortNo, PortSpec};
use netdev::{Device, Kind, OpenError, OpenSpec, Opened, Queue, Sender};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ports by number; replaced as a whole when one comes or goes.
pub(crate) type PortMap = BTreeMap<PortNo, Arc<Port>>;

/// One port.
pub(crate) struct Port {
    pub(crate) info: PortInfo,
    pub(crate) sender: Arc<dyn Sender>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) queues: Vec<Arc<RxQueue>>,
    pub(crate) account: Account,
    upcalls: AtomicU64,
}

impl Port {
    /// Counts an upcall.
    pub(crate) fn note_upcall(&self) {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
    }

    /// Upcalls made for packets of this port.
    pub(crate) fn upcalls(&self) -> u64 {
        self.upcalls.load(Ordering::Relaxed)
    }
}

/// Where packets come from.
pub(crate) enum Source {
    /// A device.
    Queue(Box<dyn Queue>),
    /// A faster tier.
    Handover(Box<dyn Handover>),
}

impl Source {
    /// The descriptor to wait for.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::Queue(queue) => queue.poll_fd(),
            Source::Handover(handover) => Some(handover.poll_fd()),
        }
    }
}

/// A receive queue, or a handover. The thread that serves it locks it for the time of one `recv`; whoever
/// removes the port takes the queue out, which closes its descriptor.
pub(crate) struct RxQueue {
    /// Unique while the program runs.
    pub(crate) token: u64,
    pub(crate) port: PortNo,
    pub(crate) port_name: String,
    pub(crate) number: usize,
    /// Core that `other_config:pmd-rxq-affinity` asks for.
    pub(crate) wanted_core: Option<usize>,
    source: Mutex<Option<Source>>,
    failed: AtomicBool,
}

impl RxQueue {
    /// A handover as a queue of no port.
    pub(crate) fn of_handover(token: u64, handover: Box<dyn Handover>) -> RxQueue {
        RxQueue {
            token,
            port: PortNo::NONE,
            port_name: "handover".to_owned(),
            number: 0,
            wanted_core: None,
            source: Mutex::new(Some(Source::Handover(handover))),
            failed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_handover(&self) -> bool {
        self.port == PortNo::NONE
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Source>> {
        // A queue whose user panicked is given to the next batch as it is; devices keep
        // themselves whole.
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when there is a descriptor to wait for.
    pub(crate) fn is_polled(&self) -> bool {
        self.lock().as_ref().is_some_and(|s| s.poll_fd().is_some())
    }

    /// Calls `f` with the descriptor, when there is one.
    pub(crate) fn with_fd<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let guard = self.lock();
        guard.as_ref().and_then(|s| s.poll_fd()).map(f)
    }

    /// Closes the queue's side of the device.
    pub(crate) fn close(&self) {
        let source = self.lock().take();
        drop(source); // not under the lock
    }

    /// Marks the queue broken; true the first time.
    pub(crate) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::Relaxed)
    }
}

/// Opens the device of `spec`.
pub(crate) fn open(spec: &PortSpec, config: &Config) -> Result<(Opened, Kind), PortError> {
    let unknown = || PortError::UnknownKind { name: spec.name.clone(), kind: spec.kind.clone() };
    let kind = Kind::from_type(&spec.kind).ok_or_else(unknown)?;
    let n_rxq = match spec.options.get("n_rxq") {
        None => config.n_rxq,
        Some(text) => {
            text.parse::<usize>().ok().filter(|n| (1..=1024).contains(n)).ok_or_else(|| {
                PortError::Option {
                    name: spec.name.clone(),
                    problem: format!("options:n_rxq: \"{text}\" is not a number from 1 to 1024"),
                }
            })?
        }
    };
    let open = OpenSpec {
        name: spec.name.clone(),
        kind,
        n_rxq,
        options: spec.options.clone(),
        muted: config.open_muted,
        persistent: config.persistent_internal.clone().filter(|_| kind == Kind::Internal),
        mtu: spec.mtu,
        mac: None,
        first_mac: spec.mac,
    };
    let opened = netdev::open(&open).map_err(|e| port_error(&spec.name, e))?;
    Ok((opened, kind))
}

fn port_error(name: &str, error: OpenError) -> PortError {
    let open = |cause: String| PortError::Open { name: name.to_owned(), cause };
    match error {
        OpenError::NoDevice { .. } => open("No such device".to_owned()),
        OpenError::Busy { .. } => open("the device is already open".to_owned()),
        OpenError::Unsuitable { reason, .. } => open(reason),
        OpenError::BadName { reason, .. } => open(format!("not a valid interface name: {reason}")),
        OpenError::BadOption { option, reason, .. } => PortError::Option {
            name: name.to_owned(),
            problem: format!("options:{option}: {reason}"),
        },
        OpenError::System { step, source, .. } => {
            let text = source.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            open(format!("{step}: {text}"))
        }
    }
}

/// `pmd-rxq-affinity`: "queue:core,queue:core".
pub(crate) fn affinity(spec: &PortSpec) -> Result<BTreeMap<usize, usize>, PortError> {
    let Some(text) = spec.other_config.get("pmd-rxq-affinity") else {
        return Ok(BTreeMap::new());
    };
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (queue, core) = part.split_once(':')?;
            Some((queue.trim().parse().ok()?, core.trim().parse().ok()?))
        })
        .collect::<Option<_>>()
        .ok_or_else(|| PortError::Option {
            name: spec.name.clone(),
            problem: format!("other_config:pmd-rxq-affinity: \"{text}\" is not QUEUE:CORE,..."),
        })
}

impl Port {
    /// Puts an opened device behind a number; `tokens` gives each queue a number of its own.
    pub(crate) fn new(
        info: PortInfo,
        opened: Opened,
        affinity: &BTreeMap<usize, usize>,
        tokens: &AtomicU64,
    ) -> Port {
        let queues = opened.queues.into_iter().enumerate().map(|(number, queue)| {
            Arc::new(RxQueue {
                token: tokens.fetch_add(1, Ordering::Relaxed),
                port: info.number,
                port_name: info.name.clone(),
                number,
                wanted_core: affinity.get(&number).copied(),
                source: Mutex::new(Some(Source::Queue(queue))),
                failed: AtomicBool::new(false),
            })
        });
        Port {
            queues: queues.collect(),
            info,
            sender: opened.sender,
            device: opened.device,
            account: Account::default(),
            upcalls: AtomicU64::new(0),
        }
    }
}
