// SPDX-License-Identifier: Apache-2.0
//! CPUs, and threads that stay on them.

/// The calling thread stays on the CPU where it is.
#[allow(dead_code)] // not every file of tests needs it
pub fn pin_to_one_cpu() -> usize {
    // SAFETY: sched_getcpu has no arguments.
    let cpu = unsafe { libc::sched_getcpu() }.max(0) as usize;
    pin_to(cpu);
    cpu
}

/// The calling thread stays on this CPU.
pub fn pin_to(cpu: usize) {
    // SAFETY: cpu_set_t is plain memory, and its size is passed.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Two CPUs that this process may run on, the same one twice where there is no other.
#[allow(dead_code)] // not every file of tests needs it
pub fn two_cpus() -> [usize; 2] {
    // SAFETY: cpu_set_t is plain memory, and its size is passed; 0 stands for this thread, and the
    // process's first one is never pinned.
    let mut cpus = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let process = libc::getpid();
        assert_eq!(libc::sched_getaffinity(process, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect::<Vec<_>>()
    };
    cpus.truncate(2);
    [cpus[0], cpus[cpus.len() - 1]]
}
