// SPDX-License-Identifier: Apache-2.0
//! The directories that daemon, tools and scripts agree on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where things are: from the environment, else where Debian's packages put them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// Sockets and pidfiles: `OVS_RUNDIR`, `/var/run/openvswitch`.
    pub run: PathBuf,
    /// Log files: `OVS_LOGDIR`, `/var/log/openvswitch`.
    pub log: PathBuf,
    /// The database: `OVS_DBDIR`; else below `OVS_SYSCONFDIR`; else `/etc/openvswitch`.
    pub db: PathBuf,
    /// The parent of configuration: `OVS_SYSCONFDIR`, `/etc`.
    pub sysconf: PathBuf,
    /// Schemas: `OVS_PKGDATADIR`, `/usr/share/openvswitch`.
    pub pkgdata: PathBuf,
}

impl Dirs {
    /// The directories of this process's environment.
    pub fn from_env() -> Dirs {
        Dirs::from_vars(|name| std::env::var_os(name))
    }

    /// The directories for the variables that `var` knows. An empty value counts as absent.
    pub fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Dirs {
        let get = |name| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let or = |name, default: &str| get(name).unwrap_or_else(|| PathBuf::from(default));
        let db = get("OVS_DBDIR")
            .or_else(|| get("OVS_SYSCONFDIR").map(|dir| dir.join("openvswitch")))
            .unwrap_or_else(|| PathBuf::from("/etc/openvswitch"));
        Dirs {
            run: or("OVS_RUNDIR", "/var/run/openvswitch"),
            log: or("OVS_LOGDIR", "/var/log/openvswitch"),
            db,
            sysconf: or("OVS_SYSCONFDIR", "/etc"),
            pkgdata: or("OVS_PKGDATADIR", "/usr/share/openvswitch"),
        }
    }

    /// `RUN/PROGRAM.pid`.
    pub fn default_pidfile(&self, program: &str) -> PathBuf {
        self.run.join(format!("{program}.pid"))
    }

    /// `RUN/PROGRAM.PID.ctl`, for the calling process.
    pub fn default_ctl(&self, program: &str) -> PathBuf {
        self.run.join(format!("{program}.{}.ctl", std::process::id()))
    }

    /// `LOG/PROGRAM.log`.
    pub fn default_log(&self, program: &str) -> PathBuf {
        self.log.join(format!("{program}.log"))
    }

    /// Where this switch's maps, programs and links are pinned: one directory in bpffs for each
    /// run directory. bpffs takes no dots in names; what is not a letter, digit or `-` becomes
    /// `_` and two hexadecimal digits, and `/` becomes `__`.
    pub fn bpf_pins(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let run = self.run.as_os_str().as_bytes();
        let mut name = String::with_capacity(run.len());
        for byte in run.strip_prefix(b"/").unwrap_or(run) {
            match byte {
                b'/' => name.push_str("__"),
                b if b.is_ascii_alphanumeric() || *b == b'-' => name.push(char::from(*b)),
                b => name.push_str(&format!("_{b:02x}")),
            }
        }
        Path::new("/sys/fs/bpf/slipswitch").join(name)
    }

    /// A name given on the command line for something in the run directory: as it is when it is
    /// absolute, else below the run directory.
    pub fn in_run(&self, name: &Path) -> PathBuf {
        self.run.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_directory_has_pins_of_its_own() {
        let pins = |run: &str| {
            let dirs = Dirs::from_vars(|n| (n == "OVS_RUNDIR").then(|| run.into()));
            dirs.bpf_pins().to_str().map(str::to_owned).unwrap_or_default()
        };
        assert_eq!(pins("/run/openvswitch"), "/sys/fs/bpf/slipswitch/run__openvswitch");
        assert_eq!(pins("/tmp/a.1_b"), "/sys/fs/bpf/slipswitch/tmp__a_2e1_5fb");
        assert_ne!(pins("/a/b"), pins("/a_b"));
    }

    #[test]
    fn environment_and_defaults() {
        let plain = Dirs::from_vars(|_| None);
        assert_eq!(
            plain.default_pidfile("ovs-vswitchd"),
            Path::new("/var/run/openvswitch/ovs-vswitchd.pid")
        );
        assert_eq!(plain.db, Path::new("/etc/openvswitch"));
        assert_eq!(plain.pkgdata, Path::new("/usr/share/openvswitch"));
        let set = Dirs::from_vars(|name| Some(format!("/x/{name}").into()));
        assert_eq!(set.default_log("p"), Path::new("/x/OVS_LOGDIR/p.log"));
        assert_eq!(set.db, Path::new("/x/OVS_DBDIR"));
        assert_eq!(set.in_run(Path::new("a.pid")), Path::new("/x/OVS_RUNDIR/a.pid"));
        assert_eq!(set.in_run(Path::new("/a.pid")), Path::new("/a.pid"));
        let part = Dirs::from_vars(|n| match n {
            "OVS_SYSCONFDIR" => Some("/s".into()),
            "OVS_RUNDIR" => Some("".into()),
            _ => None,
        });
        assert_eq!(part.db, Path::new("/s/openvswitch"));
        assert_eq!(part.run, Path::new("/var/run/openvswitch"));
    }
}
