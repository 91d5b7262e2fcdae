// SPDX-License-Identifier: Apache-2.0
//! Calls that `libbpf-rs` lacks: live frames by `BPF_PROG_RUN` with a batch size, and a link of a
//! program to the tcx hook.

use anyhow::{Context, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Once;
use std::{io, mem, ptr};

/// `BPF_F_TEST_XDP_LIVE_FRAMES` of linux/bpf.h.
const LIVE_FRAMES: u32 = 1 << 1;

/// Frames that a program is run over.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The initial content of each frame.
    pub frame: &'a [u8],
    /// `struct xdp_md`.
    pub context: &'a [u8],
    pub count: u32,
    /// Frames that are made before they are sent; 0 for the kernel's choice.
    pub batch: u32,
}

/// A thread whose runs can be cut short.
#[derive(Clone, Copy, Debug)]
pub struct Runner(libc::pid_t);

impl Runner {
    /// The calling thread.
    pub fn here() -> Runner {
        static ONCE: Once = Once::new();
        ONCE.call_once(allow_interrupts);
        Runner(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Ends the thread's present run after the present batch. The caller repeats it until the run
    /// has ended: a run that begins meanwhile is not interrupted.
    pub fn interrupt(self) {
        // SAFETY: the call takes three integers. Its result does not matter: a thread of this
        // process that has ended needs no signal, and the handler does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), self.0, SIGNAL) };
    }
}

/// Interrupts system calls, and is used for nothing else here.
const SIGNAL: libc::c_int = libc::SIGUSR2;

/// Does nothing: an installed handler is enough to interrupt a system call.
extern "C" fn interrupted(_: libc::c_int) {}

/// Installs the handler without `SA_RESTART`.
fn allow_interrupts() {
    // SAFETY: all zeros is a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = interrupted;
    action.sa_sigaction = handler as usize;
    // SAFETY: the structure lives until the call returns, the old one is not requested, and a
    // handler that does nothing may run at any time. With a valid signal the call cannot fail.
    unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
}

/// Runs `program` over the frames, in the calling thread and its network namespace; over fewer
/// when the thread is interrupted.
///
/// # Errors
/// When the kernel refuses; live frames came with Linux 5.18.
pub fn run(program: BorrowedFd<'_>, run: Run<'_>) -> Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        data_in: run.frame.as_ptr().cast(),
        data_size_in: u32::try_from(run.frame.len())?,
        ctx_in: run.context.as_ptr().cast(),
        ctx_size_in: u32::try_from(run.context.len())?,
        repeat: i32::try_from(run.count)?,
        flags: LIVE_FRAMES,
        batch_size: run.batch,
        ..libbpf_sys::bpf_test_run_opts::default()
    };
    // SAFETY: the descriptor and both slices are borrowed until the call returns, with their
    // lengths; the kernel only reads them, because no output buffers are given.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 && result != -libc::EINTR {
        let error = io::Error::from_raw_os_error(-result);
        return Err(error).context("running a program over live frames (needs Linux 5.18)");
    }
    Ok(())
}

/// Attaches `program` to the ingress of a device; detached when the descriptor is closed.
///
/// # Errors
/// When the kernel refuses; tcx came with Linux 6.6.
pub fn tcx_ingress(program: BorrowedFd<'_>, ifindex: u32) -> Result<OwnedFd> {
    let ifindex = i32::try_from(ifindex).context("an interface index")?;
    // SAFETY: a descriptor that the borrow keeps open, integers, and no options.
    let result = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex,
            libbpf_sys::BPF_TCX_INGRESS,
            std::ptr::null(),
        )
    };
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        return Err(error).context("attaching to tcx ingress (needs Linux 6.6)");
    }
    // SAFETY: the call just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
