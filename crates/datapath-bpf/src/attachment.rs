// SPDX-License-Identifier: Apache-2.0
//! Types of the public interface: configuration, attachments, hooks, errors.

use std::io;
use std::path::PathBuf;

use datapath::{FlowStats, PortNo, Side};
use flow::Match;

use crate::{layout, object};

/// Sizes and paths, which are fixed for the life of a [`crate::BpfDatapath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Directory of this instance in a BPF file system, such as
    /// `/sys/fs/bpf/slipswitch/INSTANCE`. `None`: nothing is pinned, and all objects end with the
    /// process.
    pub pins: Option<PathBuf>,
    /// Number of flow slots; rounded up to a power of two, 1,024 to 2^24. Each takes 384 bytes
    /// with its share of the index and the cache, and 8 more for each shard of CPUs.
    pub max_flows: u32,
    /// Largest number of different masks, at most 65,535.
    pub max_masks: u32,
    /// Largest number of different action lists that are more than one output.
    pub max_programs: u32,
    /// Largest number of packets of one port that may be on their way up to the daemon.
    pub upcall_limit: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            pins: None,
            max_flows: 262_144,
            max_masks: 1024,
            max_programs: 16_384,
            upcall_limit: 512,
        }
    }
}

/// The reason why this host cannot run the BPF datapath. The text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The process lacks a privilege.
    #[error(
        "no permission to {0}: run the daemon as root or give it CAP_BPF, CAP_NET_ADMIN and \
         CAP_PERFMON"
    )]
    Permission(&'static str),
    /// The directory for pins is not in a BPF file system.
    #[error(
        "{path} is not in a BPF file system: mount one with \"mount -t bpf bpf /sys/fs/bpf\" ({cause})"
    )]
    NotBpffs {
        /// Directory for the pins.
        path: PathBuf,
        /// The error of the step that failed.
        cause: io::Error,
    },
    /// Another process uses the same pins.
    #[error("{0} is in use by another daemon: stop it, or name another instance")]
    InUse(PathBuf),
    /// The kernel lacks something.
    #[error("this kernel has no {missing}: it takes Linux {since} or newer with {option}")]
    Kernel {
        /// The missing kernel feature.
        missing: &'static str,
        /// First version that has it.
        since: &'static str,
        /// Kernel configuration option that enables it.
        option: &'static str,
    },
    /// Programs on one CPU may interrupt each other.
    #[error(
        "on this kernel (PREEMPT_RT, Linux 6.18 or newer) programs on one CPU may interrupt each \
         other, which ours do not expect"
    )]
    Preemptible,
    /// The verifier did not accept a program.
    #[error("the kernel's verifier refused the {object} programs ({cause}): {log}")]
    Verifier {
        /// "tc" or "xdp".
        object: &'static str,
        /// The system's error.
        cause: String,
        /// The last lines of the log of the verifier and libbpf.
        log: String,
    },
    /// The programs in this binary are not what the daemon expects.
    #[error("the {object} programs of this build do not fit the daemon: {cause}")]
    Build {
        /// "tc" or "xdp".
        object: &'static str,
        /// The difference between the object and the daemon.
        cause: String,
    },
    /// Not enough memory for this object.
    #[error("no memory for {0}: lower the number of flows, or raise the memory limit")]
    Memory(String),
    /// Any other system call.
    #[error("{step}: {source}")]
    System {
        /// The step that failed.
        step: String,
        /// The system's words.
        source: io::Error,
    },
}

impl Unavailable {
    /// Returns the last line of the verifier's log, without its statistics; of another error its text.
    pub(crate) fn last_line(&self) -> String {
        match self {
            Unavailable::Verifier { log, .. } => object::last_line(log),
            other => other.to_string(),
        }
    }
}

/// The reason why a port was not attached. The text names the interface and the cause.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Port numbers go up to [`layout::MAX_PORTS`].
    #[error("port {0} is beyond the {max} ports of the BPF datapath", max = layout::MAX_PORTS)]
    PortNumber(PortNo),
    /// The table of interfaces has no room near this index.
    #[error("no room for interface index {0} in the BPF datapath's table of interfaces")]
    Interfaces(u32),
    /// XDP at the stack's side of an interface does not exist.
    #[error("interface index {0}: XDP cannot attach to the stack's side of an interface")]
    XdpAtStack(u32),
    /// The kernel refused.
    #[error("interface index {ifindex}: could not attach to {hook} ({source})")]
    Kernel {
        /// Index of the interface.
        ifindex: u32,
        /// "tcx ingress", "XDP in the driver", ….
        hook: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// A pin could not be made.
    #[error("could not pin {path} ({source})")]
    Pin {
        /// The path of the file that the step concerned.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// The place where XDP attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the driver, before the kernel makes an skb.
    Driver,
    /// After the driver, on skbs.
    Generic,
}

/// Hooks of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Whether the skb hook is one of them.
    pub tc: bool,
    /// The mode at the XDP hook; `None`: not at XDP.
    pub xdp: Option<XdpMode>,
    /// At the skb hook, the program is a filter of clsact, which packets meet after the filters of
    /// other programs there. A tcx link would come before them.
    pub after_filters: bool,
}

/// A port as the BPF datapath sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Index of the interface.
    pub ifindex: u32,
    /// The side of the interface whose packets the port receives.
    pub side: Side,
    /// Hooks that the programs attach to.
    pub hooks: Hooks,
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Packets may be sent to the port.
    pub up: bool,
}

/// The owner of the packets that arrive at an interface where programs are attached and the daemon
/// has a packet socket. The kernel gives packets to the socket first. Each packet has one owner,
/// also while the owner changes, as long as the socket has the filter
/// [`crate::BpfDatapath::filter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxOwner {
    /// The socket. Programs take only the packets that the filter kept from the socket before.
    Socket,
    /// The programs take the packets that the filter keeps from the socket.
    Programs,
    /// The programs take all packets. A socket need not exist.
    ProgramsAlone,
}

bitflags::bitflags! {
    /// Hooks that can run a flow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct HookSet: u8 {
        /// The XDP hook.
        const XDP = layout::HOOK_XDP;
        /// The skb hook.
        const TC = layout::HOOK_TC;
    }
}

/// A flow in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The match, equal to the installed one.
    pub matching: Match,
    /// Hooks that can run the flow.
    pub hooks: HookSet,
    /// Counters of the flow's packets.
    pub stats: FlowStats,
}

/// Counters of the whole datapath since its tables were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// Packets dropped, by [`datapath::DropReason`] in numeric order.
    pub drops: [u64; layout::DROPS],
    /// Packets that flows took, including removed flows, as of the last sweep.
    pub hits: u64,
    /// Scans of the masks: lookups that the caches did not answer.
    pub walked: u64,
    /// Masks that these scans searched.
    pub masks_visited: u64,
    /// Scans of the masks that found a flow.
    pub found: u64,
    /// Packets sent up to the daemon.
    pub up: u64,
    /// Packets that XDP left to the next hook.
    pub passed: u64,
    /// Keys that others replaced in the exact-match caches.
    pub evicted: u64,
    /// Present number of masks.
    pub masks: usize,
    /// Present number of flows.
    pub flows: usize,
}
