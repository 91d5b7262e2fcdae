// SPDX-License-Identifier: Apache-2.0
//! The system calls that need `unsafe`, each wrapped once.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// See [`crate::return_large_blocks`]; other allocators than glibc's are left as they are.
pub(crate) fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    for setting in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: it changes a number of the allocator, under the allocator's own lock. A setting
        // that it does not know (the result is 0 then) does nothing.
        unsafe { libc::mallopt(setting, 128 << 10) };
    }
}

/// Which side of a fork this is.
pub(crate) enum Fork {
    Parent(i32),
    Child,
}

/// Forks the process.
///
/// # Errors
/// The kernel's, or an error when the process has more than one thread: the child would have only
/// the calling one, and whatever locks the others held would never be released.
pub(crate) fn fork() -> io::Result<Fork> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(io::Error::other(format!("the process has {threads} threads already")));
    }
    // SAFETY: the process has a single thread (checked above; nothing else could start one in
    // between), so the child's copy of memory is consistent and it may go on as any program.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Killed { signal: i32, core: bool },
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exited(status) => write!(f, "exit status {status}"),
            Ended::Killed { signal, core } => {
                write!(f, "killed ({})", signal_name(*signal))?;
                f.write_str(if *core { ", core dumped" } else { "" })
            }
        }
    }
}

/// Waits for the child `pid` to end.
pub(crate) fn wait(pid: i32) -> io::Result<Ended> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for the call to write one int to.
        match check(unsafe { libc::waitpid(pid, &raw mut status, 0) }) {
            Ok(_) if libc::WIFEXITED(status) => {
                return Ok(Ended::Exited(libc::WEXITSTATUS(status)));
            }
            Ok(_) if libc::WIFSIGNALED(status) => {
                return Ok(Ended::Killed {
                    signal: libc::WTERMSIG(status),
                    core: libc::WCOREDUMP(status),
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Ends the process at once, without destructors: for the parent of a fork, which must not undo
/// what its child still uses.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: always sound; it does not return.
    unsafe { libc::_exit(status) }
}

/// The words for a signal, `Segmentation fault`.
pub(crate) fn signal_name(signal: i32) -> String {
    // SAFETY: strsignal returns null or a string that stays until the next call in this thread;
    // it is copied at once.
    let text = unsafe {
        let text = libc::strsignal(signal);
        (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| format!("signal {signal}"))
}

/// Sets what a signal does: `SIG_DFL` or `SIG_IGN`.
pub(crate) fn set_disposition(signal: i32, ignore: bool) -> io::Result<()> {
    let handler = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither SIG_DFL nor SIG_IGN runs code of ours.
    if unsafe { libc::signal(signal, handler) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets a function as the handler of a signal, system calls being restarted.
///
/// # Safety
/// `handler` must be async-signal-safe: it may touch atomics and make plain system calls, no more,
/// and must leave `errno` as it was.
pub(crate) unsafe fn set_handler(
    signal: i32,
    handler: extern "C" fn(libc::c_int),
) -> io::Result<()> {
    // SAFETY: all-zero is a valid sigaction; its fields are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: both pointers are to live values; the handler is safe by the caller's promise.
    unsafe {
        libc::sigemptyset(&raw mut action.sa_mask);
        check(libc::sigaction(signal, &raw const action, std::ptr::null_mut()))?;
    }
    Ok(())
}

/// Sends a signal to a process.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Starts a new session.
pub(crate) fn setsid() -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::setsid() }).map(drop)
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    // SAFETY: all-zero is a valid flock: start 0, length 0 (to the end), pid 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // The constants are small positive numbers that fit.
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Takes a write lock (POSIX, owned by the process) on the whole file, without waiting.
pub(crate) fn lock_file(file: BorrowedFd<'_>) -> io::Result<()> {
    let lock = whole_file(libc::F_WRLCK);
    // SAFETY: `lock` is a valid flock for the call to read.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) }).map(drop)
}

/// The process that holds a lock on the file that would be in the way of a write lock.
pub(crate) fn lock_holder(file: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: `lock` is a valid flock for the call to read and write.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) })?;
    Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid))
}

/// `mlockall(MCL_CURRENT | MCL_FUTURE)`.
pub(crate) fn mlock_all() -> io::Result<()> {
    // SAFETY: changes residency only, never content.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }).map(drop)
}

/// Seconds east of UTC of local time.
pub(crate) fn local_offset(unix: i64) -> i32 {
    // SAFETY: all-zero is a valid tm (its zone pointer null); localtime_r reads the time and
    // writes the tm, both live. It reads TZ; nothing in this program changes the environment
    // while threads run.
    unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const unix, &raw mut tm).is_null() {
            return 0;
        }
        i32::try_from(tm.tm_gmtoff).unwrap_or(0)
    }
}

/// A user of the system's database: number and main group.
pub(crate) fn user_by_name(name: &str) -> io::Result<Option<(u32, u32)>> {
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    let mut buffer = vec![0 as libc::c_char; 16 * 1024];
    loop {
        // SAFETY: all pointers are to live memory of the sizes given; `found` is null or points
        // to `entry`.
        let (error, entry) = unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let error = libc::getpwnam_r(
                name.as_ptr(),
                &raw mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            );
            (error, (!found.is_null()).then_some((entry.pw_uid, entry.pw_gid)))
        };
        match error {
            libc::ERANGE if buffer.len() < 1 << 24 => buffer.resize(buffer.len() * 4, 0),
            0 => return Ok(entry),
            libc::ENOENT => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The number of a group of the system's database.
pub(crate) fn group_by_name(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    let mut buffer = vec![0 as libc::c_char; 16 * 1024];
    loop {
        // SAFETY: as in `user_by_name`.
        let (error, entry) = unsafe {
            let mut entry: libc::group = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let error = libc::getgrnam_r(
                name.as_ptr(),
                &raw mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            );
            (error, (!found.is_null()).then_some(entry.gr_gid))
        };
        match error {
            libc::ERANGE if buffer.len() < 1 << 24 => buffer.resize(buffer.len() * 4, 0),
            0 => return Ok(entry),
            libc::ENOENT => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Makes the supplementary groups those of user `name` with main group `gid`.
pub(crate) fn init_groups(name: &str, gid: u32) -> io::Result<()> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a live C string.
    check(unsafe { libc::initgroups(name.as_ptr(), gid) }).map(drop)
}

/// Empties the supplementary groups.
pub(crate) fn clear_groups() -> io::Result<()> {
    // SAFETY: zero groups are read from the pointer, which may therefore be null.
    check(unsafe { libc::setgroups(0, std::ptr::null()) }).map(drop)
}

/// Sets real, effective and saved group.
pub(crate) fn set_gid(gid: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::setresgid(gid, gid, gid) }).map(drop)
}

/// Sets real, effective and saved user.
pub(crate) fn set_uid(uid: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::setresuid(uid, uid, uid) }).map(drop)
}

/// Whether capabilities survive the change of the user.
pub(crate) fn keep_capabilities(keep: bool) -> io::Result<()> {
    // SAFETY: PR_SET_KEEPCAPS takes a number only.
    check(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, libc::c_ulong::from(keep), 0, 0, 0) })
        .map(drop)
}

/// `struct __user_cap_header_struct` of linux/capability.h.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct` of linux/capability.h, of which version 3 has two.
#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Makes `capabilities` (a bit for each number) the effective and permitted ones, no others, none
/// inheritable.
pub(crate) fn set_capabilities(capabilities: u64) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = CapHeader { version: VERSION_3, pid: 0 };
    let half = |bits: u64| {
        let bits = (bits & u64::from(u32::MAX)) as u32;
        CapData { effective: bits, permitted: bits, inheritable: 0 }
    };
    let data = [half(capabilities), half(capabilities >> 32)];
    // SAFETY: both structures have the kernel's layout and live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
