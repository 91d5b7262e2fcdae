// SPDX-License-Identifier: Apache-2.0
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles a BPF program to `object`. `clang` is the compiler, `flags` are its arguments as build
/// scripts pass them to tests: separated by U+001F.
///
/// # Panics
/// When the compiler does not run, or refuses the program.
pub fn compile_bpf(clang: &str, flags: &str, source: &str, object: &Path) {
    let mut command = Command::new(clang);
    command.args(flags.split('\u{1f}')).args(["-x", "c", "-c", "-", "-o"]).arg(object);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("clang runs");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(source.as_bytes()).expect("clang reads");
    drop(input);
    assert!(child.wait().expect("clang ends").success(), "{}", object.display());
}
