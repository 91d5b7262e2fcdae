// SPDX-License-Identifier: Apache-2.0
//! Loads the compiled programs of both hooks.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{
    MapCore as _, Object, ObjectBuilder, OpenObject, OpenProgramMut, PrintLevel, ProgramType,
};
use zerocopy::IntoBytes;

use crate::attachment::Unavailable;
use crate::layout::Tail;
use crate::maps::{Sizes, TABLES, short_name};
use crate::settings::VariantSettings;

/// The bytes of an object file, with the alignment that ELF structures need.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static TC: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o")));
static XDP: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o")));

/// A hook of the kernel, and the object that has its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// The skb hook: `bpf/tc.bpf.c`.
    Tc,
    /// The XDP hook: `bpf/xdp.bpf.c`.
    Xdp,
}

impl Hook {
    /// Returns its name in messages and in the names of pins.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Hook::Tc => "tc",
            Hook::Xdp => "xdp",
        }
    }

    /// Returns the bytes of the object file.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Hook::Tc => &TC.0,
            Hook::Xdp => &XDP.0,
        }
    }

    /// Returns the contents of the table of programs: each slot and the name of its program.
    pub fn tails(self) -> &'static [(Tail, &'static str)] {
        match self {
            Hook::Tc => &[
                (Tail::Lookup, "lookup_tc"),
                (Tail::Recirc, "recirc_tc"),
                (Tail::MaskScan, "mask_scan_tc"),
                (Tail::Exec, "exec_tc"),
                (Tail::Pull, "pull_tc"),
                (Tail::Miss, "miss_tc"),
                (Tail::Ct, "ct_tc"),
                (Tail::CtMove, "ct_move_tc"),
                (Tail::Chain, "chain_tc"),
                (Tail::Tunnel, "tunnel_tc"),
                (Tail::TunPush, "tun_push_tc"),
                (Tail::TunChain, "tun_chain_tc"),
                (Tail::Police, "police_tc"),
            ],
            Hook::Xdp => &[
                (Tail::Lookup, "lookup_xdp"),
                (Tail::Recirc, "recirc_xdp"),
                (Tail::MaskScan, "mask_scan_xdp"),
                (Tail::Exec, "exec_xdp"),
                (Tail::Precheck, "precheck_xdp"),
                (Tail::Ct, "ct_xdp"),
                (Tail::Chain, "chain_xdp"),
                (Tail::Tunnel, "tunnel_xdp"),
                (Tail::TunPush, "tun_push_xdp"),
                (Tail::TunChain, "tun_chain_xdp"),
            ],
        }
    }

    /// Returns the programs without which the others work.
    pub(crate) fn optional(self) -> &'static [Optional] {
        match self {
            Hook::Tc => &[
                Optional {
                    program: "ct_move_tc",
                    effect: "the daemon makes connections and moves their states: fewer new ones a \
                             second",
                    keeps_chains: false,
                },
                Optional { program: "chain_tc", effect: ALL_LOOKUPS, keeps_chains: true },
                Optional {
                    program: "tun_chain_tc",
                    effect: LOOKUPS_OF_TUNNELS,
                    keeps_chains: false,
                },
            ],
            Hook::Xdp => &[
                Optional { program: "chain_xdp", effect: ALL_LOOKUPS, keeps_chains: true },
                Optional {
                    program: "tun_chain_xdp",
                    effect: LOOKUPS_OF_TUNNELS,
                    keeps_chains: false,
                },
            ],
        }
    }

    /// Returns the names of the maps that the hook does not share with the other one.
    pub(crate) fn own_maps(self) -> &'static [&'static str] {
        match self {
            Hook::Tc => &["tails", "states", "scratch", "saved", "push_scratch"],
            Hook::Xdp => &["tails", "states", "undos", "scratch"],
        }
    }

    /// Returns the names of the programs that are attached.
    pub(crate) fn entries(self) -> impl Iterator<Item = &'static str> {
        let names: &[&str] = match self {
            Hook::Tc => &[
                "entry_tc_ingress",
                "entry_tc_egress",
                "entry_tc_underlay",
                "entry_tc_helper",
                "entry_tc_segment",
                "entry_tc_up",
            ],
            Hook::Xdp => &["entry_xdp"],
        };
        names.iter().copied()
    }

    /// Returns the name of the filter for sockets that share devices with the programs
    /// (`bpf/ingress.h`).
    pub(crate) fn filter(self) -> Option<&'static str> {
        match self {
            Hook::Tc => Some("filter_socket"),
            Hook::Xdp => None,
        }
    }

    /// Returns the names of all programs.
    pub fn programs(self) -> impl Iterator<Item = &'static str> {
        let tails = self.tails().iter().map(|(_, name)| *name);
        tails.chain(self.entries()).chain(self.filter())
    }

    /// Returns the name of the program at [`Tail::Lookup`].
    pub(crate) fn lookup(self) -> &'static str {
        match self {
            Hook::Tc => "lookup_tc",
            Hook::Xdp => "lookup_xdp",
        }
    }
}

/// A program without which the others work.
pub(crate) struct Optional {
    /// Its name.
    pub(crate) program: &'static str,
    /// The consequence of its absence, for people.
    pub(crate) effect: &'static str,
    /// Without it no results of chains are kept.
    pub(crate) keeps_chains: bool,
}

/// The consequence when results of chains do not serve packets out of tunnels and into them.
const LOOKUPS_OF_TUNNELS: &str = "each packet of a tracked connection that comes out of a tunnel, or \
                                  goes into one, takes all lookups of its pipeline";

/// The consequence when results of chains are not kept.
const ALL_LOOKUPS: &str = "each packet of a tracked connection takes all lookups of its pipeline: \
                           less than half the packets a second";

/// An optional program that the kernel refused. The text names the reason and the consequence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("without the program {program} {effect}; the kernel refused it ({cause})")]
pub(crate) struct Refused {
    /// Its name.
    pub(crate) program: &'static str,
    effect: &'static str,
    /// The last line of the verifier's log.
    cause: String,
}

/// `include/uapi/linux/bpf.h`: the program takes frames in several buffers.
const XDP_HAS_FRAGS: u32 = 1 << 5;
/// Number of the helper BPF_FUNC_xdp_get_buff_len.
const XDP_GET_BUFF_LEN: libbpf_sys::bpf_func_id = 188;

/// First kernel that redirects frames in several buffers. Linux 5.18 to 6.2 accept such frames, but
/// drop them without an error when they are redirected.
const REDIRECTS_FRAGS: (u32, u32) = (6, 3);

/// Returns true when XDP programs of this kernel can take frames in several buffers and redirect
/// them. If they cannot, a driver refuses XDP at an MTU that takes several buffers, or makes them
/// one. Asks the kernel each time.
pub fn have_frags() -> bool {
    netdev::kernel_version().is_ok_and(|version| version >= REDIRECTS_FRAGS)
        && ProgramType::Xdp.is_helper_supported(XDP_GET_BUFF_LEN).unwrap_or(false)
}

/// Makes an XDP program take frames in several buffers, or only whole ones, regardless of its
/// section. Programs that share a table of programs must be alike in this.
pub(crate) fn set_frags(program: &mut OpenProgramMut<'_>, frags: bool) {
    // With the type libbpf forgets the section, whose flag it would add when it loads.
    program.set_prog_type(ProgramType::SchedCls);
    program.set_prog_type(ProgramType::Xdp);
    program.set_flags(if frags { XDP_HAS_FRAGS } else { 0 });
}

/// A loaded object. Dropping it closes its descriptors; programs and maps that are in use elsewhere
/// stay.
pub struct Loaded {
    object: Object,
    /// The optional programs that the kernel refused.
    refused: Vec<Refused>,
}

impl Loaded {
    /// Returns the optional programs that the kernel refused.
    pub(crate) fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Returns true when the kernel refused the program, and the others work without it.
    pub(crate) fn is_refused(&self, name: &str) -> bool {
        self.refused.iter().any(|refused| refused.program == name)
    }

    /// Returns a descriptor of a program by its name. `None`: there is none, it is an optional one
    /// and was refused, or no descriptor is left.
    pub fn program(&self, name: &str) -> Option<OwnedFd> {
        if self.is_refused(name) {
            return None;
        }
        let program = self.object.progs().find(|p| p.name() == OsStr::new(name))?;
        program.as_fd().try_clone_to_owned().ok()
    }

    /// Returns a descriptor of a map by its name in the object. `None`: there is none, or no
    /// descriptor is left.
    pub fn map(&self, name: &str) -> Option<OwnedFd> {
        let map = self.object.maps().find(|m| m.name() == OsStr::new(name))?;
        map.as_fd().try_clone_to_owned().ok()
    }

    /// Returns descriptors of all maps except those of constants and those without a name in the
    /// kernel, with their short names.
    pub fn maps(&self) -> Vec<(String, OwnedFd)> {
        let maps = self.object.maps().filter_map(|m| {
            let name = short_name(m.name().to_str()?);
            if name.contains('.') || name.is_empty() {
                return None;
            }
            Some((name.to_owned(), m.as_fd().try_clone_to_owned().ok()?))
        });
        maps.collect()
    }
}

/// Loads the programs of `hook` (all, or only `only`) with `settings`, over the maps in `have` by
/// their short names. Creates the maps that `have` lacks, with these `sizes`. Takes some 100 ms,
/// most of it in the verifier. Only one thread loads at a time, the others wait.
///
/// A kernel that refuses the programs may accept them without some of the optional ones. The fewest
/// are left out.
///
/// # Errors
///
/// Fails when the kernel refuses a map or another program, or the process lacks a privilege or
/// memory.
pub fn load(
    hook: Hook,
    only: Option<&str>,
    settings: &VariantSettings,
    sizes: &Sizes,
    have: &HashMap<String, BorrowedFd<'_>>,
) -> Result<Loaded, Unavailable> {
    let _words = Words::listen();
    let optional = if only.is_some() { &[] } else { hook.optional() };
    let (object, refused) = with_most(optional, |without| {
        let is_out = |name: &str| without.iter().any(|left_out| left_out.program == name);
        let wanted = |name: &OsStr| {
            only.is_none_or(|only| name == OsStr::new(only)) && !name.to_str().is_some_and(is_out)
        };
        let mut settings = *settings;
        if without.iter().any(|left_out| left_out.keeps_chains) {
            settings.chains = 0;
        }
        Words::forget();
        load_wanted(hook, &wanted, &settings, sizes, have)
    })?;
    for refused in &refused {
        tracing::warn!(target: "dpif", "{refused}: a newer kernel may take it");
    }
    Ok(Loaded { object, refused })
}

/// Calls `load` with the fewest programs left out with which it succeeds. Returns its value and the
/// programs that were left out.
///
/// # Errors
///
/// Fails when each attempt fails, with the error of the first one, or when an attempt fails for
/// another reason than the verifier.
fn with_most<T>(
    optional: &'static [Optional],
    mut load: impl FnMut(&[&'static Optional]) -> Result<T, Unavailable>,
) -> Result<(T, Vec<Refused>), Unavailable> {
    // An attempt is a set of bits.
    let mut attempts: Vec<usize> = (0..1 << optional.len()).collect();
    attempts.sort_by_key(|attempt| attempt.count_ones());
    let mut errors: Vec<(usize, Unavailable)> = Vec::new();
    for attempt in attempts {
        let is_out = |at: usize| attempt >> at & 1 != 0;
        let without: Vec<(usize, &Optional)> =
            optional.iter().enumerate().filter(|(at, _)| is_out(*at)).collect();
        let programs: Vec<&Optional> = without.iter().map(|(_, program)| *program).collect();
        match load(&programs) {
            Ok(value) => {
                // The attempt that left out all the others failed because of this one.
                let cause = |at: usize| {
                    let (_, error) =
                        errors.iter().find(|(other, _)| *other == attempt & !(1 << at))?;
                    Some(error.last_line())
                };
                let refused = without.into_iter().map(|(at, optional)| Refused {
                    program: optional.program,
                    effect: optional.effect,
                    cause: cause(at).unwrap_or_default(),
                });
                return Ok((value, refused.collect()));
            }
            Err(error @ Unavailable::Verifier { .. }) => errors.push((attempt, error)),
            Err(error) => return Err(error),
        }
    }
    Err(errors.swap_remove(0).1) // there is at least the attempt with all programs
}

/// Loads the programs for whose names `wanted` returns true.
fn load_wanted(
    hook: Hook,
    wanted: &dyn Fn(&OsStr) -> bool,
    settings: &VariantSettings,
    sizes: &Sizes,
    have: &HashMap<String, BorrowedFd<'_>>,
) -> Result<Object, Unavailable> {
    let build = |cause: String| Unavailable::Build { object: hook.name(), cause };
    let mut open = ObjectBuilder::default()
        .name(hook.name())
        .and_then(|b| b.open_memory(hook.bytes()))
        .map_err(|e| build(format!("{e} ({})", Words::said())))?;
    set_settings(&mut open, hook, settings).map_err(build)?;
    for mut map in open.maps_mut() {
        let name = short_name(&map.name().to_string_lossy()).to_owned();
        let wrong = |e: libbpf_rs::Error| build(format!("map {name}: {e}"));
        if let Some((bytes, entries)) = sizes.shape(&name) {
            // A table that is taken over, too: libbpf unmaps as many bytes of its own image as
            // the map has.
            if TABLES.contains(&&*name) {
                map.set_value_size(bytes).map_err(wrong)?;
            }
            map.set_max_entries(entries).map_err(wrong)?;
        }
        if let Some(fd) = have.get(&name) {
            map.reuse_fd(*fd).map_err(wrong)?;
        }
    }
    for mut program in open.progs_mut() {
        let is_wanted = wanted(program.name());
        program.set_autoload(is_wanted);
        if hook == Hook::Xdp {
            set_frags(&mut program, settings.have_frags != 0);
        }
        #[cfg(test)]
        tests::break_faulty(&mut program);
    }
    open.load().map_err(|e| failure(hook, &e))
}

fn failure(hook: Hook, error: &libbpf_rs::Error) -> Unavailable {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied
            if !rustix::process::geteuid().is_root() && !Words::said().contains("processed") =>
        {
            Unavailable::Permission("load BPF programs")
        }
        libbpf_rs::ErrorKind::OutOfMemory => Unavailable::Memory("BPF maps and programs".into()),
        _ => Unavailable::Verifier {
            object: hook.name(),
            cause: error.to_string(),
            log: Words::said(),
        },
    }
}

/// Writes `settings` into the constants of the built-in programs.
fn set_settings(
    open: &mut OpenObject,
    hook: Hook,
    settings: &VariantSettings,
) -> Result<(), String> {
    let btf = Btf::from_raw("programs", hook.bytes())
        .map_err(|e| format!("type information: {e}"))?
        .ok_or("no type information")?;
    match write_settings(open, &btf, settings)? {
        true => Ok(()),
        false => Err("no struct settings".into()),
    }
}

/// Writes `settings` into the constants of an object. Returns false when the object has no
/// settings.
///
/// # Errors
///
/// Returns a sentence when the object has other settings, or they cannot be written.
pub(crate) fn write_settings(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    settings: &VariantSettings,
) -> Result<bool, String> {
    let Some((at, size)) = variable(btf, ".rodata", "settings") else { return Ok(false) };
    if size != size_of::<VariantSettings>() {
        return Err(format!(
            "its struct settings has {size} bytes, {} are known: build it with the headers of \
             this daemon",
            size_of::<VariantSettings>()
        ));
    }
    let mut map = open
        .maps_mut()
        .find(|m| m.name().to_string_lossy().ends_with(".rodata"))
        .ok_or("no constants")?;
    let bytes = map.initial_value_mut().ok_or("no constants")?;
    let place = bytes.get_mut(at..at + size).ok_or("too few constants")?;
    place.copy_from_slice(settings.as_bytes());
    Ok(true)
}

/// Returns the offset and the size, in bytes, of a variable in a section of constants.
pub(crate) fn variable(btf: &Btf<'_>, section: &str, name: &str) -> Option<(usize, usize)> {
    let section: DataSec<'_> = btf.type_by_name(section)?;
    let is_it =
        |ty| btf.type_by_id::<Var<'_>>(ty).is_some_and(|v| v.name() == Some(OsStr::new(name)));
    let place = section.iter().find(|place| is_it(place.ty))?;
    Some((place.offset as usize, place.size))
}

/// Collects the messages of libbpf (and through it the verifier) while an object is loaded, for the
/// error.
pub(crate) struct Words<'a> {
    _one_at_a_time: std::sync::MutexGuard<'a, ()>,
}

static LOADING: Mutex<()> = Mutex::new(());
static SAID: Mutex<String> = Mutex::new(String::new());
/// Bytes kept of the log; the verifier's last lines name the defect.
const KEPT: usize = 4096;

impl Words<'_> {
    pub(crate) fn listen() -> Words<'static> {
        let guard = LOADING.lock().unwrap_or_else(|e| e.into_inner());
        Words::forget();
        libbpf_rs::set_print(Some((PrintLevel::Info, |level, text| {
            tracing::debug!(target: "bpf", ?level, "{}", text.trim_end());
            let mut said = SAID.lock().unwrap_or_else(|e| e.into_inner());
            said.push_str(&text);
            if said.len() > 2 * KEPT {
                *said = last(&said).to_owned();
            }
        })));
        Words { _one_at_a_time: guard }
    }

    /// Drops the messages so far.
    fn forget() {
        SAID.lock().unwrap_or_else(|e| e.into_inner()).clear();
    }

    pub(crate) fn said() -> String {
        last(SAID.lock().unwrap_or_else(|e| e.into_inner()).trim()).to_owned()
    }
}

fn last(text: &str) -> &str {
    let mut from = text.len().saturating_sub(KEPT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

impl Drop for Words<'_> {
    fn drop(&mut self) {
        libbpf_rs::set_print(None);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        /// Programs that the kernel refuses in this thread's loads.
        static FAULTY: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    /// Makes the kernel refuse programs in the loads of this thread, until the next call.
    pub(crate) fn set_faulty(programs: &[&'static str]) {
        FAULTY.with_borrow_mut(|faulty| programs.clone_into(faulty));
    }

    /// Gives a faulty program a type in which it may not call its helpers.
    pub(super) fn break_faulty(program: &mut OpenProgramMut<'_>) {
        let name = program.name().to_string_lossy().into_owned();
        if FAULTY.with_borrow(|faulty| faulty.contains(&name.as_str())) {
            program.set_prog_type(ProgramType::SocketFilter);
        }
    }

    const THREE: &[Optional] = &[
        Optional { program: "a", effect: "x", keeps_chains: false },
        Optional { program: "b", effect: "y", keeps_chains: false },
        Optional { program: "c", effect: "z", keeps_chains: false },
    ];

    fn refusal(log: &str) -> Unavailable {
        Unavailable::Verifier { object: "tc", cause: "EINVAL".into(), log: log.into() }
    }

    /// Returns the programs that are left out, with the reasons, when these are refused.
    fn left_out(faulty: &[&str]) -> Result<Vec<(&'static str, String)>, Unavailable> {
        let load = |without: &[&'static Optional]| {
            let is_out = |name: &&&str| without.iter().any(|other| other.program == **name);
            match faulty.iter().find(|name| !is_out(name)) {
                Some(name) => Err(refusal(name)),
                None => Ok(()),
            }
        };
        let ((), refused) = with_most(THREE, load)?;
        Ok(refused.into_iter().map(|refused| (refused.program, refused.cause)).collect())
    }

    #[test]
    fn no_more_programs_are_left_out_than_are_refused() {
        let reasons = |names: &[&'static str]| -> Vec<(&'static str, String)> {
            names.iter().map(|name| (*name, (*name).to_owned())).collect()
        };
        for faulty in [&[][..], &["a"], &["b"], &["c"], &["a", "b"], &["b", "c"], &["a", "b", "c"]]
        {
            assert_eq!(left_out(faulty).unwrap(), reasons(faulty));
        }
        // The first attempt names the programs that are refused.
        assert_eq!(left_out(&["lookup"]).unwrap_err().last_line(), "lookup");
    }

    #[test]
    fn another_error_than_the_verifiers_ends_the_attempts() {
        let mut attempts = 0;
        let result = with_most(THREE, |_| -> Result<(), Unavailable> {
            attempts += 1;
            Err(Unavailable::Memory("maps".into()))
        });
        assert!(matches!(result, Err(Unavailable::Memory(_))));
        assert_eq!(attempts, 1);
    }
}
