// SPDX-License-Identifier: Apache-2.0
//! BPF that cannot be had: the daemon goes on with what is left, and says what to do.

use crate::tools::{
    SOON, started_by, two_hosts, wait_until_offloaded, warm, warnings_with, without_namespaces,
};
use slipswitch_tests::harness::{Guard, Host, Mode, Switch, skip, tool_program, wait_until};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A switch with two hosts whose daemon is started by `before`.
fn switch(before: &[&str]) -> Option<(Switch, Host, Host)> {
    if without_namespaces() {
        return None;
    }
    let switch = Switch::with(started_by(Mode::Real, before));
    let (a, b) = two_hosts(&switch);
    Some((switch, a, b))
}

/// The script that a shell runs in its own mount namespace before it becomes the daemon.
fn in_mounts(commands: &str) -> [String; 7] {
    let script = format!("mount --make-rprivate / && {commands} && exec \"$@\"");
    ["unshare", "--mount", "sh", "-e", "-c", &script, "sh"].map(str::to_owned)
}

/// Packets go through userspace, and everything that is asked says why: the log once, the flows,
/// `explain` and the doctor.
#[track_caller]
fn in_userspace(switch: &Switch, a: &Host, reason: &str, advice: &str) {
    warm(switch, a, "10.0.0.2");
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    let told = warnings_with(switch, "flows run in userspace");
    assert_eq!(told.len(), 1, "{}", switch.story());
    assert!(told[0].contains(advice), "{advice:?} is not in {told:?}");
    let mut flows = String::new();
    let explained = wait_until(SOON, || {
        flows = switch.appctl("dpctl/dump-flows -m");
        flows.lines().any(|l| l.contains("in_port(h1)") && l.contains(reason))
    });
    assert!(explained, "{reason}: {flows}");
    assert!(!flows.contains("dp:tcx") && !flows.contains("dp:xdp"), "{flows}");
    let explain =
        tool(switch, "explain --bridge br0 in_port=h1,icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2");
    assert!(explain.contains(reason), "{explain}");
}

/// A daemon that starts over, after a change.
fn again(switch: &mut Switch, change: &str) {
    switch.vsctl(change);
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    switch.start_daemon();
}

fn tool(switch: &Switch, arguments: &str) -> String {
    let line = format!("{} {arguments}", tool_program().display());
    let output = switch.sh_limited(&line, Duration::from_secs(20));
    assert!(output.ok(), "{line}: {}", output.text());
    output.text()
}

#[test]
fn without_the_capability_flows_run_in_userspace() {
    let drop = ["setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin"];
    let Some((switch, a, _b)) = switch(&drop) else { return };
    in_userspace(&switch, &a, "no-permission", "CAP_BPF");
    let doctor = tool(&switch, "doctor -v");
    assert!(doctor.contains("no-permission"), "{doctor}");
}

/// Has the kernel refuse one command of bpf(2) to this thread and to what it starts from now on.
fn refuse(command: u32, errno: i32) {
    const ARGUMENT: usize = std::mem::offset_of!(libc::seccomp_data, args)
        + if cfg!(target_endian = "big") { 4 } else { 0 };
    let step = |code: u32, yes: u8, no: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("codes are small"),
        jt: yes,
        jf: no,
        k,
    };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let unless = |value, over| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, over, value);
    let end = |what| step(libc::BPF_RET | libc::BPF_K, 0, 0, what);
    let mut filter = [
        load(0), // the number of the system call
        unless(libc::SYS_bpf as u32, 3),
        load(ARGUMENT as u32),
        unless(command, 1),
        end(libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program, which lives through the call, and keeps a copy.
    let installed = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    assert_eq!(installed, 0, "seccomp: {}", std::io::Error::last_os_error());
}

/// The messages when the kernel refuses a command of bpf(2).
#[track_caller]
fn refused(command: u32, errno: i32, reason: &'static str, advice: &'static str) {
    // The filter is the thread's for good.
    let test = std::thread::spawn(move || {
        refuse(command, errno);
        let Some((switch, a, _b)) = switch(&[]) else { return };
        in_userspace(&switch, &a, reason, advice);
    });
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn programs_that_the_verifier_refuses_are_logged() {
    refused(libbpf_sys::BPF_PROG_LOAD, libc::EACCES, "tier-unavailable", "verifier refused");
}

#[test]
fn programs_for_which_there_is_no_memory_are_logged() {
    refused(libbpf_sys::BPF_PROG_LOAD, libc::ENOMEM, "tier-unavailable", "no memory for");
}

#[test]
fn maps_for_which_there_is_no_memory_are_logged() {
    refused(libbpf_sys::BPF_MAP_CREATE, libc::ENOMEM, "tier-unavailable", "no memory for");
}

/// The lines of connections of UDP.
fn connections(switch: &Switch) -> Vec<String> {
    let text = switch.appctl("dpctl/dump-conntrack");
    text.lines().filter(|line| line.contains("udp,")).map(str::to_owned).collect()
}

/// Starts a daemon to which the kernel refuses programs, and calls `then`, which ends it.
fn without_programs(switch: &mut Switch, then: impl FnOnce(&mut Switch) + Send) {
    switch.sandbox().write("ovs-vswitchd.log", "");
    let run = || {
        refuse(libbpf_sys::BPF_PROG_LOAD, libc::EACCES);
        switch.start_daemon();
        let is_told = || !warnings_with(switch, "flows run in userspace").is_empty();
        assert!(wait_until(SOON, is_told), "{}", switch.story());
        then(switch);
    };
    // The filter is the thread's for good, and the daemon ends with the thread that started it.
    if let Err(panic) = std::thread::scope(|scope| scope.spawn(run).join()) {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn connections_outlive_a_daemon_without_programs() {
    let Some((mut switch, a, _b)) = switch(&[]) else { return };
    switch.vsctl(
        "-- --id=@m create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@m",
    );
    switch.vsctl("add-zone-tp netdev zone=5 udp_first=9000 udp_single=9000");
    let rules = "priority=9,udp,actions=ct(commit,zone=5),normal\npriority=0,actions=normal";
    switch.flows("br0", rules);
    let socket = a.netns.with(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
    socket.send_to(b"x", "10.0.0.2:9").expect("there is room");
    assert!(wait_until(SOON, || !connections(&switch).is_empty()), "{}", switch.story());
    let before = connections(&switch);
    let pins = switch.sandbox().pins();
    let end = |switch: &mut Switch, command: &str| {
        switch.appctl(command);
        assert_eq!(switch.wait_for_end(), Some(0));
    };

    end(&mut switch, "exit");
    assert!(pins.join("slots").exists() && pins.join("ct_config").exists());
    without_programs(&mut switch, |switch| {
        assert_eq!(connections(switch), before);
        assert!(!pins.join("slots").exists() && pins.join("ct_config").exists());
        end(switch, "exit");
    });
    switch.start_daemon();
    let is_back = || connections(&switch) == before;
    assert!(wait_until(SOON, is_back), "{}", switch.story());

    end(&mut switch, "exit");
    without_programs(&mut switch, |switch| end(switch, "exit --cleanup"));
    assert!(!pins.exists());
}

#[test]
fn without_a_bpf_file_system_flows_run_in_userspace() {
    let before = in_mounts("umount -l /sys/fs/bpf && mount -t tmpfs -o ro none /sys/fs");
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let Some((switch, a, _b)) = switch(&before) else { return };
    in_userspace(&switch, &a, "tier-unavailable", "mount -t bpf");
}

#[test]
fn with_a_bpf_file_system_that_cannot_be_written_flows_run_in_userspace() {
    let before = in_mounts("mount -t bpf -o ro bpf /sys/fs/bpf");
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let Some((switch, a, _b)) = switch(&before) else { return };
    in_userspace(&switch, &a, "tier-unavailable", "/sys/fs/bpf");
}

#[test]
fn a_bpf_file_system_that_is_not_mounted_is_mounted() {
    let before = in_mounts("umount -l /sys/fs/bpf");
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let Some((switch, a, _b)) = switch(&before) else { return };
    warm(&switch, &a, "10.0.0.2");
    wait_until_offloaded(&switch);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

/// Waits for the end of its standard input, whose other end only this program holds, and removes
/// the group `$1`, whose last process may be about to end.
const UNGROUP: &str = r#"
trap '' INT TERM HUP
read -r _
for try in $(seq 200); do rmdir "$1" && break; sleep 0.05; done
"#;

/// A group of processes whose memory is limited. It goes when this is dropped, and however the
/// program ends.
struct Limit {
    group: PathBuf,
    _guard: Guard,
}

impl Limit {
    /// `None`, after saying so, where there are no such groups.
    fn new(bytes: u64) -> Option<Limit> {
        let name = format!("slipswitch-test-{}", std::process::id());
        let group = Path::new("/sys/fs/cgroup/memory").join(name);
        let file = group.join("memory.limit_in_bytes");
        if let Err(error) = std::fs::create_dir(&group) {
            skip(&format!("no group with a memory limit can be made ({error})"));
            return None;
        }
        let _guard = Guard::start(UNGROUP, &[group.as_os_str()], Stdio::null())
            .expect("setsid is part of util-linux");
        if let Err(error) = std::fs::write(file, bytes.to_string()) {
            skip(&format!("a group cannot be given a memory limit ({error})"));
            return None;
        }
        Some(Limit { group, _guard })
    }
}

#[test]
fn tables_for_which_there_is_no_memory_are_logged() {
    if without_namespaces() {
        return;
    }
    let Some(limit) = Limit::new(512 << 20) else { return };
    let script = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", limit.group.display());
    let Some((mut switch, a, _b)) = switch(&["sh", "-e", "-c", &script, "sh"]) else { return };
    // Four gigabytes.
    again(&mut switch, "set open_vswitch . other_config:bpf-max-flows=16777216");
    in_userspace(&switch, &a, "tier-unavailable", "lower the number of flows");
    // It can be put right.
    again(&mut switch, "remove open_vswitch . other_config bpf-max-flows");
    warm(&switch, &a, "10.0.0.2");
    wait_until_offloaded(&switch);
    drop(switch);
    drop(limit);
}

#[test]
fn a_locked_memory_limit_of_nothing_does_no_harm() {
    // Kernels since 5.11 count BPF memory elsewhere; the daemon may raise the limit on others.
    let Some((switch, a, _b)) = switch(&["prlimit", "--memlock=0:0"]) else { return };
    warm(&switch, &a, "10.0.0.2");
    wait_until_offloaded(&switch);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_second_daemon_with_the_same_pins_runs_in_userspace() {
    if without_namespaces() {
        return;
    }
    let Some((switch, a, _b)) = switch(&[]) else { return };
    warm(&switch, &a, "10.0.0.2");
    wait_until_offloaded(&switch);
    // Another process holds the directory of the pins.
    let mut switch = switch;
    switch.appctl("exit");
    assert_eq!(switch.wait_for_end(), Some(0));
    let pins = std::fs::File::open(switch.sandbox().pins()).expect("pins outlive the daemon");
    rustix::fs::flock(&pins, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("nobody holds it");
    switch.sandbox().write("ovs-vswitchd.log", "");
    switch.start_daemon();
    let told = wait_until(SOON, || !warnings_with(&switch, "flows run in userspace").is_empty());
    assert!(told, "{}", switch.story());
    assert!(warnings_with(&switch, "another daemon").len() == 1, "{}", switch.story());
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
}
