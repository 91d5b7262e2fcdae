// SPDX-License-Identifier: Apache-2.0
//! The daemon as a process: its command line, its files, its end; and `slipswitch up`.

use slipswitch_tests::harness::{
    Kind, Mode, Sandbox, Switch, daemon_program, tool_program, wait_until,
};
use std::path::Path;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

/// The daemon under its own name in `sandbox`, as scripts call it.
fn daemon(sandbox: &Sandbox) -> String {
    let link = sandbox.file("ovs-vswitchd");
    if !link.exists() {
        let program = if Kind::under_test() == Kind::RealOvs {
            "/usr/sbin/ovs-vswitchd".into()
        } else {
            daemon_program()
        };
        std::os::unix::fs::symlink(program, &link).expect("the place is empty");
    }
    link.display().to_string()
}

/// A place with a database server.
fn with_database() -> Sandbox {
    let sandbox = Sandbox::new();
    let made = sandbox.sh("ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema && ovsdb-server conf.db --remote=punix:db.sock --pidfile --no-chdir --detach --log-file -vconsole:off && ovs-vsctl --no-wait init");
    assert!(made.ok(), "{}", made.text());
    sandbox
}

fn alive(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

#[test]
fn detach_returns_when_the_daemon_answers_and_writes_nothing() {
    let sandbox = with_database();
    let daemon = daemon(&sandbox);
    let start = Instant::now();
    let output = sandbox.sh(&format!("{daemon} -vconsole:emer -vsyslog:off --enable-dummy --disable-system --pidfile --detach --no-chdir --log-file"));
    let took = start.elapsed();
    assert!(output.ok(), "{}", output.text());
    assert_eq!(output.text(), "");
    // No waiting: it is all there.
    let pid = sandbox.read("ovs-vswitchd.pid");
    assert!(alive(&pid), "{pid}");
    assert!(sandbox.file(&format!("ovs-vswitchd.{}.ctl", pid.trim())).exists());
    assert!(sandbox.sh("ovs-appctl version").ok());
    assert!(sandbox.sh("ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy").ok());
    assert!(took < Duration::from_secs(1), "starting took {took:?}");
}

#[test]
fn exit_removes_the_pidfile_and_the_control_socket() {
    let sandbox = with_database();
    let daemon = daemon(&sandbox);
    assert!(sandbox.sh(&format!("{daemon} --enable-dummy --disable-system --pidfile --detach --no-chdir --log-file -vconsole:emer")).ok());
    let pid = sandbox.read("ovs-vswitchd.pid");
    let output = sandbox.sh("ovs-appctl -t ovs-vswitchd exit");
    assert!(output.ok(), "{}", output.text());
    assert!(wait_until(SOON, || !alive(&pid)));
    assert!(!sandbox.file("ovs-vswitchd.pid").exists());
    assert!(!sandbox.file(&format!("ovs-vswitchd.{}.ctl", pid.trim())).exists());
}

#[test]
fn sigterm_ends_it_within_seconds() {
    let mut switch = Switch::dummy(1);
    switch.daemon().expect("it runs").signal("TERM");
    let start = Instant::now();
    let code = switch.wait_for_end();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(code.is_none_or(|c| c == 0), "{code:?}");
    assert!(!switch.sandbox().file("ovs-vswitchd.pid").exists());
}

#[test]
fn a_second_instance_is_refused_and_the_first_goes_on() {
    let sandbox = with_database();
    let daemon = daemon(&sandbox);
    let line = format!(
        "{daemon} --enable-dummy --disable-system --pidfile --detach --no-chdir -vconsole:emer -vsyslog:off"
    );
    assert!(sandbox.sh(&line).ok());
    let pid = sandbox.read("ovs-vswitchd.pid");
    let second = sandbox.sh(&line.replace("-vconsole:emer", "-vconsole:err"));
    assert!(!second.ok());
    assert!(
        second.text().contains(&format!("already running as pid {}", pid.trim())),
        "{}",
        second.text()
    );
    assert_eq!(sandbox.read("ovs-vswitchd.pid"), pid);
    assert!(sandbox.sh("ovs-appctl version").ok());
}

#[test]
fn a_stale_pidfile_is_taken_over() {
    let mut switch = Switch::dummy(1);
    switch.kill_daemon();
    assert!(switch.sandbox().file("ovs-vswitchd.pid").exists());
    switch.start_daemon();
    assert!(wait_until(SOON, || switch.sh("ovs-ofctl show br0").ok()));
}

#[test]
fn log_lines_have_the_form_of_ovs() {
    let switch = Switch::dummy(1);
    let log = switch.log();
    assert!(log.lines().count() > 3, "{log}");
    for line in log.lines() {
        let parts: Vec<&str> = line.splitn(5, '|').collect();
        let [time, number, module, level, _] = parts.as_slice() else { panic!("{line}") };
        // 2026-01-31T12:00:00.123Z
        assert_eq!(
            (time.len(), time.get(10..11), time.get(19..20), time.get(23..)),
            (24, Some("T"), Some("."), Some("Z")),
            "{line}"
        );
        assert!(number.len() == 5 && number.bytes().all(|b| b.is_ascii_digit()), "{line}");
        let module = module.split('(').next().unwrap_or_default();
        assert!(
            !module.is_empty()
                && module
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "{line}"
        );
        assert!(matches!(*level, "EMER" | "ERR" | "WARN" | "INFO" | "DBG"), "{line}");
    }
}

#[test]
fn start_lines_that_scripts_read_are_logged() {
    let switch = Switch::dummy(1);
    let log = switch.log();
    assert!(log.contains(": Datapath supports recirculation"), "{log}");
    assert!(log.contains("VLAN header stack length probed as "), "{log}");
    assert!(log.contains("|bridge|INFO|bridge br0: added interface p1 on port 1"), "{log}");
    assert!(log.contains("|bridge|INFO|bridge br0: using datapath ID fedcba9876543210"), "{log}");
}

#[test]
fn vlog_set_changes_what_is_logged() {
    let switch = Switch::dummy(1);
    let before = switch.log().lines().count();
    switch.appctl("vlog/set ANY:file:off");
    switch.vsctl("add-port br0 p7 -- set interface p7 type=dummy");
    assert_eq!(switch.log().lines().count(), before);
    switch.appctl("vlog/set ANY:file:info");
    switch.vsctl("del-port p7");
    switch.vsctl("add-port br0 p7 -- set interface p7 type=dummy");
    assert!(switch.log().lines().count() > before);
}

#[test]
fn vlog_reopen_follows_a_rotated_file() {
    let switch = Switch::dummy(1);
    let old = switch.sandbox().file("ovs-vswitchd.log");
    std::fs::rename(&old, switch.sandbox().file("ovs-vswitchd.log.1")).expect("it is there");
    switch.appctl("vlog/reopen");
    switch.vsctl("add-port br0 p7 -- set interface p7 type=dummy");
    assert!(switch.log().contains("p7"), "{}", switch.log());
}

#[test]
fn version_and_help_go_to_standard_output() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    let version = sandbox.sh(&format!("{daemon} --version"));
    assert!(
        version.ok()
            && version.stdout.starts_with("ovs-vswitchd (Open vSwitch) 3.")
            && version.stdout.lines().nth(1).is_some_and(|line| line.starts_with("Slipswitch "))
            && version.stderr.is_empty(),
        "{}",
        version.text()
    );
    let help = sandbox.sh(&format!("{daemon} --help"));
    assert!(help.ok() && help.stderr.is_empty(), "{}", help.text());
    for option in [
        "--detach",
        "--pidfile",
        "--unixctl",
        "--log-file",
        "--disable-system",
        "usage: ovs-vswitchd",
    ] {
        assert!(help.stdout.contains(option), "{option}: {}", help.stdout);
    }
}

#[test]
fn an_unknown_option_is_an_error_that_names_it() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    let output = sandbox.sh(&format!("{daemon} --nonsense"));
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("unrecognized option '--nonsense'"), "{}", output.text());
    let output = sandbox.sh(&format!("{daemon} a b"));
    assert_eq!(output.code, Some(1));
    assert!(
        output.stderr.contains("at most one non-option argument accepted"),
        "{}",
        output.text()
    );
}

#[test]
fn a_command_that_is_not_there_answers_as_ovs_does() {
    let switch = Switch::dummy(1);
    let output = switch.sh("ovs-appctl nonsense");
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("\"nonsense\" is not a valid command"), "{}", output.stderr);
    let output = switch.sh("ovs-appctl fdb/stats-show");
    assert!(
        output.stderr.contains("\"fdb/stats-show\" command requires at least 1 arguments"),
        "{}",
        output.stderr
    );
}

#[test]
fn list_commands_names_what_people_use() {
    let switch = Switch::dummy(1);
    let text = switch.appctl("list-commands");
    assert!(text.starts_with("The available commands are:\n"), "{text}");
    for command in [
        "exit",
        "version",
        "vlog/set",
        "coverage/show",
        "memory/show",
        "bridge/dump-flows",
        "bridge/reconnect",
        "ofproto/list",
        "ofproto/trace",
        "fdb/show",
        "fdb/flush",
        "dpif/show",
        "dpif/dump-flows",
        "dpctl/show",
        "dpctl/dump-flows",
        "upcall/show",
        "revalidator/wait",
        "revalidator/purge",
        "netdev-dummy/receive",
        "time/warp",
    ] {
        assert!(
            text.lines().any(|l| l.split_whitespace().next() == Some(command)),
            "{command}: {text}"
        );
    }
}

#[test]
fn memory_and_coverage_can_be_shown() {
    let switch = Switch::dummy(1);
    assert!(!switch.appctl("memory/show").is_empty());
    assert!(!switch.appctl("coverage/show").is_empty());
}

#[test]
fn a_database_that_is_not_there_is_waited_for() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    let started = sandbox.sh(&format!("({daemon} unix:db.sock --enable-dummy --disable-system --pidfile --detach --no-chdir --log-file -vconsole:emer -vsyslog:off; echo $? >code) >/dev/null 2>&1 &"));
    assert!(started.ok(), "{}", started.text());
    assert!(wait_until(SOON, || sandbox.sh("ovs-appctl version").ok()));
    std::thread::sleep(Duration::from_secs(4));
    assert!(!sandbox.file("code").exists(), "the parent waits, as Open vSwitch's does");
    // Without an Open_vSwitch row there is nothing to configure, and the parent does not wait.
    let made = sandbox.sh("ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema && ovsdb-server conf.db --remote=punix:db.sock --pidfile --no-chdir --detach -vconsole:off");
    assert!(made.ok(), "{}\n{}", made.text(), sandbox.read("ovs-vswitchd.log"));
    assert!(wait_until(SOON, || sandbox.file("code").exists() && sandbox.read("code") == "0\n"));
    let made = sandbox.sh("ovs-vsctl --no-wait init && ovs-vsctl --timeout=20 add-br br0 -- set bridge br0 datapath_type=dummy");
    assert!(made.ok(), "{}\n{}", made.text(), sandbox.read("ovs-vswitchd.log"));
    assert!(sandbox.sh("ovs-ofctl show br0").ok());
}

#[test]
fn detach_returns_at_once_on_a_database_without_rows() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    let made = sandbox.sh("ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema && ovsdb-server conf.db --remote=punix:db.sock --pidfile --no-chdir --detach -vconsole:off");
    assert!(made.ok(), "{}", made.text());
    let start = Instant::now();
    let output = sandbox.sh(&format!("{daemon} unix:db.sock --enable-dummy --disable-system --pidfile --detach --no-chdir --log-file -vconsole:emer -vsyslog:off"));
    assert!(output.ok(), "{}", output.text());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_daemon_that_waits_for_its_database_can_be_stopped() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox);
    let started = sandbox.sh(&format!("({daemon} unix:db.sock --enable-dummy --disable-system --pidfile --detach --no-chdir --log-file -vconsole:emer -vsyslog:off; echo $? >code) >/dev/null 2>&1 &"));
    assert!(started.ok(), "{}", started.text());
    assert!(wait_until(SOON, || sandbox.sh("ovs-appctl version").ok()));
    assert!(sandbox.sh("ovs-appctl exit").ok());
    assert!(wait_until(SOON, || sandbox.file("code").exists()));
    assert!(!sandbox.file("ovs-vswitchd.pid").exists());
}

#[test]
fn monitor_starts_a_crashed_daemon_again() {
    let sandbox = with_database();
    let daemon = daemon(&sandbox);
    let output = sandbox.sh(&format!("{daemon} --enable-dummy --disable-system --pidfile --detach --monitor --no-chdir --log-file -vconsole:emer -vsyslog:off"));
    assert!(output.ok(), "{}", output.text());
    let first = sandbox.read("ovs-vswitchd.pid");
    assert!(sandbox.sh(&format!("kill -ABRT {}", first.trim())).ok());
    let again = wait_until(Duration::from_secs(20), || {
        let pid = sandbox.read("ovs-vswitchd.pid");
        !pid.is_empty() && pid != first && alive(&pid) && sandbox.sh("ovs-appctl version").ok()
    });
    assert!(again, "{}", sandbox.read("ovs-vswitchd.log"));
    assert!(sandbox.sh("ovs-appctl exit").ok());
}

#[test]
fn a_named_control_socket_is_used() {
    let sandbox = with_database();
    let daemon = daemon(&sandbox);
    let output = sandbox.sh(&format!("{daemon} --enable-dummy --disable-system --pidfile=here.pid --unixctl=here.ctl --detach --no-chdir -vconsole:emer -vsyslog:off"));
    assert!(output.ok(), "{}", output.text());
    assert!(sandbox.sh("ovs-appctl -t $OVS_RUNDIR/here.ctl version").ok());
    assert!(sandbox.file("here.pid").exists());
}

#[test]
fn the_dummy_switch_logs_no_warning_over_its_life() {
    let mut switch = Switch::dummy(2);
    switch.flows("br0", "actions=NORMAL");
    switch.appctl("exit");
    assert_eq!(switch.wait_for_end(), Some(0));
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn up_starts_both_servers_and_down_stops_them() {
    let sandbox = Sandbox::new();
    let tool = tool_program();
    let dir = sandbox.file("up");
    let (tool, dir) = (tool.display(), dir.display());
    let daemon = daemon_program();
    let up = format!(
        "{tool} up --dir {dir} --daemon {} -- --enable-dummy --disable-system",
        daemon.display()
    );
    let output = sandbox.sh(&up);
    assert!(output.ok(), "{}", output.text());
    let tools = format!("OVS_RUNDIR={dir}");
    let added = sandbox.sh(&format!(
        "{tools} ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy && {tools} ovs-ofctl show br0"
    ));
    // The guard of the place finds processes by its own OVS_RUNDIR: stop these whatever happens.
    let again = sandbox.sh(&up);
    let down = sandbox.sh(&format!("{tool} down --dir {dir} --cleanup"));
    assert!(added.ok(), "{}", added.text());
    assert!(again.ok() && again.stdout.contains("runs already"), "{}", again.text());
    assert!(down.ok(), "{}", down.text());
    assert!(
        !sandbox.file("up/ovs-vswitchd.pid").exists()
            && !sandbox.file("up/ovsdb-server.pid").exists()
    );
    assert!(sandbox.file("up/conf.db").exists(), "the database stays");
}

#[test]
fn the_real_mode_needs_no_argument_but_the_usual() {
    if slipswitch_tests::harness::without_privilege() {
        return;
    }
    let switch = Switch::start(Kind::under_test(), Mode::Real);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    assert_eq!(switch.appctl("dpctl/dump-dps"), "netdev@ovs-netdev\n");
    assert!(switch.netns().sh("ip link show br0").contains("br0"));
}
