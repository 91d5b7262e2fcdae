//! What takes root, and a network namespace of its own.

#![allow(dead_code)] // each test program uses some of it

use std::process::Command;

/// False, after saying so, where a test cannot run.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        testing::skip("it takes root (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN)");
    }
    root
}

/// Runs `f` on a thread with a network namespace of its own.
pub fn in_namespace(f: impl FnOnce() + Send) {
    if !is_root() {
        return;
    }
    testing::in_namespace(f);
}

/// Runs a program, which must succeed; what it prints.
pub fn tool(program: &str, arguments: &str) -> String {
    let done = Command::new(program).args(arguments.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments}: {said}");
    String::from_utf8(done.stdout).unwrap()
}

/// The number of a device of this thread's namespace.
pub fn ifindex(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a string that ends with NUL.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0);
    index
}
