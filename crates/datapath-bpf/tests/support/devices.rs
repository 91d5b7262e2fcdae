// SPDX-License-Identifier: Apache-2.0
//! Devices of the calling thread's network namespace.

use std::process::Command;

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
