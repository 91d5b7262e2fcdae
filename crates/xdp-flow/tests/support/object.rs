// SPDX-License-Identifier: Apache-2.0
//! BPF programs of tests.

/// Compiles a BPF program, and returns its object.
pub fn compile(source: &str) -> Vec<u8> {
    let directory = testing::directory();
    let object = directory.path().join("program.bpf.o");
    testing::compile_bpf(env!("CLANG"), env!("CLANG_FLAGS"), source, &object);
    std::fs::read(object).expect("clang wrote it")
}
