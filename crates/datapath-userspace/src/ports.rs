// SPDX-License-Identifier: Apache-2.0
//! Ports: open devices or tunnels, their queues, and the token buckets that limit their upcalls.

use crate::config::Config;
use crate::load::RxLoad;
use crate::miss_queue::MissSource;
use crate::upcall_limiter::TokenBucket;
use datapath::offload::UpcallAccount;
use datapath::{PortError, PortInfo, PortKind, PortNo, PortSpec, SequenceNumbers};
use netdev::{Device, Kind, OpenError, OpenSpec, Opened, Queue, Sender};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tunnel::PortConfig;

/// The ports by number. Each change replaces the whole map.
pub(crate) type PortMap = BTreeMap<PortNo, Arc<Port>>;

/// One port.
pub(crate) struct Port {
    pub(crate) info: PortInfo,
    medium: Medium,
    pub(crate) queues: Vec<Arc<RxQueue>>,
    /// By account.
    upcall_buckets: [TokenBucket; UpcallAccount::ALL.len()],
    upcalls: AtomicU64,
}

/// Where a port's packets come from and go to.
enum Medium {
    Device { device: Arc<dyn Device>, sender: Arc<dyn Sender> },
    Tunnel(Tunnel),
}

/// A tunnel port. Actions bring packets to it and take packets from it.
pub(crate) struct Tunnel {
    pub(crate) config: PortConfig,
    numbers: RwLock<Numbers>,
    /// The next IPv4 identification of packets that may be fragmented.
    id: AtomicU32,
}

/// The sequence numbers of a tunnel port's packets.
enum Numbers {
    /// This datapath gives them. The value is the next one.
    Own(AtomicU32),
    /// A faster tier gives some of them.
    Shared(Arc<dyn SequenceNumbers>),
}

impl Tunnel {
    /// Returns the next sequence number; the first is 0.
    pub(crate) fn next_sequence(&self) -> u32 {
        match &*self.numbers.read().unwrap_or_else(PoisonError::into_inner) {
            Numbers::Own(next) => next.fetch_add(1, Ordering::Relaxed),
            Numbers::Shared(numbers) => numbers.take(1),
        }
    }

    /// Takes numbers from `shared` from now on. The numbers that were given before are skipped there.
    pub(crate) fn share_sequence(&self, shared: Arc<dyn SequenceNumbers>) {
        // No thread takes a number meanwhile.
        let mut numbers = self.numbers.write().unwrap_or_else(PoisonError::into_inner);
        if let Numbers::Own(next) = &mut *numbers {
            shared.take(*next.get_mut());
            *numbers = Numbers::Shared(shared);
        }
    }

    /// Returns the next IPv4 identification.
    pub(crate) fn next_id(&self) -> u16 {
        self.id.fetch_add(1, Ordering::Relaxed) as u16 // wraps on purpose
    }
}

impl Port {
    /// Returns the token bucket of an account.
    pub(crate) fn upcall_bucket(&self, account: UpcallAccount) -> &TokenBucket {
        let [misses, connections] = &self.upcall_buckets;
        match account {
            UpcallAccount::Misses => misses,
            UpcallAccount::Connections => connections,
        }
    }

    /// Returns the device; `None` for a tunnel port.
    pub(crate) fn device(&self) -> Option<&Arc<dyn Device>> {
        match &self.medium {
            Medium::Device { device, .. } => Some(device),
            Medium::Tunnel(_) => None,
        }
    }

    /// Returns the sending side of the device; `None` for a tunnel port.
    pub(crate) fn sender(&self) -> Option<&dyn Sender> {
        match &self.medium {
            Medium::Device { sender, .. } => Some(&**sender),
            Medium::Tunnel(_) => None,
        }
    }

    /// Returns the tunnel; `None` for a port with a device.
    pub(crate) fn tunnel(&self) -> Option<&Tunnel> {
        match &self.medium {
            Medium::Device { .. } => None,
            Medium::Tunnel(tunnel) => Some(tunnel),
        }
    }

    /// Counts an upcall.
    pub(crate) fn count_upcall(&self) {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of upcalls for packets of this port.
    pub(crate) fn upcalls(&self) -> u64 {
        self.upcalls.load(Ordering::Relaxed)
    }
}

/// The source of a queue's packets.
pub(crate) enum Source {
    /// A device.
    Queue(Box<dyn Queue>),
    /// A faster tier.
    Misses(Box<dyn MissSource>),
}

impl Source {
    /// Returns the descriptor to wait for.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::Queue(queue) => queue.poll_fd(),
            Source::Misses(source) => Some(source.poll_fd()),
        }
    }
}

/// A receive queue of a port, or the miss queue of a faster tier. The thread that serves it locks
/// it for the duration of one `recv`. The removal of the port takes the source out, which closes
/// its descriptor.
pub(crate) struct RxQueue {
    /// Unique while the program runs.
    pub(crate) token: u64,
    pub(crate) port: PortNo,
    pub(crate) port_name: String,
    pub(crate) number: usize,
    /// The core that `other_config:pmd-rxq-affinity` names.
    pub(crate) wanted_core: Option<usize>,
    /// The share of its thread's time that it takes.
    pub(crate) load: RxLoad,
    source: Mutex<Option<Source>>,
    /// Held while a thread processes a batch: a queue that has moved to another thread waits for
    /// the last batch of the earlier one, so that packets keep their order.
    turn: Mutex<()>,
    failed: AtomicBool,
}

impl RxQueue {
    /// Creates the queue of a miss source, which belongs to no port.
    pub(crate) fn of_misses(token: u64, source: Box<dyn MissSource>) -> RxQueue {
        RxQueue {
            token,
            port: PortNo::NONE,
            port_name: "miss queue".to_owned(),
            number: 0,
            wanted_core: None,
            load: RxLoad::default(),
            source: Mutex::new(Some(Source::Misses(source))),
            turn: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_miss_queue(&self) -> bool {
        self.port == PortNo::NONE
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Source>> {
        // After a panic of its user the queue serves the next batch as it is: devices keep
        // themselves consistent.
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a batch. The caller has no lock for which an upcall could wait.
    pub(crate) fn begin_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner) // it protects no data
    }

    /// Returns true when there is a descriptor to wait for.
    pub(crate) fn is_polled(&self) -> bool {
        self.lock().as_ref().is_some_and(|s| s.poll_fd().is_some())
    }

    /// Calls `f` with the descriptor if there is one.
    pub(crate) fn with_fd<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let guard = self.lock();
        guard.as_ref().and_then(|s| s.poll_fd()).map(f)
    }

    /// Drops the source, which closes its descriptor.
    pub(crate) fn close(&self) {
        let source = self.lock().take();
        drop(source); // not under the lock
    }

    /// Marks the queue as failed. Returns true the first time.
    pub(crate) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::Relaxed)
    }
}

/// Returns what a tunnel port of `spec` accepts; `None` when it is no tunnel port.
pub(crate) fn tunnel(spec: &PortSpec) -> Option<Result<PortConfig, PortError>> {
    let PortKind::Tunnel(kind) = spec.kind else { return None };
    let option = |name: &str| spec.options.get(name).map(String::as_str);
    let error = |problem| PortError::Option { name: spec.name.clone(), problem };
    Some(PortConfig::from_options(kind, option).map_err(error))
}

/// Opens the device of `spec` and returns it with its kind.
pub(crate) fn open(spec: &PortSpec, config: &Config) -> Result<(Opened, Kind), PortError> {
    let unknown = || PortError::UnknownKind { name: spec.name.clone(), kind: spec.kind };
    let kind = spec.kind.device().ok_or_else(unknown)?;
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
        is_shared: spec.kind == PortKind::Underlay,
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

/// Parses `pmd-rxq-affinity`, "queue:core,queue:core", into the core of each queue.
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
    /// Creates a port of an opened device. Each queue takes the next token of `tokens`.
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
                load: RxLoad::default(),
                source: Mutex::new(Some(Source::Queue(queue))),
                turn: Mutex::default(),
                failed: AtomicBool::new(false),
            })
        });
        Port {
            queues: queues.collect(),
            info,
            medium: Medium::Device { device: opened.device, sender: opened.sender },
            upcall_buckets: Default::default(),
            upcalls: AtomicU64::new(0),
        }
    }

    /// Creates a tunnel port.
    pub(crate) fn of_tunnel(info: PortInfo, config: PortConfig) -> Port {
        let numbers = RwLock::new(Numbers::Own(AtomicU32::new(0)));
        let tunnel = Tunnel { config, numbers, id: AtomicU32::new(0) };
        Port {
            queues: Vec::new(),
            info,
            medium: Medium::Tunnel(tunnel),
            upcall_buckets: Default::default(),
            upcalls: AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunnel::Kind;

    struct Counter(AtomicU32);

    impl SequenceNumbers for Counter {
        fn take(&self, count: u32) -> u32 {
            self.0.fetch_add(count, Ordering::Relaxed)
        }
    }

    #[test]
    fn sequence_numbers_go_on_where_a_faster_tier_gives_them() {
        let kind = PortKind::Tunnel(datapath::TunnelKind::Gre);
        let info = PortInfo { number: PortNo(1), name: "gre_sys".to_owned(), kind };
        let port = Port::of_tunnel(info, PortConfig::new(Kind::Gre));
        let tunnel = port.tunnel().expect("a tunnel port");
        assert_eq!([0; 3].map(|_| tunnel.next_sequence()), [0, 1, 2]);
        let counter = Arc::new(Counter(AtomicU32::new(100)));
        tunnel.share_sequence(counter.clone());
        assert_eq!(tunnel.next_sequence(), 103, "3 were given");
        assert_eq!(counter.take(1), 104);
        assert_eq!(tunnel.next_sequence(), 105);
        // Once is enough.
        tunnel.share_sequence(counter.clone());
        assert_eq!(tunnel.next_sequence(), 106);
    }
}
