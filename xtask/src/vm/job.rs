//! What the guest is to do.

use std::path::{Path, PathBuf};

/// One program to run.
#[derive(Clone, Debug)]
pub struct Step {
    /// How it is named to the user.
    pub label: String,
    /// Where it runs.
    pub dir: PathBuf,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Variables of the environment.
    pub variables: Vec<(String, String)>,
    /// Directories of the host that the steps need.
    pub directories: Vec<PathBuf>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Go on after a step that fails.
    pub keep_going: bool,
}

/// Variables that tests may read and that mean the same in the guest, by the start of their names.
const PASSED: [&str; 5] = ["RUST_", "PROPTEST_", "SLIPSWITCH_", "PATH", "LANG"];

impl Job {
    /// Takes over the variables of this process that concern tests.
    pub fn inherit_environment(&mut self) {
        let passed =
            std::env::vars().filter(|(name, _)| PASSED.iter().any(|p| name.starts_with(p)));
        self.variables.extend(passed);
        self.variables.sort();
    }

    /// The part of the guest's script that is this job's own; `run.sh` reads it.
    pub fn script(&self) -> String {
        let mut script = String::new();
        for (name, value) in &self.variables {
            script += &format!("export {name}={}\n", quote(value));
        }
        if self.keep_going {
            script += "keep_going=yes\n";
        }
        for (number, step) in self.steps.iter().enumerate() {
            let words = step.words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ");
            script += &format!("step {number} {} {words}\n", quote(&step.dir.to_string_lossy()));
        }
        script
    }

    /// The directories that the guest's own `/tmp` and `/run` would hide, a line each.
    pub fn kept_directories(&self) -> String {
        let mut hidden: Vec<&Path> = self
            .directories
            .iter()
            .map(PathBuf::as_path)
            .filter(|d| ["/tmp", "/run", "/var/run"].iter().any(|h| d.starts_with(h)))
            .collect();
        hidden.sort();
        // A directory in another one that is kept is kept with it.
        hidden.dedup_by(|inner, outer| inner.starts_with(outer));
        hidden.iter().map(|d| format!("{}\n", d.display())).collect()
    }
}

/// A word that the shell takes as it is.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let job = Job {
            variables: vec![("WHO".into(), "it's $HOME".into())],
            steps: vec![Step {
                label: "x".into(),
                dir: "/a b".into(),
                words: ["/bin/x", "--exact", "`a`"].map(str::to_owned).to_vec(),
            }],
            keep_going: true,
            ..Job::default()
        };
        let stub = "step() { printf '%s|' \"$@\" \"$WHO\" $keep_going; }\n";
        let output = std::process::Command::new("sh")
            .args(["-c", &(stub.to_owned() + &job.script())])
            .output()
            .expect("there is a shell");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, "0|/a b|/bin/x|--exact|`a`|it's $HOME|yes|");
    }

    #[test]
    fn only_hidden_directories_are_kept() {
        let directories =
            ["/srv/x", "/tmp/target/debug", "/tmp/target", "/tmpfs", "/run/x"].map(PathBuf::from);
        let job = Job { directories: directories.to_vec(), ..Job::default() };
        assert_eq!(job.kept_directories(), "/run/x\n/tmp/target\n");
    }
}
