//! A directory in which a switch lives, and the guard that empties it.
//!
//! However the test program ends, the guard then ends every process that has this directory, or one
//! below it, as its `OVS_RUNDIR`, and removes the directory and what the switch has pinned in bpffs
//! (links go with their pins, programs and maps with both). So daemons that have detached themselves
//! leave nothing behind either.

use super::{Guard, Output};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds after which one of the OVS tools gives up.
const TOOL_TIMEOUT: &str = "30";

const GUARD: &str = r#"
trap '' INT TERM HUP
read -r _
for environment in /proc/[0-9]*/environ; do
    pid=${environment#/proc/}; pid=${pid%/environ}
    [ "$pid" = $$ ] || { grep -qzxE "OVS_RUNDIR=$1(/.*)?" "$environment" && kill -9 "$pid"; } 2>/dev/null
done
rm -rf "$2"
for try in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" && break; sleep 0.1; done
"#;

/// A directory of its own, removed when dropped together with the processes that belong to it.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    _guard: Guard,
}

impl Place {
    /// Makes an empty directory and its guard.
    ///
    /// # Panics
    /// When the directory for temporary files cannot be written to.
    #[expect(clippy::new_without_default, reason = "it makes a directory and a process")]
    pub fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("slipswitch-test.{}.{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("cannot make {}: {e}", dir.display()));
        let pinned = pins(&dir);
        let arguments = [dir.as_os_str(), pinned.as_os_str()];
        let _guard =
            Guard::start(GUARD, &arguments, Stdio::null()).expect("setsid is part of util-linux");
        Place { dir, _guard }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a switch of this place pins its BPF objects.
    pub fn pins(&self) -> PathBuf {
        pins(&self.dir)
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A file's text, empty when there is no such file.
    pub fn read(&self, name: &str) -> String {
        std::fs::read(self.file(name))
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    }

    /// Writes a file and tells its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text)
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        path
    }

    /// Points `command` to this place: OVS's directories, the working directory, a plain
    /// environment. The command's standard input is empty.
    pub fn settle(&self, command: &mut Command) {
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.dir);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("OVS_CTL_TIMEOUT", TOOL_TIMEOUT)
            .env("LC_ALL", "C")
            .env_remove("OVS_PKGDATADIR")
            .env_remove("OVS_SYSLOG_METHOD")
            .current_dir(&self.dir)
            .stdin(Stdio::null());
    }

    /// Runs a line of shell here.
    ///
    /// # Panics
    /// When there is no shell.
    pub fn sh(&self, line: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.settle(&mut command);
        command.output().expect("there is a shell").into()
    }
}

fn pins(run: &Path) -> PathBuf {
    process::Dirs::from_vars(|name| (name == "OVS_RUNDIR").then(|| run.into())).bpf_pins()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn processes_of_a_place_end_with_it() {
        let place = Place::new();
        let pid = place.sh("setsid sleep 1000 >/dev/null 2>&1 & echo $!").stdout;
        let proc = PathBuf::from(format!("/proc/{}/environ", pid.trim()));
        assert!(proc.exists());
        let dir = place.dir().to_owned();
        drop(place);
        assert!(!dir.exists());
        let gone = || std::fs::read(&proc).map_or(true, |e| e.is_empty());
        assert!(crate::harness::wait_until(Duration::from_secs(3), gone));
    }
}
