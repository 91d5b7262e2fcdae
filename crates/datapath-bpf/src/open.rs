// SPDX-License-Identifier: Apache-2.0
//! Opens the datapath: creates the maps or takes over the pinned ones, and loads the programs.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use clock::Clock;
use datapath::AdoptedPort;
use libbpf_rs::ProgramType;

use crate::attachment::{Config, Unavailable};
use crate::ct_memory::BpfMemory;
use crate::flows::Flows;
use crate::grace::Grace;
use crate::layout::{STATE_BYTES, TunnelEndpoint, UNDO_BYTES};
use crate::load::{self, Hook};
use crate::maps::{self, Maps, Sizes};
use crate::pins::{Part, Pins};
use crate::settings::VariantSettings;
use crate::variant::{Station, Variants};
use crate::{discard, hash, ports, sets, sys};

/// Number of the helper BPF_FUNC_for_each_map_elem.
const FOR_EACH_MAP_ELEM: libbpf_sys::bpf_func_id = 164;

/// The parts of an open datapath.
pub(crate) struct Opened {
    pub(crate) flows: Flows,
    pub(crate) variants: Variants,
    pub(crate) devmap: Option<OwnedFd>,
    pub(crate) endpoints: Option<OwnedFd>,
    /// The ports in tables that were taken over; `None`: the tables are new.
    pub(crate) adopted: Option<Vec<AdoptedPort>>,
}

fn system(step: &str) -> impl Fn(std::io::Error) -> Unavailable {
    let step = step.to_owned();
    move |source| match source.kind() {
        std::io::ErrorKind::OutOfMemory => Unavailable::Memory(step.clone()),
        _ => Unavailable::System { step: step.clone(), source },
    }
}

/// Checks that the kernel has the calls and helpers that the programs need.
fn probe() -> Result<(), Unavailable> {
    match sys::outer_map() {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(Unavailable::Permission("make BPF maps"));
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
            return Err(Unavailable::Kernel {
                missing: "bpf system call",
                since: "5.15",
                option: "CONFIG_BPF_SYSCALL",
            });
        }
        Err(e) => return Err(system("making a BPF map")(e)),
    }
    match ProgramType::SchedCls.is_helper_supported(FOR_EACH_MAP_ELEM) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Unavailable::Kernel {
            missing: "bpf_for_each_map_elem",
            since: "5.13",
            option: "CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_ACT",
        }),
        Err(_) => Err(Unavailable::Permission("load BPF programs")),
    }
}

/// First kernel where PREEMPT_RT has no lock around softirqs (unless built with
/// PREEMPT_RT_NEEDS_BH_LOCK, which cannot be detected). There one packet's programs may interrupt
/// another's on their CPU, and would mix up the per-CPU data.
const PREEMPTS_SOFTIRQS: (u32, u32) = (6, 18);

/// Returns true for such a kernel, by the text of `uname -v` and the version.
fn is_preemptible(build: &str, version: Option<(u32, u32)>) -> bool {
    build.split_whitespace().any(|word| word == "PREEMPT_RT")
        && version.is_none_or(|version| version >= PREEMPTS_SOFTIRQS)
}

/// Names of the maps that are pinned, with the hook that has one for itself.
///
/// The maps that carry a packet's data from program to program (`states`, `undos`) are among them.
/// If the lookup of an earlier daemon began a packet, the present programs end it, because they
/// have replaced the earlier ones.
fn pinned(sizes: &Sizes) -> Vec<(&'static str, Option<Hook>)> {
    let shared = sizes.arrays().into_iter().map(|(name, ..)| (name, None));
    let own = [Hook::Tc, Hook::Xdp]
        .into_iter()
        .flat_map(|hook| hook.own_maps().iter().map(move |name| (*name, Some(hook))));
    let sets = sets::NAMES.into_iter().map(|name| (name, None));
    shared.chain([("devmap", None), ("endpoints", None)]).chain(own).chain(sets).collect()
}

/// Returns the key of a map in the table of open maps.
fn key(name: &str, hook: Option<Hook>) -> String {
    match hook {
        Some(hook) => format!("{name}_{}", hook.name()),
        None => name.to_owned(),
    }
}

/// Returns the maps that an earlier daemon left, if this daemon can use them.
fn left(pins: &Pins, sizes: &Sizes) -> Option<HashMap<String, OwnedFd>> {
    if pins.is_empty(Part::Flows) {
        return None;
    }
    let names: Vec<(String, PathBuf)> = pinned(sizes)
        .into_iter()
        .map(|(name, hook)| (key(name, hook), pins.map(name, hook)))
        .collect();
    let found = same_layout(pins).and_then(|()| match pins.maps(&names) {
        None => Err("not all maps are there".to_owned()),
        Some(maps) => compatible(&maps, sizes).map(|()| maps),
    });
    found
        .inspect_err(|why| {
            tracing::warn!(target: "dpif", "the BPF flows of a former daemon are not taken over: {why}");
        })
        .ok()
}

fn same_layout(pins: &Pins) -> Result<(), String> {
    let config = pins.map("config", None);
    let fd = sys::open_pin(&config).map_err(|e| format!("{}: {e}", config.display()))?;
    maps::check_layout_of(fd.as_fd())
}

fn compatible(fds: &HashMap<String, OwnedFd>, sizes: &Sizes) -> Result<(), String> {
    for (name, fd) in fds {
        let info = sys::map_info(fd.as_fd()).map_err(|e| format!("map {name}: {e}"))?;
        sizes.check(name, &info)?;
        let per_cpu = libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY;
        let expected = match name.as_str() {
            "devmap" => (libbpf_sys::BPF_MAP_TYPE_DEVMAP, 4, 4),
            "endpoints" => (libbpf_sys::BPF_MAP_TYPE_HASH, size_of::<TunnelEndpoint>() as u32, 4),
            name if sets::NAMES.contains(&name) => (libbpf_sys::BPF_MAP_TYPE_DEVMAP, 4, 4),
            _ if name.starts_with("tails") => (libbpf_sys::BPF_MAP_TYPE_PROG_ARRAY, 4, 4),
            _ if name.starts_with("states") => (per_cpu, 4, STATE_BYTES),
            _ if name.starts_with("undos") => (per_cpu, 4, UNDO_BYTES),
            _ => continue,
        };
        if (info.kind, info.key_size, info.value_size) != expected {
            return Err(format!("map {name} is of another kind"));
        }
    }
    let maps = Maps::map(fds, *sizes).map_err(|e| e.to_string())?;
    maps.configured().map(drop)
}

fn is_too_big(made: &std::io::Result<OwnedFd>) -> bool {
    made.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::E2BIG))
}

/// Opens the datapath over `pins`, if there are any. Its programs track connections in the memory,
/// if there is one.
///
/// # Errors
///
/// Those of [`crate::BpfDatapath::open`].
pub(crate) fn open(
    config: &Config,
    clock: Clock,
    pins: Option<&Pins>,
    connections: Option<&BpfMemory>,
) -> Result<Opened, Unavailable> {
    if is_preemptible(&sys::kernel_build(), netdev::kernel_version().ok()) {
        return Err(Unavailable::Preemptible);
    }
    probe()?;
    let mut sizes = Sizes::new(config, sys::possible_cpus().map_err(system("counting CPUs"))?);
    // Other errors come again in the calls that report them. Sizes must not depend on those errors,
    // because tables of other sizes are not taken over.
    sizes.limit_emc(|bytes| !is_too_big(&sys::value_map(bytes)));
    let grace = Grace::new().map_err(system("waiting for a grace period"))?;
    let left = pins.and_then(|pins| left(pins, &sizes));
    let is_new = left.is_none();
    let mut fds = left.unwrap_or_default();
    let (factors, generation) = match Maps::map(&fds, sizes) {
        Ok(maps) => (maps.config.read(0).factors, maps.next_generation()),
        Err(_) => (hash::factors(), 1), // new: there are no maps yet
    };
    if let Some(memory) = connections {
        for (name, fd) in memory.maps() {
            fds.insert(name, fd.try_clone_to_owned().map_err(system("copying a descriptor"))?);
        }
    }
    let full = VariantSettings::full(&sizes, &factors, generation, load::have_frags());
    let mut stations = vec![station(Hook::Tc, &full, &sizes, &mut fds)?];
    match station(Hook::Xdp, &full, &sizes, &mut fds) {
        Ok(station) => stations.push(station),
        Err(e) => tracing::warn!(target: "dpif", "no XDP, the skb hook is used alone: {e}"),
    }
    let maps = Maps::map(&fds, sizes).map_err(system("mapping the tables"))?;
    let devmaps = set_devmaps(&fds).map_err(system("copying a descriptor"))?;
    let (flows, adopted) = if is_new {
        maps.configure(&factors);
        (Flows::new(maps, devmaps, factors, grace, clock), None)
    } else {
        let (flows, found) = Flows::adopt(maps, devmaps, factors, grace, clock)
            .map_err(system("waiting for a grace period"))?;
        let ports = ports::list(flows.maps());
        // A daemon that was killed did not end it, and nothing has followed the devices since.
        for port in &ports {
            ports::set_peer(flows.maps(), port.number.0, None);
        }
        tracing::info!(
            target: "dpif", "took over {} BPF flows on {} ports ({} damaged ones were removed)",
            found.flows,
            ports.len(),
            found.refused
        );
        (flows, Some(ports))
    };
    for station in &stations {
        station.fill_tails().map_err(system("filling the table of programs"))?;
    }
    if let (Some(pins), true) = (pins, is_new) {
        // To load programs takes about a second. Until now packets ran through what is removed here.
        discard::clear(pins);
        pin_all(pins, &fds, &sizes)?;
    }
    let (devmap, endpoints) = (fds.remove("devmap"), fds.remove("endpoints"));
    let variants = Variants::new(stations, full, sizes);
    Ok(Opened { flows, variants, devmap, endpoints, adopted })
}

/// Returns the devmaps of the sets of ports; none without XDP.
fn set_devmaps(fds: &HashMap<String, OwnedFd>) -> std::io::Result<Vec<OwnedFd>> {
    sets::NAMES.iter().filter_map(|name| fds.get(*name)).map(OwnedFd::try_clone).collect()
}

/// Loads a hook's programs over the maps in `fds`, and adds the maps that loading created.
fn station(
    hook: Hook,
    settings: &VariantSettings,
    sizes: &Sizes,
    fds: &mut HashMap<String, OwnedFd>,
) -> Result<Station, Unavailable> {
    let own = hook.own_maps();
    let mut have: HashMap<_, _> = fds.iter().map(|(name, fd)| (name.clone(), fd.as_fd())).collect();
    for name in own {
        if let Some(fd) = fds.get(&key(name, Some(hook))) {
            have.insert((*name).to_owned(), fd.as_fd());
        }
    }
    let loaded = load::load(hook, None, settings, sizes, &have)?;
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(system("copying a descriptor"));
    // Programs that are loaded later get these, too. The loader knows the maps of connections by no
    // name: those that it is given are called as in the kernel.
    let mut maps = HashMap::new();
    for (name, fd) in &have {
        let fd = fd.try_clone_to_owned().map_err(system("copying a descriptor"))?;
        maps.insert(name.clone(), fd);
    }
    for (name, fd) in loaded.maps() {
        let owner = own.contains(&&*name).then_some(hook);
        fds.insert(key(&name, owner), copy(&fd)?);
        maps.insert(name, fd);
    }
    let mut programs = HashMap::new();
    for name in hook.programs() {
        match loaded.program(name) {
            Some(program) => drop(programs.insert(name, program)),
            None if loaded.is_refused(name) => {}
            None => {
                let cause = format!("no program {name}");
                return Err(Unavailable::Build { object: hook.name(), cause });
            }
        }
    }
    let refused = loaded.refused().to_vec();
    Ok(Station { hook, programs, maps, refused })
}

fn pin_all(pins: &Pins, fds: &HashMap<String, OwnedFd>, sizes: &Sizes) -> Result<(), Unavailable> {
    for (name, hook) in pinned(sizes) {
        let Some(fd) = fds.get(&key(name, hook)) else { continue };
        let path = pins.map(name, hook);
        sys::pin(fd.as_fd(), &path).map_err(system(&format!("pinning {}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_where_programs_interrupt_each_other_are_known() {
        let build = "#1 SMP PREEMPT_RT Debian 6.18.3-1 (2026-01-10)";
        assert!(is_preemptible(build, Some((6, 18))));
        assert!(is_preemptible(build, Some((7, 0))));
        assert!(is_preemptible(build, None));
        assert!(!is_preemptible(build, Some((6, 12))), "a lock is around them");
        assert!(!is_preemptible("#1 SMP PREEMPT_DYNAMIC @0", Some((6, 18))));
    }

    #[test]
    fn programs_that_the_kernel_refuses_are_left_out_and_reported() {
        if testing::without_root() {
            return;
        }
        let config = Config { max_flows: 1024, ..Config::default() };
        let left_out = |faulty: &[&'static str]| {
            load::tests::set_faulty(faulty);
            let opened = open(&config, Clock::new(), None, None);
            load::tests::set_faulty(&[]);
            let opened = opened.unwrap_or_else(|error| panic!("{faulty:?}: {error}"));
            let stations = opened.variants.stations();
            assert_eq!(stations.len(), 2, "{faulty:?}");
            let mut left_out = Vec::new();
            for station in stations {
                for (tail, name) in station.hook.tails() {
                    let place = sys::get(station.tails().unwrap(), *tail as u32).unwrap();
                    assert_eq!(place.is_some(), station.programs.contains_key(name), "{name}");
                    if place.is_none() {
                        left_out.push(*name);
                    }
                }
                for refused in &station.refused {
                    assert!(left_out.contains(&refused.program));
                    let text = refused.to_string();
                    assert!(
                        text.contains("the kernel refused it (") && !text.contains("no reason"),
                        "{text}"
                    );
                }
            }
            let reported = stations.iter().flat_map(|station| &station.refused);
            assert_eq!(reported.map(|refused| refused.program).collect::<Vec<_>>(), left_out);
            left_out
        };
        for faulty in [
            &[][..],
            &["ct_move_tc"],
            &["chain_tc"],
            &["chain_xdp"],
            &["tun_chain_tc"],
            &["tun_chain_xdp"],
            &["ct_move_tc", "chain_tc", "tun_chain_tc", "chain_xdp", "tun_chain_xdp"],
        ] {
            assert_eq!(left_out(faulty), faulty);
        }
    }
}
