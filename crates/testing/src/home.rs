// SPDX-License-Identifier: Apache-2.0
//! Directories in which programs live, and the guard that empties them.

use crate::Guard;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// Ends all processes of the directory `$1`, and removes it, everything else that is named, and the
/// directories around that as far as they are empty. A process that has just been started, or is
/// about to execute another program, may be missed: the scan repeats until two scans find none.
const GUARD: &str = r#"
trap '' INT TERM HUP
read -r _
processes() {
    grep -lzxE "OVS_RUNDIR=$1(/.*)?" /proc/[0-9]*/environ | grep -vx "/proc/$$/environ"
}
last=some
for try in $(seq 100); do
    found=$(processes "$1")
    [ "$found$last" ] || break
    last=$found
    for environment in $found; do
        pid=${environment#/proc/}
        kill -9 "${pid%/environ}"
    done
    sleep 0.01
done
rm -rf "$@"
shift
for path; do rmdir "${path%/*}"; done
"#;

/// A directory of its own. When this is dropped, and however the program ends, every process that
/// has the directory, or one below it, as its `OVS_RUNDIR` is ended, also one that has detached
/// itself; then the directory is removed.
#[derive(Debug)]
pub struct Home {
    dir: PathBuf,
    _guard: Guard,
}

impl Home {
    /// Makes an empty directory and its guard. Paths in `outside` are elsewhere but belong to the
    /// directory: they are removed with it, and so are their parent directories if they are empty
    /// then.
    ///
    /// # Panics
    /// When the directory for temporary files cannot be written to.
    pub fn new(outside: impl FnOnce(&Path) -> Vec<PathBuf>) -> Home {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("slipswitch-test.{}.{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("cannot make {}: {e}", dir.display()));
        let outside = outside(&dir);
        let arguments: Vec<&OsStr> =
            [&dir].into_iter().chain(&outside).map(|path| path.as_os_str()).collect();
        let _guard =
            Guard::start(GUARD, &arguments, Stdio::null()).expect("setsid is part of util-linux");
        Home { dir, _guard }
    }

    /// The path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// An empty directory that is removed when it is dropped, and however the program ends. Processes
/// whose `OVS_RUNDIR` it is do not outlive the program.
///
/// # Panics
/// When the directory for temporary files cannot be written to.
pub fn directory() -> TempDir {
    // A value that is never dropped: its guard acts when the program ends.
    static ALL: OnceLock<Home> = OnceLock::new();
    let all = ALL.get_or_init(|| Home::new(|_| Vec::new()));
    TempDir::with_prefix_in("d", all.dir()).expect("the directory around it is ours")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_until;
    use std::io::{BufRead, BufReader};
    use std::process::Command;
    use std::time::Duration;

    /// Starts a process that detaches itself, as one of `dir`; its number.
    fn detached(dir: &Path) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"]);
        let output = command.env("OVS_RUNDIR", dir).stdin(Stdio::null()).output().expect("sh");
        String::from_utf8(output.stdout).expect("a number").trim().to_owned()
    }

    fn runs(pid: &str) -> bool {
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| !text.is_empty())
    }

    /// While it becomes another program it has no environment.
    fn runs_soon(pid: &str) -> bool {
        wait_until(Duration::from_secs(10), || runs(pid))
    }

    #[test]
    fn processes_of_a_home_end_with_it() {
        let elsewhere = directory();
        let file = elsewhere.path().join("file");
        let (around, below) = (elsewhere.path().join("around"), elsewhere.path().join("around/it"));
        std::fs::write(&file, "").expect("it is ours");
        std::fs::write(elsewhere.path().join("other"), "").expect("it is ours");
        std::fs::create_dir_all(&below).expect("it is ours");
        let home = Home::new(|_| vec![file.clone(), below.clone()]);
        let (one, two) = (detached(home.dir()), detached(&home.dir().join("below")));
        let other = detached(elsewhere.path());
        let dir = home.dir().to_owned();
        assert!(runs_soon(&one) && runs_soon(&two) && runs_soon(&other) && dir.exists());
        drop(home);
        assert!(!dir.exists() && !file.exists() && !around.exists());
        assert!(elsewhere.path().join("other").exists());
        assert!(!runs(&one) && !runs(&two) && runs_soon(&other));
        let _ = Command::new("kill").args(["-9", &other]).status();
    }

    /// Set for the program that [`a_killed_program_leaves_nothing`] kills.
    const VICTIM: &str = "SLIPSWITCH_TEST_VICTIM";

    #[test]
    fn a_killed_program_leaves_nothing() {
        if std::env::var_os(VICTIM).is_some() {
            let dir = directory();
            println!("\n@{} {}", dir.path().display(), detached(dir.path()));
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let mut victim = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "--nocapture", "home::tests::a_killed_program_leaves_nothing"])
            .env(VICTIM, "")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(victim.stdout.take().expect("piped")).lines();
        let said = lines.map_while(Result::ok).find_map(|l| l.strip_prefix('@').map(str::to_owned));
        let said = said.expect("where it lives");
        let (dir, pid) = said.split_once(' ').expect("a directory and a process");
        let all = Path::new(dir).parent().expect("it is below another");
        assert!(all.exists() && runs_soon(pid));
        victim.kill().expect("it is ours");
        victim.wait().expect("it is ours");
        assert!(wait_until(Duration::from_secs(10), || !all.exists() && !runs(pid)), "{said}");
    }
}
