// SPDX-License-Identifier: Apache-2.0
//! A user's own object: read, checked against what the daemon has, and loaded over its maps.
//! `docs/user-programs.md` is the contract.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use libbpf_rs::btf::types::{Array, DataSec, Var};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType as _};
use libbpf_rs::{Object, ObjectBuilder, OpenMap, OpenObject};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::capabilities::Capabilities;
use crate::layout::{ConfigEntry, EmcLine, Epochs, Iface, LastFlow, Moves, Port};
use crate::load::{Words, set_frags, variable, write_settings};
use crate::maps::{TABLES, short_name};
use crate::settings::VariantSettings;
use crate::sys;

/// Section of `struct capabilities`.
const SECTION: &str = ".rodata.slipswitch";
/// Larger files are not read.
const MOST_BYTES: u64 = 16 << 20;
/// Number of lines of the verifier's log that are kept.
const LAST_LINES: usize = 16;

/// The reason why a user's object is not used. The text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Path of the object file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The file is not an object that follows the contract.
    #[error("{path}: {problem}", path = path.display())]
    Contract {
        /// Path of the object file.
        path: PathBuf,
        /// The difference from the expected object.
        problem: String,
    },
    /// The kernel did not take it.
    #[error("{path}: the kernel refused it ({cause}): {last}", path = path.display(), last = last_line(log))]
    Refused {
        /// Path of the object file.
        path: PathBuf,
        /// The system's error.
        cause: String,
        /// The last lines of the log of the verifier and libbpf.
        log: String,
    },
    /// Waiting for the programs of the earlier object failed.
    #[error("waiting for BPF programs to end: {0}")]
    Wait(io::Error),
    /// No XDP programs could be loaded at all.
    #[error("XDP is not available: the log says why")]
    NoXdp,
}

impl ObjectError {
    /// Returns the verifier's log, of several lines, if the verifier ran.
    pub fn log(&self) -> Option<&str> {
        match self {
            ObjectError::Refused { log, .. } => Some(log),
            _ => None,
        }
    }
}

/// A user's program, loaded.
#[derive(Debug)]
pub struct UserObject {
    /// The loaded XDP program.
    pub program: OwnedFd,
    /// The capabilities that the object declares.
    pub capabilities: Capabilities,
}

/// The type of a map's values by its name; `None`: integers of 4 bytes.
fn value_type(map: &str) -> Option<&'static str> {
    Some(match map {
        "slots" => "slot",
        "details" => "slot_detail",
        "emc" => "emc_line",
        "last_flows" => "last_flow",
        "epochs" => "epochs",
        "moves" => "moves",
        "masks" => "mask",
        "index" => "bucket",
        "cache" => "cache_line",
        "recent" => "recent",
        "totals" => "totals",
        "programs" => "program",
        "ports" => "port",
        "port_sets" => "port_set",
        "port_stats" => "port_stats",
        "ifaces" => "iface",
        "counters" => "counters",
        "meters" => "meter",
        "policers" => "policer",
        "bond_places" => "bond_places",
        "bonds" => "bond",
        "bond_bytes" => "bond_bytes",
        "config" => "config",
        "states" => "state",
        _ => return None,
    })
}

impl UserObject {
    /// Loads the object at `path` over `maps`, the maps of the XDP hook by their names. Creates the
    /// other maps that it declares. Its settings are made from those of the full variant, `full`.
    /// The verifier may take a second for a large program.
    ///
    /// # Errors
    ///
    /// Returns the defect: the file cannot be read, does not follow the contract, or is refused by
    /// the kernel.
    pub fn load(
        path: &Path,
        full: &VariantSettings,
        maps: &HashMap<String, OwnedFd>,
    ) -> Result<UserObject, ObjectError> {
        let contract = |problem| ObjectError::Contract { path: path.to_owned(), problem };
        let bytes = read(path).map_err(|source| ObjectError::File { path: path.into(), source })?;
        let _words = Words::listen();
        let Examined { mut open, btf, capabilities } = examine(&bytes).map_err(contract)?;
        bind(&mut open, &btf, maps).map_err(contract)?;
        write_settings(&mut open, &btf, &settings_for(full, &capabilities)).map_err(contract)?;
        open.progs_mut().for_each(|mut program| set_frags(&mut program, full.have_frags != 0));
        let object = open.load().map_err(|e| ObjectError::Refused {
            path: path.to_owned(),
            cause: e.to_string(),
            log: last_lines(&Words::said()),
        })?;
        let program =
            program(&object).map_err(|source| ObjectError::File { path: path.into(), source })?;
        Ok(UserObject { program, capabilities })
    }
}

/// Returns the capabilities that the object at `path` declares. Loads nothing.
///
/// # Errors
///
/// Fails when the file cannot be read, or does not follow the contract.
pub fn examine_file(path: &Path) -> Result<Capabilities, ObjectError> {
    let bytes = read(path).map_err(|source| ObjectError::File { path: path.into(), source })?;
    let _words = Words::listen();
    match examine(&bytes) {
        Ok(examined) => Ok(examined.capabilities),
        Err(problem) => Err(ObjectError::Contract { path: path.to_owned(), problem }),
    }
}

/// An object that follows the contract, as far as that can be checked without loading it.
struct Examined<'a> {
    open: OpenObject,
    btf: Btf<'a>,
    capabilities: Capabilities,
}

/// Checks an object. The caller must hold a [`Words`] listener, which collects libbpf's messages.
fn examine(bytes: &Bytes) -> Result<Examined<'_>, String> {
    if !bytes.get().starts_with(b"\x7fELF") {
        return Err("it is no ELF object: build it with clang -target bpf -c".into());
    }
    let said = |what: &str, e: &dyn std::fmt::Display| {
        format!("{what} ({e}): {}", last_line(&Words::said()))
    };
    let open = ObjectBuilder::default()
        .name("user")
        .and_then(|b| b.open_memory(bytes.get()))
        .map_err(|e| said("libbpf cannot read it as a BPF object", &e))?;
    let btf = Btf::from_raw("user", bytes.get())
        .map_err(|e| said("its type information cannot be read", &e))?
        .ok_or("no type information: build it with -g")?;
    check_program(&open)?;
    let capabilities = capabilities(&open, &btf)?;
    capabilities.check()?;
    Ok(Examined { open, btf, capabilities })
}

/// An object's bytes, with the alignment that ELF structures need.
struct Bytes {
    words: Vec<u64>,
    length: usize,
}

impl Bytes {
    fn get(&self) -> &[u8] {
        self.words.as_bytes().get(..self.length).unwrap_or_default()
    }
}

fn read(path: &Path) -> io::Result<Bytes> {
    if !path.is_absolute() {
        return Err(io::Error::other("the path must be absolute"));
    }
    // Opening a FIFO would block.
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    crate::pins::check_owner(path, &about)?; // it runs in the kernel
    if about.len() > MOST_BYTES {
        return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    let length = bytes.len();
    words.as_mut_bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    Ok(Bytes { words, length })
}

fn check_program(open: &OpenObject) -> Result<(), String> {
    let programs: Vec<_> = open.progs().collect();
    let [program] = programs.as_slice() else {
        return Err(format!(
            "it has {} programs where one is wanted, in SEC(\"xdp\") or SEC(\"xdp.frags\")",
            programs.len()
        ));
    };
    let section = program.section().to_string_lossy();
    if section != "xdp" && section != "xdp.frags" {
        return Err(format!(
            "its program is in SEC(\"{section}\"): SEC(\"xdp\") or SEC(\"xdp.frags\") is wanted"
        ));
    }
    Ok(())
}

fn program(object: &Object) -> io::Result<OwnedFd> {
    let program = object.progs().next().ok_or(io::ErrorKind::NotFound)?;
    program.as_fd().try_clone_to_owned()
}

fn capabilities(open: &OpenObject, btf: &Btf<'_>) -> Result<Capabilities, String> {
    let missing =
        || "it does not say what it can do: use CAPABILITIES() of capabilities.h, once".to_owned();
    let (at, size) = variable(btf, SECTION, "capabilities").ok_or_else(missing)?;
    if size != size_of::<Capabilities>() {
        return Err(format!(
            "its struct capabilities has {size} bytes, {} are known: build it with the headers of \
             this daemon",
            size_of::<Capabilities>()
        ));
    }
    let map = open.maps().find(|m| m.name() == OsStr::new(SECTION)).ok_or_else(missing)?;
    let bytes = map.initial_value().and_then(|b| b.get(at..)).ok_or_else(missing)?;
    Capabilities::read_from_prefix(bytes).map(|(c, _)| c).map_err(|_| missing())
}

/// Replaces the maps that the object declares by the daemon's maps of the same names.
fn bind(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    maps: &HashMap<String, OwnedFd>,
) -> Result<(), String> {
    for map in open.maps() {
        if let Some(fd) = maps.get(short_name(&map.name().to_string_lossy())) {
            check_map(&map, btf, fd.as_fd())?;
        }
    }
    for mut map in open.maps_mut() {
        let name = short_name(&map.name().to_string_lossy()).to_owned();
        let wrong = |e: &dyn std::fmt::Display| format!("map {name}: {e}");
        let Some(fd) = maps.get(&name) else { continue };
        if TABLES.contains(&&*name) {
            // Else libbpf would unmap more than its image of the declared entry.
            let bytes = sys::map_info(fd.as_fd()).map_err(|e| wrong(&e))?.value_size;
            map.set_value_size(bytes).map_err(|e| wrong(&e))?;
        }
        map.reuse_fd(fd.as_fd()).map_err(|e| wrong(&e))?;
    }
    Ok(())
}

/// Returns the name of the type of a map's values, or of a table's entries.
fn type_name(btf: &Btf<'_>, value_type: u32) -> Option<String> {
    let ty = btf.type_by_id::<BtfType<'_>>(value_type.into())?.skip_mods_and_typedefs();
    let entry = match DataSec::try_from(ty) {
        Err(_) => ty,
        Ok(section) => {
            let var = btf.type_by_id::<Var<'_>>(section.iter().next()?.ty)?;
            let array: Array<'_> = var.referenced_type().try_into().ok()?;
            array.contained_type().skip_mods_and_typedefs()
        }
    };
    Some(entry.name()?.to_string_lossy().into_owned())
}

/// Returns the bytes of a map's value, or of a table's entry, by the daemon's own types.
fn value_bytes(name: &str, info: &sys::MapInfo) -> u32 {
    match name {
        "emc" => size_of::<EmcLine>() as u32,
        "last_flows" => size_of::<LastFlow>() as u32,
        "epochs" => size_of::<Epochs>() as u32,
        "moves" => size_of::<Moves>() as u32,
        "config" => size_of::<ConfigEntry>() as u32,
        "ports" => size_of::<Port>() as u32,
        "ifaces" => size_of::<Iface>() as u32,
        _ => info.value_size,
    }
}

fn check_map(map: &OpenMap<'_>, btf: &Btf<'_>, ours: BorrowedFd<'_>) -> Result<(), String> {
    let name = map.name().to_string_lossy();
    let name = short_name(&name);
    let wrong = |what: String| Err(format!("map {name} {what}: declare it as maps.h does"));
    let declared = sys::declared(map);
    let info = sys::map_info(ours).map_err(|e| format!("map {name}: {e}"))?;
    if declared.is_pinned {
        return wrong("asks to be pinned, which ours are not by their objects".into());
    }
    let is = (declared.kind, declared.key_size, declared.value_size);
    let wanted = (info.kind, info.key_size, value_bytes(name, &info));
    if is != wanted {
        return wrong(format!(
            "is of type {} with keys of {} and values of {} bytes where type {}, {} and {} are \
             wanted",
            is.0, is.1, is.2, wanted.0, wanted.1, wanted.2
        ));
    }
    let Some(wanted) = value_type(name) else { return Ok(()) };
    let found = type_name(btf, declared.value_type);
    match found {
        Some(found) if found == wanted => Ok(()),
        Some(found) => wrong(format!("has values of type {found} where struct {wanted} is wanted")),
        None => wrong(format!("has values without a type where struct {wanted} is wanted")),
    }
}

/// Returns the settings for a program with these capabilities.
fn settings_for(full: &VariantSettings, capabilities: &Capabilities) -> VariantSettings {
    let mut settings = VariantSettings { needs: capabilities.needs, ..*full };
    for (x, word) in settings.union_mask.iter_mut().enumerate() {
        if capabilities.needs >> x & 1 == 0 {
            *word = 0;
        }
    }
    settings
}

/// Returns the last lines of a verifier's log, without its statistics and libbpf's frame.
fn last_lines(log: &str) -> String {
    let is_said = |line: &&str| {
        !line.trim().is_empty()
            && !line.starts_with("processed ")
            && !line.contains("PROG LOAD LOG --")
            && !line.contains("failed to load")
    };
    let mut lines: Vec<&str> = log.lines().rev().filter(is_said).take(LAST_LINES).collect();
    lines.reverse();
    lines.join("\n")
}

pub(crate) fn last_line(log: &str) -> String {
    last_lines(log).lines().last().unwrap_or("it gave no reason").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_word_is_kept() {
        let log = "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\n1: (61) r0 = \
                   *(u8 *)(r1 +9)\nR1 offset is outside of the packet\nprocessed 3 insns (limit \
                   1000000)\n-- END PROG LOAD LOG --\nlibbpf: failed to load object 'user'\n";
        assert_eq!(last_line(log), "R1 offset is outside of the packet");
        assert_eq!(last_lines(log).lines().count(), 3);
        assert_eq!(last_line(""), "it gave no reason");
        let long = "x\n".repeat(1000);
        assert_eq!(last_lines(&long).lines().count(), LAST_LINES);
    }

    #[test]
    fn only_whole_files_are_read() {
        let name = |p: &str| read(Path::new(p)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(name("relative.o").contains("absolute"));
        assert!(name("/dev/null").contains("regular"));
        assert!(name("/").contains("regular"));
        assert!(name("/no/such/file").contains("No such file"));
    }
}
