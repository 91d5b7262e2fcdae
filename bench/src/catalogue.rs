//! The experiments, in words: what each is, and whose table it repeats.

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
    /// The parameter that varies within a table.
    pub across: Option<&'static str>,
    /// Why a peer may be ahead: how its name begins, and a sentence.
    pub why: &'static [(&'static str, &'static str)],
}

/// Why peers may be ahead wherever packets go through the hosts' stacks.
const HOSTS: &[(&str, &str)] = &[(
    "Linux bridge",
    "It forwards inside the receive path without parsing beyond the Ethernet header and without \
     flows to count, and here both ports are known to it.",
)];

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
    across: Some("bytes"),
    why: HOSTS,
};

/// TCP's rates.
pub const TCP: Experiment = Experiment {
    name: "tcp",
    title: "TCP between two containers",
    about: "One connection's throughput; requests of one byte that are answered by one byte, one \
            at a time; connections that are made, used for one request and closed, one at a time. \
            Connections are counted twice: with rules that do not look at TCP's ports, and with \
            rules that do, so that each connection needs two new megaflows.",
    repeats: "none of the papers' tables; the AF_XDP numbers of *Faster OVS Datapath with XDP* \
              leave TCP out",
    across: None,
    why: HOSTS,
};

/// Megaflows that begin.
pub const SETUP: Experiment = Experiment {
    name: "setup",
    title: "Flow set-up",
    about: "UDP datagrams whose destination addresses the switch has not seen since its megaflows \
            were removed, with an OpenFlow rule for each. In bursts of 32, the next when all of one \
            have arrived: new flows a second. One at a time: how long the first packet of a flow \
            takes, and a later one; from before it is sent until it is received, by one thread.",
    repeats: "none of the papers' tables; flow set-up is what *Faster OVS Datapath with XDP* \
              names as the reason not to compile programs for each flow",
    across: None,
    why: &[],
};

/// Rules and their memory.
pub const RULES: Experiment = Experiment {
    name: "rules",
    title: "Adding OpenFlow rules",
    about: "`ovs-ofctl add-flows` of rules that are exact in port and 5-tuple, into an empty table, \
            until the tool returns (it waits for a barrier); the tool's own time is part of it for \
            every switch. Memory is what the daemon has more of afterwards (resident), divided by \
            the number of rules. Open vSwitch keeps rules in the same way on every datapath, so \
            one stands for all.",
    repeats: "none of the papers' tables; 256 K rules are the largest point of *Virtual Switch \
              Acceleration with OVS-TC*",
    across: Some("rules"),
    why: &[],
};

/// Passes of the revalidator.
pub const SWEEP: Experiment = Experiment {
    name: "sweep",
    title: "Bringing statistics home",
    about: "How long one pass over all megaflows takes that reads their statistics, credits the \
            rules and checks that each still holds: the dump duration of `ovs-appctl upcall/show`, \
            in whole milliseconds.",
    repeats: "none of the papers' tables",
    across: Some("megaflows"),
    why: &[],
};

/// CPU of daemons.
pub const CPU: Experiment = Experiment {
    name: "cpu",
    title: "CPU that the daemon uses",
    about: "CPU time of all threads of the daemon, as the scheduler counts it, in percent of one \
            CPU: with nothing to do, and under traffic of 10,000 flows, a rule for each.",
    repeats: "*OVS Kernel Datapath Offload at 100GbE* (Chelsio T6), %CPU against the number of \
              flows: 0.34 % at 10k",
    across: None,
    why: &[],
};

/// Restarts.
pub const RESTART: Experiment = Experiment {
    name: "restart",
    title: "A restart under load",
    about: "10,000 numbered datagrams a second go through the switch while its daemon is told to \
            exit (`ovs-appctl exit`), is started again with `flow-restore-wait`, gets its rules \
            back, and goes on. What did not arrive is lost; silence is the longest time without a \
            datagram.",
    repeats: "none of the papers' tables; the BlueField page notes that rules are gone after a \
              restart",
    across: None,
    why: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_says_what_it_is() {
        for experiment in [ECHO, TCP, SETUP, RULES, SWEEP, CPU, RESTART] {
            assert!(!experiment.about.is_empty() && !experiment.repeats.is_empty());
            assert!(experiment.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        }
    }
}
