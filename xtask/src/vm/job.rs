// SPDX-License-Identifier: Apache-2.0
//! The work of a guest.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// One program to run.
#[derive(Clone, Debug)]
pub struct Step {
    /// Name in messages to the user.
    pub label: String,
    /// Where it runs.
    pub dir: PathBuf,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// All work of a guest.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Variables of the environment.
    pub variables: Vec<(String, String)>,
    /// Directories of the host that the steps need.
    pub directories: Vec<PathBuf>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The steps need the card in software.
    pub needs_card: bool,
    /// End with the first step that fails.
    pub fail_fast: bool,
    /// Seconds after which a step is ended.
    pub limit: u64,
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

    /// Gives the programs another name in `dir`, which the guest uses: a build while it runs
    /// changes nothing for it.
    ///
    /// # Errors
    /// A file cannot be linked or copied.
    pub fn keep_programs(&mut self, dir: &Path) -> Result<()> {
        let steps = self.steps.iter_mut().filter_map(|step| step.words.first_mut());
        let variables = self.variables.iter_mut().map(|(_, value)| value);
        let ours = |path: &Path| self.directories.iter().any(|d| path.starts_with(d));
        for word in steps.chain(variables) {
            let program = PathBuf::from(&*word);
            let Some(name) = program.file_name().filter(|_| ours(&program) && program.is_file())
            else {
                continue;
            };
            let kept = dir.join(name);
            if !kept.exists() && std::fs::hard_link(&program, &kept).is_err() {
                std::fs::copy(&program, &kept)
                    .with_context(|| format!("cannot copy {}", program.display()))?;
            }
            *word = kept.display().to_string();
        }
        Ok(())
    }

    /// The part of the guest's script that is this job's own; `run.sh` reads it.
    pub fn script(&self) -> String {
        let mut script = String::new();
        for (name, value) in &self.variables {
            script += &format!("export {name}={}\n", quote(value));
        }
        if self.fail_fast {
            script += "fail_fast=yes\n";
        }
        script += &format!("limit={} steps={}\n", self.limit, self.steps.len());
        for (number, step) in self.steps.iter().enumerate() {
            let words = step.words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ");
            let (label, dir) = (quote(&step.label), quote(&step.dir.to_string_lossy()));
            script += &format!("step {number} {label} {dir} {words}\n");
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

/// Returns a word quoted for the shell.
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
            fail_fast: true,
            limit: 7,
            ..Job::default()
        };
        let stub = "step() { printf '%s|' \"$@\" \"$WHO\" $fail_fast $limit $steps; }\n";
        let output = std::process::Command::new("sh")
            .args(["-c", &(stub.to_owned() + &job.script())])
            .output()
            .expect("there is a shell");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, "0|x|/a b|/bin/x|--exact|`a`|it's $HOME|yes|7|1|");
    }

    #[test]
    fn programs_outlive_a_build() {
        let target = testing::directory();
        let program = target.path().join("x");
        std::fs::write(&program, "old").expect("written");
        let kept = target.path().join("kept");
        std::fs::create_dir(&kept).expect("made");
        let path = program.display().to_string();
        let step =
            Step { label: "x".into(), dir: "/".into(), words: vec![path.clone(), "a".into()] };
        let mut job = Job {
            directories: vec![target.path().into()],
            variables: vec![("X".into(), path), ("PATH".into(), "/bin:/usr/bin".into())],
            steps: vec![
                step,
                Step { label: "y".into(), dir: "/".into(), words: vec!["/bin/sh".into()] },
            ],
            ..Job::default()
        };
        job.keep_programs(&kept).expect("linked");
        std::fs::remove_file(&program).expect("it is there");
        std::fs::write(&program, "new").expect("written");
        let word = &job.steps[0].words[0];
        assert_eq!(std::fs::read_to_string(word).expect("it is there"), "old");
        assert_eq!(&job.variables[0].1, word);
        assert_eq!((&*job.variables[1].1, &*job.steps[1].words[0]), ("/bin:/usr/bin", "/bin/sh"));
    }

    #[test]
    fn only_hidden_directories_are_kept() {
        let directories =
            ["/srv/x", "/tmp/target/debug", "/tmp/target", "/tmpfs", "/run/x"].map(PathBuf::from);
        let job = Job { directories: directories.to_vec(), ..Job::default() };
        assert_eq!(job.kept_directories(), "/run/x\n/tmp/target\n");
    }
}
