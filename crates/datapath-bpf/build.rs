// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs with clang, one object a hook, and puts them where the loader
//! includes them from.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const OBJECTS: [&str; 2] = ["tc", "xdp"];
/// Users' programs, for the tests.
const EXAMPLES: [&str; 1] = ["l2-ipv4"];
/// Programs that only tests run.
const TESTS: [&str; 1] = ["ct_table"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let sources = Path::new("bpf");
    println!("cargo:rerun-if-changed=bpf");
    for file in std::fs::read_dir(sources).into_iter().flatten().flatten() {
        println!("cargo:rerun-if-changed={}", file.path().display());
    }
    println!("cargo:rerun-if-changed=examples");
    println!("cargo:rerun-if-changed=tests/ct_table.bpf.c");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // Tests compile broken programs.
    println!("cargo:rustc-env=CLANG={clang}");
    println!("cargo:rustc-env=CLANG_FLAGS={}", flags().join("\u{1f}"));
    for name in OBJECTS {
        compile(&clang, &sources.join(format!("{name}.bpf.c")), &out.join(format!("{name}.bpf.o")));
    }
    let examples = EXAMPLES.map(|name| ("examples", name));
    for (directory, name) in examples.into_iter().chain(TESTS.map(|name| ("tests", name))) {
        let source = Path::new(directory).join(format!("{name}.bpf.c"));
        compile(&clang, &source, &out.join(format!("{name}.bpf.o")));
    }
}

fn compile(clang: &str, source: &Path, object: &Path) {
    let mut command = Command::new(clang);
    command.args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-sign-compare"]);
    command.args(["-Wno-missing-field-initializers", "-ffile-prefix-map=bpf/="]).args(flags());
    command.arg("-c").arg(source).arg("-o").arg(object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(_) => fail(&format!("{clang} could not compile {}", source.display())),
        Err(e) => fail(&format!(
            "{clang} could not be run ({e}): the BPF programs are compiled by clang 12 or newer; \
             install it (\"apt install clang\", \"dnf install clang\") or set CLANG to its path"
        )),
    }
}

/// Returns the compiler flags for the programs, except those for warnings.
fn flags() -> Vec<String> {
    let mut flags: Vec<String> =
        ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-I", "bpf"].map(String::from).into();
    flags.push(format!("-D__TARGET_ARCH_{}", target_arch()));
    // libbpf's own headers (bpf_helpers.h), of the version that loads the objects.
    if let Ok(include) = env::var("DEP_BPF_INCLUDE") {
        flags.extend(["-I".into(), include]);
    }
    // asm/types.h lives in a directory named after the host.
    for triplet in ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"] {
        if triplet.starts_with(&env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default()) {
            flags.extend(["-idirafter".into(), format!("/usr/include/{triplet}")]);
        }
    }
    flags
}

/// As libbpf's bpf_tracing.h names architectures.
fn target_arch() -> String {
    match env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default().as_str() {
        "x86_64" => "x86".into(),
        "aarch64" => "arm64".into(),
        "riscv64" => "riscv".into(),
        other => other.into(),
    }
}

fn fail(words: &str) -> ! {
    eprintln!("error: {words}");
    exit(1)
}
