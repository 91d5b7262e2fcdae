// SPDX-License-Identifier: Apache-2.0
//! The agent: keeps the rules at XDP equal to the kernel's filters.

use crate::changes::Balance;
use crate::effect::Targets;
use crate::layout::MAX_DEVICES;
use crate::plan::Plan;
use crate::program::{Counts, Error, Guard, Program};
use crate::reader::{Place, TcFilter};
use crate::snapshot::Reader;
use datapath_bpf::fit::{XdpFacts, ingress_fit, redirect_fit};
use datapath_bpf::{KernelProber, Prober as _, XdpMode, sys};
use netdev::Kind;
use netdev::link::{ARPHRD_ETHER, Link};
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// XDP passes all packets when the agent has not reported for this long.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How often the agent reports, and takes events: XDP passes packets for about this long after a change.
pub const HEARTBEAT: Duration = Duration::from_millis(20);
/// How often devices are checked for what no event reports: offloads of other ends of veth pairs,
/// captures, programs.
const SURVEY: Duration = Duration::from_secs(5);
/// Pause after a change before the filters are read: programs often make several.
const SETTLE: Duration = Duration::from_millis(2);
/// How often one reading begins again because another change came in between.
const ATTEMPTS: u32 = 10;
/// Qdiscs that send packets in the order in which they get them, and drop none that the device would
/// send: XDP goes past them.
const PLAIN_QDISCS: [&str; 4] = ["noqueue", "mq", "pfifo_fast", "fq_codel"];
/// Bytes of a frame that count not towards the MTU: Ethernet header and one tag.
const HEADERS: u32 = 18;

/// Settings of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The devices, by name.
    pub devices: Vec<String>,
    /// The place of XDP.
    pub mode: XdpMode,
    /// Whether to start without the guard.
    pub guard: Guard,
    /// Time between packets of a filter that are left to traffic control, so that the kernel's time of
    /// last use stays true; zero for none.
    pub refresh: Duration,
}

/// A device that the agent serves.
#[derive(Default)]
pub(crate) struct Served {
    pub(crate) name: String,
    /// 0: the device does not exist.
    pub(crate) ifindex: u32,
    link: Option<OwnedFd>,
    /// Why all packets of the device are left to traffic control.
    pub(crate) problem: Option<String>,
    pub(crate) filters: Vec<TcFilter>,
    pub(crate) plan: Plan,
    /// Counter of the first rule.
    first_counter: u32,
    /// Counts of filters from rules that were replaced.
    carried: HashMap<Place, Counts>,
}

/// A device's filters, their plan, and the reason why all packets are left to traffic control.
type Compiled = (Vec<TcFilter>, Plan, Option<String>);

/// The agent. One thread has it.
pub struct Agent {
    pub(crate) settings: Settings,
    program: Program,
    reader: Reader,
    prober: KernelProber,
    pub(crate) served: Vec<Served>,
    last_survey: Option<Duration>,
    balance: Balance,
    /// Ports of the switch.
    ports: BTreeSet<String>,
}

/// The time of `CLOCK_MONOTONIC`.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32) // below 10^9
}

impl Agent {
    /// Loads the programs, and attaches them to the devices. They pass all packets until the first
    /// [`Agent::step`].
    ///
    /// # Errors
    ///
    /// The kernel lacks something, or a device cannot be served.
    pub fn start(settings: Settings) -> Result<Agent, Error> {
        if settings.devices.len() > MAX_DEVICES {
            let words = format!("one agent serves at most {MAX_DEVICES} devices");
            return Err(io::Error::other(words).into());
        }
        let program = Program::load(settings.guard)?;
        program.revoke();
        program.set_refresh(u64::try_from(settings.refresh.as_nanos()).unwrap_or(u64::MAX));
        let served = settings.devices.iter();
        let served =
            served.map(|name| Served { name: name.clone(), ..Served::default() }).collect();
        let (reader, prober) = (Reader::open()?, KernelProber::default());
        let balance = Balance::new(now());
        let (last_survey, ports) = (None, BTreeSet::new());
        let mut agent =
            Agent { settings, program, reader, prober, served, last_survey, balance, ports };
        for device in &mut agent.served {
            let link = netdev::link::find(&device.name).map_err(|e| {
                io::Error::new(e.kind(), format!("there is no device {}: {e}", device.name))
            })?;
            attach(device, link.index, &agent.program, agent.settings.mode)?;
        }
        Ok(agent)
    }

    /// Sets the names of the switch's ports. The agent leaves those alone that are its own devices.
    pub fn set_switch_ports(&mut self, mut ports: BTreeSet<String>) {
        ports.retain(|port| self.served.iter().any(|device| device.name == *port));
        if self.ports != ports {
            self.ports = ports;
            self.last_survey = None;
        }
    }

    /// Reports that the agent lives, and reads the filters when they may have changed. Must be called
    /// every [`HEARTBEAT`]. Returns the pause until the next call.
    ///
    /// # Errors
    ///
    /// A system call failed. XDP passes all packets, and the next call tries again.
    pub fn step(&mut self) -> io::Result<Duration> {
        let time = now();
        let has_events = self.reader.take_events()?;
        let is_due = self.last_survey.is_none_or(|last| time > last + SURVEY);
        if has_events || is_due || !self.program.is_current() {
            match self.read() {
                Ok(true) => self.last_survey = Some(time),
                Ok(false) => return Ok(SETTLE),
                Err(error) => {
                    self.program.revoke();
                    self.last_survey = None;
                    return Err(error);
                }
            }
        }
        // Only now: after a pause of the agent, rules must not run before it has read its events.
        let deadline = time + PATIENCE;
        self.program.set_deadline(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
        Ok(HEARTBEAT)
    }

    /// Reads the filters, and installs them if they differ. Returns false when changes came in between
    /// too often; XDP passes all packets until the next call.
    fn read(&mut self) -> io::Result<bool> {
        for _ in 0..ATTEMPTS {
            let changes = self.program.changes();
            if self.balance.is_at_rest(changes, now()) {
                let plans = self.plans()?;
                if self.program.changes() == changes {
                    self.install(plans)?;
                    self.program.acknowledge(changes);
                    return Ok(true);
                }
            }
            std::thread::sleep(SETTLE);
        }
        // Without a guard there may be events, and rules that are older than these.
        self.program.revoke();
        Ok(false)
    }

    /// Reads devices and filters, and compiles them: for each device its filters, plan and problem.
    fn plans(&mut self) -> io::Result<Vec<Compiled>> {
        let links = netdev::link::list()?;
        for device in &mut self.served {
            let index = links.iter().find(|link| link.name == device.name).map_or(0, |l| l.index);
            if index == device.ifindex {
                continue;
            }
            (device.ifindex, device.link) = (0, None);
            self.last_survey = None; // the rules must be installed for the new number
            if index != 0 {
                // The device came back; its failure is shown, and the others are served.
                let attached = attach(device, index, &self.program, self.settings.mode);
                device.problem = attached.err().map(|error| error.to_string());
            }
        }
        let indexes: Vec<u32> = self.served.iter().map(|device| device.ifindex).collect();
        let mut all = self.reader.filters(&indexes).map_err(io::Error::from)?;
        let known = Known {
            dissector: sys::has_flow_dissector(),
            ports: &self.ports,
            links: &links,
            prober: &self.prober,
            mode: self.settings.mode,
            attached: &indexes,
            longest: RefCell::default(),
        };
        let mut room = Program::ROOM;
        let mut plans = Vec::new();
        for device in &self.served {
            let filters = all.remove(&device.ifindex).unwrap_or_default();
            let problem = known.problem(device);
            let plan = match &problem {
                None => Plan::new(&filters, &known, room),
                Some(reason) => Plan::none(&filters, reason),
            };
            room -= plan.rules.len();
            plans.push((filters, plan, problem));
        }
        Ok(plans)
    }

    /// Installs plans, if one differs from the installed one. Counts are kept for filters that are the
    /// same.
    fn install(&mut self, plans: Vec<Compiled>) -> io::Result<()> {
        let is_same = self.last_survey.is_some()
            && self.served.iter().zip(&plans).all(|(device, (filters, plan, problem))| {
                is_same_list(&device.filters, filters)
                    && device.plan == *plan
                    && device.problem == *problem
            });
        if is_same {
            return Ok(());
        }
        self.program.suspend()?;
        for device in &mut self.served {
            device.carried = counts(device, &self.program);
        }
        let mut counter = 0;
        for (device, (filters, plan, problem)) in self.served.iter_mut().zip(plans) {
            let before: HashMap<Place, &TcFilter> =
                device.filters.iter().map(|filter| (filter.place, filter)).collect();
            let is_kept = |place: &Place, filter: &TcFilter| {
                before.get(place).is_some_and(|before| is_same_filter(before, filter))
            };
            let carried = filters.iter().filter(|filter| is_kept(&filter.place, filter));
            let carried = carried
                .filter_map(|filter| Some((filter.place, *device.carried.get(&filter.place)?)))
                .collect();
            device.carried = carried;
            device.first_counter = counter;
            counter += plan.rules.len() as u32; // at most Program::ROOM
            (device.filters, device.plan, device.problem) = (filters, plan, problem);
        }
        let plans: Vec<(u32, &Plan)> =
            self.served.iter().map(|device| (device.ifindex, &device.plan)).collect();
        let result = self.program.install(&plans);
        if result.is_err() {
            // Their counters may still have the counts that are carried.
            self.served.iter_mut().for_each(|device| device.plan = Plan::default());
        }
        result
    }

    /// Whether XDP runs rules at this moment.
    pub(crate) fn is_current(&self) -> bool {
        self.program.is_current()
    }

    /// Returns what XDP counts for the filters of a device.
    pub(crate) fn counts(&self, device: &Served) -> HashMap<Place, Counts> {
        counts(device, &self.program)
    }

    /// Returns the packets of a device by [`crate::layout::OUTCOMES`].
    pub(crate) fn outcomes(&self, slot: u32) -> Vec<u64> {
        self.program.outcomes(slot).map(Vec::from).unwrap_or_default()
    }

    /// Reads the filters of all devices with their counts of this moment.
    pub(crate) fn fresh_filters(&mut self) -> HashMap<(u32, Place), TcFilter> {
        let indexes: Vec<u32> = self.served.iter().map(|device| device.ifindex).collect();
        let all = self.reader.filters(&indexes).unwrap_or_default();
        let of = |(ifindex, filters): (u32, Vec<TcFilter>)| {
            filters.into_iter().map(move |filter| ((ifindex, filter.place), filter))
        };
        all.into_iter().flat_map(of).collect()
    }
}

/// Compares filters without their counts.
fn is_same_filter(a: &TcFilter, b: &TcFilter) -> bool {
    a.place == b.place && a.protocol == b.protocol && a.kind == b.kind && a.body == b.body
}

fn is_same_list(a: &[TcFilter], b: &[TcFilter]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_filter(a, b))
}

/// The counts of a device's filters: those of earlier rules and of the present ones.
fn counts(device: &Served, program: &Program) -> HashMap<Place, Counts> {
    let mut all = device.carried.clone();
    for (counter, rule) in (device.first_counter..).zip(&device.plan.rules) {
        if rule.effect.is_none() {
            continue;
        }
        let Ok(counts) = program.counts(counter) else { continue };
        for filter in rule.filters.iter().filter_map(|number| device.filters.get(*number)) {
            let sum = all.entry(filter.place).or_default();
            sum.packets += counts.packets;
            sum.bytes += counts.bytes;
        }
    }
    all
}

fn attach(
    device: &mut Served,
    ifindex: u32,
    program: &Program,
    mode: XdpMode,
) -> Result<(), Error> {
    let remedy = match mode {
        XdpMode::Driver => "; --generic runs it after the driver",
        XdpMode::Generic => "",
    };
    let link = program.attach(ifindex, mode).map_err(|error| {
        let busy = match error.kind() {
            io::ErrorKind::ResourceBusy => " (another program is at its XDP hook)",
            _ => remedy,
        };
        io::Error::new(
            error.kind(),
            format!("XDP cannot be used on {}: {error}{busy}", device.name),
        )
    })?;
    (device.ifindex, device.link) = (ifindex, Some(link));
    Ok(())
}

/// Facts about the devices of the namespace.
struct Known<'a> {
    /// A BPF program dissects flows for the classifier.
    dissector: bool,
    ports: &'a BTreeSet<String>,
    links: &'a [Link],
    prober: &'a KernelProber,
    mode: XdpMode,
    attached: &'a [u32],
    /// Answers of [`Targets::longest`]: thousands of filters may share a target, and to ask the kernel
    /// takes about a millisecond.
    longest: RefCell<HashMap<u32, Result<u32, String>>>,
}

impl Known<'_> {
    /// Why all packets of a device are left to traffic control.
    fn problem(&self, device: &Served) -> Option<String> {
        if device.ifindex == 0 {
            return Some(device.problem.clone().unwrap_or("the device does not exist".into()));
        }
        if self.ports.contains(&device.name) {
            return Some("it is a port of the switch, whose programs have its hooks".into());
        }
        if self.dissector {
            return Some("a BPF program dissects flows in this network namespace".into());
        }
        let link = self.links.iter().find(|link| link.index == device.ifindex);
        if link.is_none_or(|link| link.hardware != ARPHRD_ETHER) {
            return Some("it is no Ethernet device".into());
        }
        if sys::has_program(device.ifindex, libbpf_sys::BPF_TCX_INGRESS) {
            return Some("a BPF program is at tcx, in front of its filters".into());
        }
        let facts = self.prober.xdp_facts(&device.name);
        ingress_fit(&facts, self.mode).err().map(|reason| reason.to_string())
    }
}

impl Targets for Known<'_> {
    fn longest(&self, ifindex: u32) -> Result<u32, String> {
        if let Some(known) = self.longest.borrow().get(&ifindex) {
            return known.clone();
        }
        let found = self.ask(ifindex);
        self.longest.borrow_mut().insert(ifindex, found.clone());
        found
    }
}

impl Known<'_> {
    /// Asks the kernel for the answer of [`Targets::longest`].
    fn ask(&self, ifindex: u32) -> Result<u32, String> {
        let link = self.links.iter().find(|link| link.index == ifindex);
        let Some(link) = link else { return Err("its target does not exist".into()) };
        let name = &link.name;
        if !link.admin_up {
            return Err(format!("{name} is down"));
        }
        if self.prober.has_egress_program(ifindex) {
            return Err(format!("a BPF program is at the egress of {name}"));
        }
        let is_attached = self.attached.contains(&ifindex);
        longest(link, &self.prober.xdp_facts(name), self.mode, is_attached)
    }
}

/// Returns the length of the longest frame that XDP may send by a device with these facts.
/// `is_attached`: the agent's program is at its XDP.
fn longest(link: &Link, facts: &XdpFacts, mode: XdpMode, is_attached: bool) -> Result<u32, String> {
    let name = &link.name;
    // Traffic control takes the Ethernet header off for others, and XDP does not.
    if link.hardware != ARPHRD_ETHER {
        return Err(format!("{name} is no Ethernet device"));
    }
    // After the driver, redirected packets are sent as others are.
    if mode == XdpMode::Driver {
        redirect_fit(facts, Kind::System, is_attached).map_err(|r| format!("{name}: {r}"))?;
    }
    match facts.has_egress_filter {
        Some(false) => {}
        Some(true) => return Err(format!("{name} has filters at its egress")),
        None => return Err(format!("the filters at the egress of {name} cannot be read")),
    }
    match facts.qdisc.as_deref() {
        Some(qdisc) if PLAIN_QDISCS.contains(&qdisc) => Ok(link.mtu + HEADERS),
        qdisc => Err(format!("{name} has the qdisc {}", qdisc.unwrap_or("(unknown)"))),
    }
}

#[cfg(test)]
mod tests;
