// SPDX-License-Identifier: Apache-2.0
//! Network namespaces without a name.

use crate::{Output, wait_for, without_privilege, without_root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A network namespace, held by a descriptor of this program: it ends with the last clone of
/// this value and the last process in it.
#[derive(Clone, Debug)]
pub struct Netns {
    file: Arc<File>,
}

impl Netns {
    /// Makes a namespace with loopback up and no IPv6 of its own accord, so that counts of
    /// packets are exact.
    ///
    /// # Panics
    /// Without the privilege to make one; see [`without_privilege`].
    #[expect(clippy::new_without_default, reason = "it makes a namespace")]
    pub fn new() -> Netns {
        let mut holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c"])
            .arg("for d in all default; do echo 1 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; done 2>/dev/null; ip link set lo up; echo; read -r _")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv is part of util-linux");
        let mut ready = [0; 1];
        let mut out = holder.stdout.take().expect("it was asked for");
        std::io::Read::read_exact(&mut out, &mut ready).expect("the namespace was made");
        let path = format!("/proc/{}/ns/net", holder.id());
        let file =
            Arc::new(File::open(&path).unwrap_or_else(|e| panic!("cannot open {path}: {e}")));
        drop(holder.stdin.take());
        let _ = holder.wait();
        Netns { file }
    }

    /// The one that the calling thread is in.
    ///
    /// # Panics
    /// Where no procfs is mounted.
    pub fn of_this_thread() -> Netns {
        let file = File::open("/proc/thread-self/ns/net").expect("procfs is mounted");
        Netns { file: Arc::new(file) }
    }

    /// A path to the namespace for as long as this value lives, for programs that take one.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// The command that enters the namespace, to be put before another.
    pub fn enter(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net={}", self.path().display()), "--".into()]
    }

    /// Runs a line of shell in the namespace.
    ///
    /// # Panics
    /// When `nsenter` cannot be run.
    pub fn run(&self, line: &str) -> Output {
        let enter = self.enter();
        let mut command = Command::new("nsenter");
        command.args(enter.iter().skip(1)).args(["sh", "-c", line]).stdin(Stdio::null());
        command.output().expect("nsenter is part of util-linux").into()
    }

    /// Like [`Netns::run`], for a line that has to succeed; its standard output.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.ok(), "in a namespace: {line}: {}", output.text());
        output.stdout
    }

    /// Returns the Ethernet address of a device.
    ///
    /// # Panics
    /// Without such a device, or when it has no Ethernet address.
    #[track_caller]
    pub fn mac(&self, device: &str) -> String {
        let link = self.sh(&format!("ip -o link show dev {device}"));
        let behind = link.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
        behind.unwrap_or_else(|| panic!("no address: {link}")).to_owned()
    }

    /// Returns a counter of the namespace's stack, by its name in `/proc/net/snmp`.
    ///
    /// # Panics
    /// When the kernel has no such counter.
    #[track_caller]
    pub fn snmp(&self, protocol: &str, name: &str) -> u64 {
        let text = self.sh("cat /proc/net/snmp");
        let prefix = format!("{protocol}: ");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let mut pairs = names.split(' ').zip(values.split(' '));
        let found = pairs.find(|(known, _)| *known == name).and_then(|(_, n)| n.parse().ok());
        found.unwrap_or_else(|| panic!("no counter {protocol} {name}: {text}"))
    }

    /// Runs `work` on a thread in the namespace. Processes that it starts die with the thread.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let netns = self.clone();
        let thread = std::thread::Builder::new().name(thread_name());
        thread
            .spawn(move || {
                netns.move_here();
                work()
            })
            .expect("threads can be made")
    }

    /// Runs `work` on a thread in the namespace, and waits. Processes that it starts die with
    /// the thread.
    ///
    /// # Panics
    /// When `work` does.
    pub fn with<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let thread = std::thread::Builder::new().name(thread_name());
        let result = std::thread::scope(|scope| {
            let there = || {
                self.move_here();
                work()
            };
            thread.spawn_scoped(scope, there).expect("threads can be made").join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread into the namespace.
    fn move_here(&self) {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("the thread that made the namespace may enter it");
    }

    /// Waits for a device to have carrier.
    ///
    /// # Panics
    /// When it has none after three seconds.
    #[track_caller]
    pub fn carrier(&self, device: &str) {
        let up = wait_for(Duration::from_secs(3), || {
            self.run(&format!("ip -o link show dev {device}"))
                .stdout
                .contains("LOWER_UP")
                .then_some(())
        });
        assert!(up.is_some(), "{device} has no carrier");
    }
}

/// Runs `test` on a thread in a namespace of its own, and waits; where none can be made it says so
/// and does nothing.
///
/// # Panics
/// When `test` does.
pub fn in_namespace(test: impl FnOnce() + Send) {
    if !without_privilege() {
        Netns::new().with(test);
    }
}

/// [`in_namespace`], for a test that also needs root.
///
/// # Panics
/// When `test` does.
pub fn in_namespace_as_root(test: impl FnOnce() + Send) {
    if !without_root() {
        in_namespace(test);
    }
}

/// The calling thread's name, for threads that work for it.
fn thread_name() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_ends_with_its_last_descriptor() {
        if without_privilege() {
            return;
        }
        let (here, there) = (Netns::new(), Netns::new());
        let path = there.path();
        here.sh(&format!("ip link add v0 type veth peer name v1 netns {}", path.display()));
        assert!(there.sh("ip -o link show").contains("v1@"));
        let again = there.clone();
        drop(there);
        assert!(again.sh("ip -o link show").contains("v1@"));
        drop(again);
        // The kernel takes a namespace down in its own time, and with it the other end.
        let gone = wait_for(Duration::from_secs(10), || {
            (!here.run("ip link show dev v0").ok()).then_some(())
        });
        assert!(gone.is_some(), "{} leads to it still", path.display());
    }
}
