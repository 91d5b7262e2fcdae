// SPDX-License-Identifier: Apache-2.0
//! `make install`, `make uninstall`, the manual pages and the systemd unit.

use slipswitch_tests::harness::{daemon_program, tool_program, without_tool};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn output(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let output = Command::new(program.as_ref()).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The long options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    text.split(|c: char| !is_part(c))
        .filter(|word| word.len() > 3 && word.starts_with("--"))
        .map(str::to_owned)
        .collect()
}

/// A manual page without its marks.
fn manual(name: &str) -> String {
    let page = std::fs::read_to_string(root().join("packaging").join(name)).unwrap();
    page.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "")
}

fn make(target: &str, variables: &[String]) -> Output {
    let built = daemon_program().parent().unwrap().to_owned();
    assert_eq!(tool_program().parent(), Some(built.as_path()));
    Command::new("make")
        .current_dir(root())
        .args(["-s", target, &format!("BUILT={}", built.display())])
        .args(variables)
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap()
}

/// The files below a directory, by their paths from there.
fn files(dir: &Path) -> BTreeSet<String> {
    let found = output("find", &[dir.to_str().unwrap(), "-type", "f", "-printf", "%P\n"]);
    found.lines().map(str::to_owned).collect()
}

#[test]
fn the_manual_of_the_daemon_has_the_options_of_its_help() {
    let page = manual("slipswitchd.8");
    let (_, page) = page.split_once(".SH OPTIONS").unwrap();
    let (page, _) = page.split_once(".SH ENVIRONMENT").unwrap();
    assert_eq!(options(page), options(&output(daemon_program(), &["--help"])));
}

#[test]
fn the_manual_of_the_tool_has_the_commands_and_options_of_its_help() {
    let help = output(tool_program(), &["--help"]);
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let (listed, _) = listed.split_once("\n\n").unwrap();
    let names = listed.lines().filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    assert!(names.len() >= 4, "{help}");

    let page = manual("slipswitch.1");
    let mut in_help = options(&help);
    for name in names {
        assert!(page.contains(&format!(".SS \"slipswitch {name}")), "{name}");
        in_help.extend(options(&output(tool_program(), &[name, "--help"])));
    }
    assert_eq!(options(&page), in_help);
}

#[test]
fn uninstalling_leaves_nothing_of_what_installing_put_there() {
    let stage = testing::directory();
    let variables = [format!("DESTDIR={}", stage.path().display()), "PREFIX=/usr".to_owned()];
    let made = make("install", &variables);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let expected = [
        "usr/bin/slipswitch",
        "usr/lib/systemd/system/slipswitch-xdp-flow@.service",
        "usr/lib/systemd/system/slipswitchd.service",
        "usr/sbin/slipswitchd",
        "usr/share/man/man1/slipswitch.1",
        "usr/share/man/man8/slipswitchd.8",
    ];
    assert_eq!(files(stage.path()), expected.map(str::to_owned).into());
    let unit = stage.path().join("usr/lib/systemd/system/slipswitchd.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    assert!(unit.contains("ExecStart=/usr/sbin/slipswitchd "), "{unit}");

    assert!(make("uninstall", &variables).status.success());
    assert_eq!(files(stage.path()), BTreeSet::new());
}

#[test]
fn installing_needs_a_build() {
    let nothing = testing::directory();
    let stage = testing::directory();
    let variables = [
        format!("BUILT={}", nothing.path().display()),
        format!("DESTDIR={}", stage.path().display()),
    ];
    let made = make("install", &variables);
    assert!(!made.status.success());
    assert!(String::from_utf8_lossy(&made.stderr).contains("run make build first"));
    assert_eq!(files(stage.path()), BTreeSet::new());
}

#[test]
fn the_unit_is_valid() {
    if without_tool(&["systemd-analyze"]) {
        return;
    }
    let prefix = testing::directory();
    let made = make("install", &[format!("PREFIX={}", prefix.path().display())]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let unit = prefix.path().join("lib/systemd/system/slipswitchd.service");
    let checked = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit)
        .env("SYSTEMD_LOG_LEVEL", "warning")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    let of_unit = said.lines().filter(|line| line.contains("slipswitchd"));
    assert_eq!(of_unit.collect::<Vec<_>>(), [""; 0]);
    assert!(checked.status.success(), "{said}");
}

#[test]
fn manual_pages_have_no_mistakes() {
    if without_tool(&["man"]) {
        return;
    }
    for name in ["slipswitchd.8", "slipswitch.1"] {
        let page = root().join("packaging").join(name);
        let shown = Command::new("man")
            .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
            .arg(page)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&shown.stderr), "", "{name}");
    }
}
