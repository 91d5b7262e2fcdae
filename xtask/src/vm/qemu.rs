// SPDX-License-Identifier: Apache-2.0
//! The emulated machine.

use super::host;
use super::kernel::Kernel;
use super::status::{Event, Status};
use crate::tally::Tallies;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `run.sh` prints this before each step.
pub const STEP: &str = "=== step ";

const MACHINE: [&str; 15] = [
    "-cpu",
    "max",
    "-smp",
    "2",
    "-m",
    "4096",
    "-display",
    "none",
    "-monitor",
    "none",
    "-parallel",
    "none",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
];

/// First version whose emulated processors can run in parallel. In older ones, a processor that
/// translates an instruction while another one changes it may keep the intermediate state: a
/// breakpoint, by which kernels guard such changes, and which the kernel no longer expects then.
const PARALLEL: (u32, u32) = (8, 1);

/// - A panic ends the machine at once, and so does an oops.
/// - The time stamp counter is the host's: the kernel need not watch it against slower clocks.
/// - Level 5: warnings and worse are printed.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic nowatchdog \
                            mitigations=off tsc=reliable clocksource=tsc";

/// How often the status is read.
const TICK: Duration = Duration::from_millis(100);

/// One CPU after the other, and a nanosecond (2^0 of them) for each instruction; idle time
/// passes as on the host.
const COUNTING: [&str; 4] = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=on"];

/// The source of the guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The host's time.
    Host,
    /// Instructions that the guest has done.
    Instructions,
}

/// Files of a run.
#[derive(Clone, Debug)]
pub struct Files {
    /// The first file system.
    pub initramfs: PathBuf,
    /// Output of the kernel.
    pub console: PathBuf,
    /// Results of the steps.
    pub status: PathBuf,
}

/// The result of a guest.
#[derive(Debug)]
pub struct Run {
    /// Results that the guest reported.
    pub status: Status,
    /// Counts from the output of tests.
    pub tallies: Tallies,
    /// It was ended because its time was over.
    pub timed_out: bool,
}

/// A guest that runs. It ends when dropped, or when the thread that started it does.
#[derive(Debug)]
struct Guest {
    child: Child,
    relay: Option<JoinHandle<Tallies>>,
}

/// Starts a guest and waits for its end. The output of its steps goes to standard output; `tell`
/// is called with each event.
pub fn run(
    kernel: &Kernel,
    files: &Files,
    clock: Clock,
    steps: usize,
    timeout: Duration,
    tell: &mut dyn FnMut(&Event),
) -> Result<Run> {
    let mut guest = Guest::start(kernel, files, clock)?;
    let start = Instant::now();
    let mut reader =
        StatusReader { file: files.status.clone(), read: 0, status: Status::new(steps) };
    let timed_out = loop {
        let ended = guest.child.try_wait()?.is_some();
        reader.read(tell)?;
        if ended {
            break false;
        }
        if start.elapsed() > timeout {
            break true;
        }
        std::thread::sleep(TICK);
    };
    let tallies = guest.end();
    Ok(Run { status: reader.status, tallies, timed_out })
}

impl Guest {
    fn start(kernel: &Kernel, files: &Files, clock: Clock) -> Result<Guest> {
        let mut command = host::command("setpriv");
        let qemu = host::find("qemu-system-x86_64").context("qemu is not installed")?;
        let version = host::text(host::command("qemu-system-x86_64").arg("--version"))?;
        command.args(["--pdeathsig", "KILL"]).arg(qemu);
        match clock {
            Clock::Host => command.args(["-accel", accelerator(&version)]),
            Clock::Instructions => command.args(COUNTING),
        };
        command.args(MACHINE).args(devices(kernel, files));
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start qemu")?;
        let output = child.stdout.take().context("qemu's output was asked for")?;
        let relay = std::thread::spawn(move || relay(output));
        Ok(Guest { child, relay: Some(relay) })
    }

    /// Ends the guest if it has not ended, and takes what is left of its output.
    fn end(mut self) -> Tallies {
        self.stop();
        self.relay.take().and_then(|relay| relay.join().ok()).unwrap_or_else(|| Tallies::new(STEP))
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the accelerator. Stock kernels do not start under every host's KVM; the emulator runs
/// all of them. `version` is the output of QEMU.
fn accelerator(version: &str) -> &'static str {
    let number = version.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
    let mut parts = number.unwrap_or_default().split('.').map_while(|n| n.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) >= PARALLEL => "tcg,thread=multi",
        _ => "tcg,thread=single",
    }
}

/// The kernel, the host's files, the console, and the two ports.
fn devices(kernel: &Kernel, files: &Files) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: OsString| words.extend([option.into(), value]);
    add("-kernel", kernel.image().into());
    add("-initrd", files.initramfs.clone().into());
    add("-append", COMMAND_LINE.into());
    add("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap".into());
    add("-device", "virtio-9p-pci,fsdev=host,mount_tag=host".into());
    add("-chardev", file("console", &files.console));
    add("-serial", "chardev:console".into());
    add("-device", "virtio-serial-pci".into());
    // Not "stdio": the end of standard input would close the port.
    add("-chardev", file("output", Path::new("/proc/self/fd/1")));
    add("-device", "virtserialport,chardev=output,name=output".into());
    add("-chardev", file("status", &files.status));
    add("-device", "virtserialport,chardev=status,name=status".into());
    words
}

/// QEMU takes a comma in a value when it is doubled.
fn file(id: &str, path: &Path) -> OsString {
    format!("file,id={id},path={}", path.display().to_string().replace(',', ",,")).into()
}

fn relay(mut from: impl Read) -> Tallies {
    let mut tallies = Tallies::new(STEP);
    let mut buffer = [0; 8192];
    let mut to = std::io::stdout();
    while let Ok(size @ 1..) = from.read(&mut buffer) {
        tallies.take(&buffer[..size]);
        // The tests continue, and are counted, also without a reader.
        let _ = to.write_all(&buffer[..size]).and_then(|()| to.flush());
    }
    tallies
}

/// Follows the status file as it grows.
#[derive(Debug)]
struct StatusReader {
    file: PathBuf,
    /// Bytes whose lines have been taken.
    read: usize,
    status: Status,
}

impl StatusReader {
    fn read(&mut self, tell: &mut dyn FnMut(&Event)) -> Result<()> {
        let text = match std::fs::read(&self.file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            text => text.with_context(|| format!("cannot read {}", self.file.display()))?,
        };
        let new = text.get(self.read..).unwrap_or_default();
        // A line without its end is still being written.
        let whole = new.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        for event in String::from_utf8_lossy(&new[..whole]).lines().filter_map(Event::parse) {
            self.status.take(&event);
            tell(&event);
        }
        self.read += whole;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_line_by_line() {
        let dir = testing::directory();
        let file = dir.path().join("status");
        let mut reader = StatusReader { file: file.clone(), read: 0, status: Status::new(1) };
        let mut seen = 0;
        for (text, expected) in [("ready 1\nbeg", 1), ("ready 1\nbegin 0 2\n", 2)] {
            std::fs::write(&file, text).expect("written");
            reader.read(&mut |_| seen += 1).expect("it can be read");
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn processors_run_at_once_where_that_is_sound() {
        let said = |n: &str| format!("QEMU emulator version {n} (Debian 1:{n}+dfsg-7)\nCopyright");
        for (version, thread) in [("7.2.22", "single"), ("8.0.5", "single"), ("8.1.0", "multi")] {
            assert_eq!(accelerator(&said(version)), format!("tcg,thread={thread}"));
        }
        assert_eq!(accelerator("10.0"), "tcg,thread=multi");
        assert_eq!(accelerator("what?"), "tcg,thread=single");
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        assert_eq!(file("x", Path::new("/a,b")), OsString::from("file,id=x,path=/a,,b"));
    }
}
