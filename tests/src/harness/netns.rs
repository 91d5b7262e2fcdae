//! Network namespaces without a name.

use super::{Output, wait_for};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
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
    /// Without the privilege to make one; see [`super::without_privilege`].
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

    /// The command that enters the namespace, to be put before another.
    pub fn enter(&self) -> Vec<String> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        vec!["nsenter".into(), format!("--net={path}"), "--".into()]
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
            .expect("whoever made the namespace may enter it");
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

/// The calling thread's name, for threads that work for it.
fn thread_name() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}
