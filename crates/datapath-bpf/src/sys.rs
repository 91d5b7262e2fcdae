// SPDX-License-Identifier: Apache-2.0
//! Calls of bpf(2) and membarrier(2) that `libbpf-rs` lacks. Errors are those of the system call.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::{AsRawLibbpf as _, OpenMap};
use zerocopy::{FromBytes, IntoBytes};

/// Converts a result of libbpf: a descriptor or `-errno`.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the call just made this descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Opens the map, program or link that is pinned at `path`.
///
/// # Errors
///
/// Fails when nothing is pinned there, or the process may not open it.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: a string that ends with NUL.
    owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// Pins a map, program or link at `path`, which must be free.
///
/// # Errors
///
/// Fails when the path exists, or is not in a BPF file system.
pub fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: a string that ends with NUL.
    check(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Returns the kernel's build string (`uname -v`).
pub(crate) fn kernel_build() -> String {
    rustix::system::uname().version().to_string_lossy().into_owned()
}

/// Properties of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapInfo {
    /// Type of the map: `BPF_MAP_TYPE_*`.
    pub kind: u32,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Largest number of entries.
    pub max_entries: u32,
    /// Flags that the map was made with: `BPF_F_*`.
    pub flags: u32,
}

/// Returns the properties of a map.
///
/// # Errors
///
/// Fails when `fd` is not a map.
pub fn map_info(fd: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let info = raw_map_info(fd)?;
    Ok(MapInfo {
        kind: info.type_,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        flags: info.map_flags,
    })
}

/// Returns the bytes of a program after the verifier has removed what never runs.
///
/// # Errors
///
/// Fails when the kernel does not describe the program.
pub fn program_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is `len` bytes that the kernel may fill.
    check(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok(info.xlated_prog_len)
}

fn raw_map_info(fd: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_map_info> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = size_of::<libbpf_sys::bpf_map_info>() as u32;
    // SAFETY: `info` is `len` bytes that the kernel may fill.
    check(unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok(info)
}

/// Properties of a map that an object declares before it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Type of the map: `BPF_MAP_TYPE_*`.
    pub(crate) kind: u32,
    /// Size of a key in bytes.
    pub(crate) key_size: u32,
    /// Size of a value in bytes.
    pub(crate) value_size: u32,
    /// Number of the BTF type of the values; 0: none.
    pub(crate) value_type: u32,
    /// The object asks libbpf to pin the map.
    pub(crate) is_pinned: bool,
}

/// Returns the properties that a map of an open object declares.
pub(crate) fn declared(map: &OpenMap<'_>) -> Declared {
    let map = map.as_libbpf_object().as_ptr();
    // SAFETY: the map is of an object that is open as long as it is borrowed; libbpf only reads.
    unsafe {
        Declared {
            kind: libbpf_sys::bpf_map__type(map),
            key_size: libbpf_sys::bpf_map__key_size(map),
            value_size: libbpf_sys::bpf_map__value_size(map),
            value_type: libbpf_sys::bpf_map__btf_value_type_id(map),
            is_pinned: !libbpf_sys::bpf_map__pin_path(map).is_null(),
        }
    }
}

/// Returns true when a program is attached to an interface at a place of `BPF_TCX_*`. Kernels
/// without these have none.
pub fn has_program(ifindex: u32, place: u32) -> bool {
    i32::try_from(ifindex).is_ok_and(|target| is_attached(target, place))
}

/// Returns true when a BPF program dissects flows for the kernel: for the calling thread's network
/// namespace, or for all by that of process 1, where that can be read.
pub fn has_flow_dissector() -> bool {
    ["/proc/thread-self/ns/net", "/proc/1/ns/net"].into_iter().any(|path| {
        let netns = std::fs::File::open(path);
        netns.is_ok_and(|fd| is_attached(fd.as_raw_fd(), libbpf_sys::BPF_FLOW_DISSECTOR))
    })
}

/// Returns true when a program is attached to an interface or to the object of a descriptor.
fn is_attached(target: i32, place: u32) -> bool {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        ..libbpf_sys::bpf_prog_query_opts::default()
    };
    // SAFETY: the options are `sz` bytes; they name no array, so the kernel only counts.
    let result = unsafe { libbpf_sys::bpf_prog_query_opts(target, place, &raw mut options) };
    // SAFETY: `count` and the other member of its union are both plain integers.
    result == 0 && unsafe { options.__bindgen_anon_1.count } > 0
}

/// Sets the 32-bit value at a 32-bit key of a devmap or a table of programs.
///
/// # Errors
///
/// Fails when the map has no such key, or does not accept the value.
pub(crate) fn set(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    // SAFETY: the caller's map has keys and values of 4 bytes, as the loader checked.
    check(unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            0,
        )
    })
    .map(drop)
}

/// Adds or replaces an entry of a map.
///
/// # Errors
///
/// `EINVAL` when the map has keys or values of another size, `E2BIG` when it is full.
pub(crate) fn insert<K: IntoBytes, V: IntoBytes>(
    map: BorrowedFd<'_>,
    key: &K,
    value: &V,
) -> io::Result<()> {
    check_sizes::<K>(map, Some(size_of::<V>()))?;
    // SAFETY: the kernel reads a key and a value of the sizes that the map has.
    check(unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const *key).cast(),
            (&raw const *value).cast(),
            0,
        )
    })
    .map(drop)
}

/// Deletes a key, which need not be there.
///
/// # Errors
///
/// `EINVAL` when the map has keys of another size.
pub(crate) fn delete<K: IntoBytes>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    check_sizes::<K>(map, None)?;
    // SAFETY: the kernel reads a key of the size that the map has.
    match check(unsafe {
        libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), (&raw const *key).cast())
    }) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}

/// Returns the keys of a map that nothing else changes meanwhile.
///
/// # Errors
///
/// `EINVAL` when the map has keys of another size.
pub(crate) fn keys<K: FromBytes + IntoBytes + Copy>(map: BorrowedFd<'_>) -> io::Result<Vec<K>> {
    check_sizes::<K>(map, None)?;
    let mut all: Vec<K> = Vec::new();
    loop {
        let mut next = K::new_zeroed();
        let before = all.last().map_or(std::ptr::null(), |key| (&raw const *key).cast());
        // SAFETY: the kernel reads a key of the size that the map has, or none, and writes one.
        let found = check(unsafe {
            libbpf_sys::bpf_map_get_next_key(map.as_raw_fd(), before, (&raw mut next).cast())
        });
        match found {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(all),
            found => drop(found?),
        }
        all.push(next);
    }
}

/// Checks that the map has keys of type K, and values of this size.
fn check_sizes<K>(map: BorrowedFd<'_>, value: Option<usize>) -> io::Result<()> {
    let info = map_info(map)?;
    let is_right = info.key_size as usize == size_of::<K>()
        && value.is_none_or(|size| info.value_size as usize == size);
    if is_right { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

/// Puts a program into a table of programs.
///
/// # Errors
///
/// Fails when the table has no such key, or its programs are of another kind.
pub fn set_program(tails: BorrowedFd<'_>, key: u32, program: BorrowedFd<'_>) -> io::Result<()> {
    set(tails, key, program.as_raw_fd() as u32)
}

/// Deletes a 32-bit key, which need not be there.
///
/// # Errors
///
/// Fails when the map has keys that cannot be deleted.
pub fn unset(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    // SAFETY: as in `set`.
    match check(unsafe {
        libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), (&raw const key).cast())
    }) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}

/// Returns the value at a key of a per-CPU map, of `bytes` bytes (rounded up to a multiple of 8)
/// for each possible CPU.
///
/// # Errors
///
/// Fails when the map has no such key.
pub(crate) fn per_cpu(map: BorrowedFd<'_>, key: u32, bytes: usize) -> io::Result<Vec<Vec<u8>>> {
    let bytes = bytes.next_multiple_of(8);
    let mut all = vec![0u8; bytes * possible_cpus()?];
    // SAFETY: the kernel writes the value, rounded up to 8 bytes, for each possible CPU.
    check(unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            all.as_mut_ptr().cast(),
        )
    })?;
    Ok(all.chunks(bytes.max(1)).map(<[u8]>::to_vec).collect())
}

/// Returns the number of CPUs that may ever come up.
///
/// # Errors
///
/// Fails when the system does not report it.
pub fn possible_cpus() -> io::Result<usize> {
    // SAFETY: no arguments.
    check(unsafe { libbpf_sys::libbpf_num_possible_cpus() }).map(|n| n as usize)
}

/// Links `program` to an interface. `flags` are those of `BPF_LINK_CREATE`. Dropping the descriptor
/// detaches the link unless it is pinned.
///
/// # Errors
///
/// Fails when the interface does not exist or does not take the program, or the kernel has no such
/// links (`EINVAL`).
pub fn create_link(
    program: BorrowedFd<'_>,
    ifindex: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `opts` is complete and outlives the call.
    owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, &raw const opts)
    })
}

/// Replaces the program of a link.
///
/// # Errors
///
/// Fails when the link was detached, or takes other programs.
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: descriptors and no options.
    check(unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
    })
    .map(drop)
}

/// Detaches a link, pinned or not.
///
/// # Errors
///
/// Fails when the link was detached with its interface.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: one descriptor.
    check(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

/// Returns the index of the interface that a tcx or XDP link is on; 0: the interface is gone.
///
/// # Errors
///
/// Fails when `link` is neither.
pub(crate) fn link_ifindex(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: `info` is `len` bytes that the kernel may fill.
    check(unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    match info.type_ {
        // SAFETY: the kernel filled the member for this type; both are plain integers.
        libbpf_sys::BPF_LINK_TYPE_XDP => Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex }),
        // SAFETY: as above.
        libbpf_sys::BPF_LINK_TYPE_TCX => Ok(unsafe { info.__bindgen_anon_1.tcx.ifindex }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Creates an array map. `flags` are those of `BPF_MAP_CREATE`.
///
/// # Errors
///
/// Fails with `E2BIG` when the kernel takes no value of this size, with `EPERM` when the process
/// lacks a privilege, and when there is no memory.
pub(crate) fn array(bytes: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    create_map(libbpf_sys::BPF_MAP_TYPE_ARRAY, bytes, entries, &options)
}

/// Creates an array of maps that are made as `inner` is.
///
/// # Errors
///
/// Fails when the kernel makes no such map, or the process lacks a privilege.
pub(crate) fn array_of_maps(entries: u32, inner: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        inner_map_fd: inner.as_raw_fd() as u32,
        ..Default::default()
    };
    create_map(libbpf_sys::BPF_MAP_TYPE_ARRAY_OF_MAPS, 4, entries, &options)
}

fn create_map(
    kind: libbpf_sys::bpf_map_type,
    bytes: u32,
    entries: u32,
    options: &libbpf_sys::bpf_map_create_opts,
) -> io::Result<OwnedFd> {
    // SAFETY: `options` is complete and outlives the call; the name is none.
    owned(unsafe { libbpf_sys::bpf_map_create(kind, std::ptr::null(), 4, bytes, entries, options) })
}

/// Creates an array of maps with one element, and the map in it.
///
/// # Errors
///
/// Fails when the kernel makes no such map, or the process lacks a privilege.
pub(crate) fn outer_map() -> io::Result<(OwnedFd, OwnedFd)> {
    let inner = array(4, 1, 0)?;
    let outer = array_of_maps(1, inner.as_fd())?;
    Ok((outer, inner))
}

/// Creates an array map of one value with this many bytes.
///
/// # Errors
///
/// Fails with `E2BIG` when the kernel takes no value of this size.
pub fn value_map(bytes: u32) -> io::Result<OwnedFd> {
    array(bytes, 1, libbpf_sys::BPF_F_MMAPABLE)
}

/// Returns the number by which the kernel knows a map.
///
/// # Errors
///
/// Fails when `fd` is not a map.
pub(crate) fn map_number(fd: BorrowedFd<'_>) -> io::Result<u32> {
    raw_map_info(fd).map(|info| info.id)
}

/// Returns the 32-bit value at a 32-bit key: in an array of maps, the number of the map
/// ([`map_number`]). `None`: the element is empty.
///
/// # Errors
///
/// Fails when the map has no such key.
pub(crate) fn get(map: BorrowedFd<'_>, key: u32) -> io::Result<Option<u32>> {
    let mut value = 0u32;
    // SAFETY: the caller's map has keys and values of 4 bytes.
    let result = check(unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw mut value).cast(),
        )
    });
    match result {
        Ok(_) => Ok(Some(value)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Calls membarrier(2) with `MEMBARRIER_CMD_GLOBAL`, which takes milliseconds.
///
/// # Errors
///
/// Fails on a kernel with `nohz_full` CPUs, or without the call.
pub(crate) fn membarrier() -> io::Result<()> {
    // SAFETY: integers only.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The result of a test run of a program (`BPF_PROG_TEST_RUN`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutput {
    /// The program's return value.
    pub verdict: u32,
    /// The frame as the program left it.
    pub data: Vec<u8>,
    /// The context as the program left it.
    pub context: Vec<u8>,
    /// Mean duration of a run in nanoseconds.
    pub nanoseconds: u32,
}

/// Runs a program `repeat` times over `data`, with `context` (empty for none).
///
/// # Errors
///
/// Fails when the kernel refuses to make a packet of `data`, or to run such a program.
pub fn run(
    program: BorrowedFd<'_>,
    data: &[u8],
    context: &[u8],
    repeat: u32,
) -> io::Result<RunOutput> {
    let mut out = vec![0u8; data.len() + 512];
    let mut context_out = vec![0u8; context.len()];
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: data.as_ptr().cast(),
        data_size_in: data.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        ..Default::default()
    };
    if !context.is_empty() {
        opts.ctx_in = context.as_ptr().cast();
        opts.ctx_size_in = context.len() as u32;
        opts.ctx_out = context_out.as_mut_ptr().cast();
        opts.ctx_size_out = context_out.len() as u32;
    }
    // SAFETY: the pointers in `opts` are live buffers of the stated lengths.
    check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) })?;
    out.truncate(opts.data_size_out as usize);
    context_out.truncate(opts.ctx_size_out as usize);
    Ok(RunOutput {
        verdict: opts.retval,
        data: out,
        context: context_out,
        nanoseconds: opts.duration,
    })
}
