// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs with clang, and puts the object where the loader includes it from.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const SOURCE: &str = "bpf/xdp_flow.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let object = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("xdp_flow.bpf.o");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut flags: Vec<String> = ["-O2", "-g", "-target", "bpf", "-mcpu=v3"].map(Into::into).into();
    // libbpf's own headers (bpf_helpers.h), of the version that loads the object.
    if let Ok(include) = env::var("DEP_BPF_INCLUDE") {
        flags.extend(["-I".into(), include]);
    }
    // asm/types.h lives in a directory named after the host.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    flags.extend(["-idirafter".into(), format!("/usr/include/{arch}-linux-gnu")]);
    // Tests compile programs of their own.
    println!("cargo:rustc-env=CLANG={clang}");
    println!("cargo:rustc-env=CLANG_FLAGS={}", flags.join("\u{1f}"));
    let mut command = Command::new(&clang);
    command.args(&flags).arg("-ffile-prefix-map=bpf/=");
    command.args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-sign-compare"]);
    command.arg("-c").arg(SOURCE).arg("-o").arg(object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(_) => fail(&format!("{clang} could not compile {SOURCE}")),
        Err(e) => fail(&format!(
            "{clang} could not be run ({e}): install clang 12 or newer, or set CLANG to its path"
        )),
    }
}

fn fail(words: &str) -> ! {
    eprintln!("error: {words}");
    exit(1)
}
