// SPDX-License-Identifier: Apache-2.0
//! Compiles the benchmark's own BPF programs with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const OBJECTS: [&str; 2] = ["tc", "xdp"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    for name in OBJECTS {
        let source = Path::new("bpf").join(format!("{name}.bpf.c"));
        compile(&clang, &source, &out.join(format!("{name}.bpf.o")));
    }
}

fn compile(clang: &str, source: &Path, object: &Path) {
    let mut command = Command::new(clang);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]);
    command.args(["-target", "bpf", "-mcpu=v3"]);
    // libbpf's own headers, of the version that loads the objects.
    if let Some(include) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    // asm/types.h is in a directory named after the host.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command.arg("-idirafter").arg(format!("/usr/include/{arch}-linux-gnu"));
    command.arg("-c").arg(source).arg("-o").arg(object);
    match command.status() {
        Ok(status) if status.success() => return,
        Ok(_) => eprintln!("error: {clang} could not compile {}", source.display()),
        Err(e) => eprintln!(
            "error: {clang} could not be run ({e}): install it (\"apt install clang\") or set CLANG"
        ),
    }
    exit(1)
}
