// SPDX-License-Identifier: Apache-2.0
//! The experiments, in words: what each is, and whose table it repeats.

use crate::point::Value;

/// An experiment, for readers and for the command line.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// As `--only` and points have it.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What is done, and what is counted.
    pub about: &'static str,
    /// The paper whose table or figure it repeats; `nothing` with a reason when it is our own.
    pub repeats: &'static str,
    /// Metrics that the page shows, the others being in the file of results; none for all.
    pub shown: &'static [&'static str],
    /// Takes so long that it is left out of a short run unless it is asked for by name.
    pub long: bool,
    /// The parameter that varies within a table.
    pub across: Option<&'static str>,
    /// What only a full run has beside more and longer rounds; empty for nothing.
    pub more: &'static str,
    /// Why a peer may be ahead.
    pub why: &'static [Reason],
}

/// Why a peer may be ahead in some metrics.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// How the peer's name begins.
    pub system: &'static str,
    /// The metrics that it explains.
    pub metrics: &'static [&'static str],
    /// The largest value of the parameter across for which it does; `None` for all.
    pub most: Option<u64>,
    /// A sentence.
    pub words: &'static str,
}

impl Experiment {
    /// Why a peer is ahead in a metric at a value of the parameter across, if that is known.
    pub fn reason(&self, system: &str, metric: &str, at: &Value) -> Option<&'static str> {
        let holds = |most: u64| matches!(at, Value::Count(count) if *count <= most);
        let fits = |reason: &&Reason| {
            system.starts_with(reason.system)
                && reason.metrics.contains(&metric)
                && reason.most.is_none_or(holds)
        };
        self.why.iter().find(fits).map(|reason| reason.words)
    }
}

/// Why peers may be ahead wherever packets go through the hosts' stacks.
const HOSTS: &[Reason] = &[
    Reason {
        system: "Linux bridge",
        metrics: &["time of an echo", "throughput", "requests", "connections"],
        most: None,
        words: "It forwards inside the receive path without parsing beyond the Ethernet header and \
                without flows to count, and here both ports are known to it.",
    },
    Reason { system: "OVS AF_XDP", ..POLLS },
    Reason { system: "OVS-DPDK", ..POLLS },
];

/// What polling is worth to hosts that wait for each other, as long as messages are short.
const POLLS: Reason = Reason {
    system: "",
    metrics: &["time of an echo", "requests", "connections", "connections, megaflows for each"],
    most: Some(1 << 14),
    words: "Its thread polls on a CPU of its own, also when nothing comes: between a request and \
            its answer that CPU does not go to sleep, and waking an idle one takes longer than \
            forwarding does.",
};

/// Why peers may be ahead where flows begin.
const MISSES: &[Reason] = &[
    Reason { system: "OVS AF_XDP", ..AWAKE },
    Reason { system: "OVS-DPDK", ..AWAKE },
    Reason {
        system: "OVS AF_PACKET",
        metrics: &["first packet"],
        most: None,
        words: "Every packet goes through its main thread, which is mostly still awake from the one \
                before; the daemon of Slipswitch sleeps by then, and to wake it is \
                most of what takes longer, above all where CPUs are virtual.",
    },
];

/// What polling is worth to first packets.
const AWAKE: Reason = Reason {
    system: "",
    metrics: &["new flows", "first packet"],
    most: None,
    words: "Its thread polls on a CPU of its own: a first packet wakes nobody, while the daemon of \
            Slipswitch sleeps until the kernel has something for it.",
};

/// Why peers may be ahead where frames come from the generator.
const FRAMES: &[Reason] = &[
    Reason {
        system: "Linux bridge",
        metrics: &[
            "rate",
            "throughput",
            "rate per core",
            "latency p50",
            "latency p99",
            "latency p99.9",
        ],
        most: None,
        words: "It forwards by destination address alone: neither rules nor flows are looked at, \
                and nothing is counted for a flow. It is behind the bare redirects' hooks, so where \
                these are behind it, too, it is not a lookup that makes the difference.",
    },
    Reason { system: "OVS AF_XDP", ..OWN_CPU },
    Reason { system: "OVS-DPDK", ..OWN_CPU },
];

/// What a thread that polls has for itself.
const OWN_CPU: Reason = Reason {
    system: "",
    metrics: &["rate", "throughput"],
    most: None,
    words: "Its polling thread has a CPU of its own, which the figure for each core takes into \
            account and the plain rate does not.",
};

/// Frame sizes by numbers of flows.
pub const GRID: Experiment = Experiment {
    name: "grid",
    title: "UDP by frame size and number of flows",
    about: "Frames of the generator arrive on one port and leave by another, as fast as the \
            generator can, with an OpenFlow rule for each flow (port and 5-tuple); flows take turns \
            in random order. Ports stand for network cards. Counted is what arrives; the rate is \
            per second of time, the rate per core per second of CPU time of all that moves \
            packets, the generator included. The generator and what the kernel does for arriving \
            frames share one CPU; daemons have the other. The bare generator sends the same frames \
            into the sink without a switch, in turn with every system: that is the limit of all. The \
            limit of whoever has flows is the bare XDP lookup, which finds a flow's 16 bytes by \
            its number and counts: with many flows it waits for memory, as every switch then does. \
            Rules are put in by one bundle, and nothing is measured before each flow has its megaflow; where \
            some are missing, a note says so. Latency is of 100,000 frames a second at an even pace, from the generator to the \
            sink; of one flow it is taken in turn with the bare XDP redirect, which its ratio is to, in turns \
            of 50 ms, because a machine that others use, too, may be twice as fast a second later. \
            Bytes are with Ethernet's checksum.",
    repeats: "*Virtual Switch Acceleration with OVS-TC*, 8 frame sizes by 7 numbers of flows up to \
              256 K, rules 1:1",
    shown: &[
        "rate",
        "throughput",
        "rate per core",
        "loss",
        "latency p50",
        "latency p99",
        "latency p99.9",
    ],
    long: false,
    across: Some("flows"),
    more: "all 8 frame sizes by 7 numbers of flows, and the latency of each",
    why: FRAMES,
};

/// Numbers of flows.
pub const FLOWS: Experiment = Experiment {
    name: "flows",
    title: "Rate and CPU by the number of flows",
    about: "The smallest frames, as above. CPU is that of all that moves packets, in percent of \
            one CPU, the generator included: it is never idle here.",
    repeats: "*OVS Kernel Datapath Offload at 100GbE* (Chelsio T6), packets a second and %CPU \
              against 1 to 10 K flows",
    shown: &["rate", "rate per core", "CPU"],
    long: false,
    across: Some("flows"),
    more: "7 numbers of flows, also with one rule for all of them",
    why: FRAMES,
};

/// One flow.
pub const ONE_FLOW: Experiment = Experiment {
    name: "one-flow",
    title: "One UDP flow, from a network card to a card and to a container",
    about: "The smallest frames of one flow, as above. A container is behind a plain veth pair, \
            with nothing switched on or off at it. What the generator sends is counted where its \
            device would take the frames, which end there; the bare generator's frames reach the \
            sink, which takes time of the same CPU.",
    repeats: "the single-flow figures of the papers on AF_XDP in Open vSwitch: physical to \
              physical and physical to container",
    shown: &["rate", "rate per core", "latency p50", "latency p99"],
    long: false,
    across: None,
    more: "",
    why: FRAMES,
};

/// Latency under a load that is half of OVS-DPDK's.
pub const HALF: Experiment = Experiment {
    name: "half",
    title: "Latency at half of OVS-DPDK's rate",
    about: "The smallest frames of one flow between cards, at an even pace: half of what OVS-DPDK \
            moves in this run. Where that is known, the notes below say how many frames it is.",
    repeats: "*Virtual Switch Acceleration with OVS-TC*, 2.5 times lower latency than OVS-DPDK",
    shown: &["latency p50", "latency p99"],
    long: false,
    across: None,
    more: "",
    why: FRAMES,
};

/// Masks of megaflows.
pub const MASKS: Experiment = Experiment {
    name: "masks",
    title: "Rate by the number of masks",
    about: "The smallest frames of 16,384 flows, as above, whose megaflows have so many different \
            masks; each flow has a megaflow of its own. There are more flows than Open \
            vSwitch's exact-match cache holds; its signature match cache, which is on here, spares \
            most packets the search through the masks. The exact-match cache of Slipswitch's BPF \
            datapath holds all of them.",
    repeats: "none of the papers' tables; *Faster OVS Datapath with XDP* has a hash table for each \
              mask",
    shown: &["rate", "rate per core"],
    long: false,
    across: Some("masks"),
    more: "9 numbers of masks",
    why: FRAMES,
};

/// Echo of messages by TCP.
pub const ECHO: Experiment = Experiment {
    name: "echo",
    title: "Echo through the switch, 16 B to 16 MiB",
    about: "A client sends a message by TCP, the server sends it back when it has all of it, and \
            the client compares. Each end has one thread. The time is from before sending until \
            all is back, as a mean over up to 50 exchanges on one connection (fewer of large \
            messages in the short run). Ports are plain veth pairs to two namespaces. Slipswitch \
            tcx against Slipswitch userspace is offload on against offload off.",
    repeats: "*Open vSwitch in NVIDIA BlueField SmartNIC*, echo test with OVS offload on and off",
    shown: &[],
    long: false,
    across: Some("bytes"),
    more: "sizes by factors of 4, and 50 exchanges of large messages, too",
    why: HOSTS,
};

/// TCP's rates.
pub const TCP: Experiment = Experiment {
    name: "tcp",
    title: "TCP between two containers",
    about: "One connection's throughput; requests of one byte that are answered by one byte, one \
            at a time; connections that are made, used for one request and closed, one at a time. \
            Connections are counted twice: with rules that do not look at TCP's ports, and with \
            rules that do, so that each connection needs two new megaflows. Hosts control congestion \
            by CUBIC, as Linux does by itself, whatever this machine was told: TCP that paces itself \
            would show its timers. Systems take turns of 50 ms, because a machine that others use, \
            too, may be twice as fast a second later; a round is the mean over as many turns as fill \
            its time.",
    repeats: "none of the papers' tables; the AF_XDP numbers of *Faster OVS Datapath with XDP* \
              leave TCP out",
    shown: &[],
    long: false,
    across: None,
    more: "",
    why: HOSTS,
};

/// TCP beside a flood.
pub const FLOOD: Experiment = Experiment {
    name: "flood",
    title: "TCP beside a port that floods the switch",
    about: "One TCP connection between two containers, while a third sends the smallest UDP packets \
            as fast as one thread can; the switch drops all of them. Either one megaflow does so, or \
            addresses and ports decide about each packet (they are random, so each is a new flow), \
            or rules of many prefixes do (so that flows have many masks). Sending the packets takes \
            CPU from the sender, too: they share one, receiver and daemon have the other. So what \
            new flows and masks cost is the ratio, in brackets, to the throughput beside packets \
            that one flow drops. It is measured when a flood has gone on for four seconds: what a port has \
            saved up for new flows is spent then. CPU is that of the daemon, in percent of one. How many packets were sent \
            and how many megaflows there were is in the file of results.",
    repeats: "none of the papers' tables; it is what a hostile container can do to its neighbours",
    shown: &["throughput", "CPU of the daemon"],
    long: true,
    across: Some("flood"),
    more: "",
    why: &[],
};

/// Megaflows that begin.
pub const SETUP: Experiment = Experiment {
    name: "setup",
    title: "Flow set-up",
    about: "UDP datagrams whose destination addresses the switch has not seen since its megaflows \
            were removed, with an OpenFlow rule for each. 64 of them are on their way, and with each \
            that arrives another one is sent: new flows a second, and the CPU time of all threads \
            of the daemon for each. One at a time: how long the first packet of a flow takes, and \
            a later one; from before it is sent until it is received. One thread sends and \
            receives. Each flow is to have a megaflow when it has begun, which is looked at; for flows \
            of one packet Slipswitch makes as many only with `other_config:upcall-cpu-percent=100`, which \
            it has here. To the limit, a redirect, no flow is new: it is what the two ends can do.",
    repeats: "none of the papers' tables; flow set-up is what *Faster OVS Datapath with XDP* \
              names as the reason not to compile programs for each flow",
    shown: &[],
    long: false,
    across: None,
    more: "65,536 flows in place of 16,384",
    why: MISSES,
};

/// Rules and their memory.
pub const RULES: Experiment = Experiment {
    name: "rules",
    title: "Adding OpenFlow rules",
    about: "`ovs-ofctl add-flows` of rules that are exact in port and 5-tuple, into an empty table, \
            until the tool returns; it waits for a barrier behind each rule. Tool and daemon have a \
            CPU each. The tool's own time is part of it for every switch: the limit, in turn with \
            every switch, is a server that polls, answers barriers and keeps nothing. The tool \
            sleeps until it has its answer, so where an idle CPU halts at once and is slow to wake, \
            that is most of the time of a switch, but where the answer comes before the CPU has \
            halted, some 4 µs after the request: Slipswitch answers when it has accepted a rule, and \
            adds it while the tool makes the next one. Memory is what the daemon has more of \
            afterwards (resident), divided by the number of rules. Open vSwitch keeps rules in the \
            same way on every datapath, so one stands for all.",
    repeats: "none of the papers' tables; 256 K rules are the largest point of *Virtual Switch \
              Acceleration with OVS-TC*",
    shown: &[],
    long: false,
    across: Some("rules"),
    more: "65,536 rules, too",
    why: &[],
};

/// Passes of the revalidator.
pub const SWEEP: Experiment = Experiment {
    name: "sweep",
    title: "Bringing statistics home",
    about: "How long one pass over all megaflows takes that reads their statistics, credits the \
            rules and checks that each still holds: the dump duration of `ovs-appctl upcall/show`, \
            in whole milliseconds. Megaflows are made as above.",
    repeats: "none of the papers' tables",
    shown: &[],
    long: false,
    across: Some("megaflows"),
    more: "16,384 megaflows, too",
    why: &[],
};

/// CPU of daemons.
pub const CPU: Experiment = Experiment {
    name: "cpu",
    title: "CPU that the daemon uses",
    about: "CPU time of all threads of the daemon, as the scheduler counts it, in percent of one \
            CPU: with nothing to do, and under traffic of 10,000 flows, a rule for each. Megaflows \
            that meet nothing go after 10 s, as by default. Daemons that do not poll have nothing \
            to do at the same time, and traffic one after the other.",
    repeats: "*OVS Kernel Datapath Offload at 100GbE* (Chelsio T6), %CPU against the number of \
              flows: 0.34 % at 10k",
    shown: &[],
    long: false,
    across: None,
    more: "",
    why: &[],
};

/// Restarts.
pub const RESTART: Experiment = Experiment {
    name: "restart",
    title: "A restart under load",
    about: "10,000 numbered datagrams a second go through the switch while its daemon is told to \
            exit (`ovs-appctl exit`), is started again with `flow-restore-wait`, gets its rules \
            back, and goes on. What did not arrive is lost; the delay is that of the datagram that \
            was longest on its way. The goal is judged by the worst of the restarts, the table has the \
            one in the middle.",
    repeats: "none of the papers' tables; the BlueField page notes that rules are gone after a \
              restart",
    shown: &[],
    long: false,
    across: None,
    more: "",
    why: &[
        Reason { system: "Linux bridge", ..LOST_INSTEAD },
        Reason { system: "OVS", ..LOST_INSTEAD },
    ],
};

/// What is lost has no delay.
const LOST_INSTEAD: Reason = Reason {
    system: "",
    metrics: &["longest delay"],
    most: None,
    words: "The packets of that time are lost there, as the table above has them, and what is lost is \
            not late.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_says_what_it_is() {
        for (experiment, ..) in crate::experiment::ALL {
            assert!(!experiment.about.is_empty() && !experiment.repeats.is_empty());
            assert!(experiment.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        }
    }

    #[test]
    fn reasons_are_for_what_they_explain() {
        let reason = |metric, bytes| ECHO.reason("OVS-DPDK", metric, &Value::Count(bytes));
        assert_eq!(reason("time of an echo", 16), Some(POLLS.words));
        assert_eq!(reason("time of an echo", 16 << 20), None);
        let reason = |metric| GRID.reason("OVS AF_XDP", metric, &Value::Count(1));
        assert_eq!(reason("rate"), Some(OWN_CPU.words));
        assert_eq!(reason("rate per core"), None);
        assert_eq!(GRID.reason("Linux bridge", "loss", &Value::Count(1)), None);
    }
}
