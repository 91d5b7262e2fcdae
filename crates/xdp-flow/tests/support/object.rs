// SPDX-License-Identifier: Apache-2.0
//! BPF programs of tests.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Compiles a BPF program, and returns its object.
pub fn compile(source: &str) -> Vec<u8> {
    let directory = testing::directory();
    let object = directory.path().join("program.bpf.o");
    let mut clang = Command::new(env!("CLANG"));
    clang.args(env!("CLANG_FLAGS").split('\u{1f}')).args(["-x", "c", "-c", "-", "-o"]);
    let mut child = clang.arg(&object).stdin(Stdio::piped()).spawn().expect("clang runs");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(source.as_bytes()).expect("clang reads");
    drop(input);
    assert!(child.wait().expect("clang ends").success());
    std::fs::read(object).expect("clang wrote it")
}
