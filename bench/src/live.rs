//! Live frames by `BPF_PROG_RUN`, with a batch size, which `libbpf-rs` has no parameter for.

use anyhow::{Context, Result};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `BPF_F_TEST_XDP_LIVE_FRAMES` of linux/bpf.h.
const LIVE_FRAMES: u32 = 1 << 1;

/// Frames that a program is run over.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What each frame is at first.
    pub frame: &'a [u8],
    /// `struct xdp_md`.
    pub context: &'a [u8],
    /// How many.
    pub count: u32,
    /// How many the program makes before they are sent; 0 for the kernel's own choice.
    pub batch: u32,
}

/// Runs `program` over the frames, in the calling thread and its network namespace.
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
    // lengths beside them; the kernel only reads them, because no output buffers are given.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        return Err(error).context("running a program over live frames (needs Linux 5.18)");
    }
    Ok(())
}
