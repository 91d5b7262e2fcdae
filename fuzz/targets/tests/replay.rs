// SPDX-License-Identifier: Apache-2.0
//! Every seed, everything that fuzzing has collected, and every input that once failed, through
//! its target. On stable: libFuzzer is not needed.

use fuzz_targets::{TARGETS, Target, pack};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Limit for one input. None takes this long, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Runs inputs; what is wrong with them.
fn replay(target: &Target, what: &str, inputs: &[Vec<u8>]) -> Vec<String> {
    let mut failures = Vec::new();
    for input in inputs {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        let wrong = match result {
            Err(_) => "panics",
            Ok(()) if start.elapsed() > PATIENCE => "takes too long",
            Ok(()) => continue,
        };
        let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
        failures.push(format!("{} {what}: {wrong}: {hex}", target.name));
    }
    failures
}

fn of_file(target: &Target, path: &Path) -> Vec<String> {
    let what = path.file_name().unwrap_or_default().to_string_lossy();
    let text = std::fs::read_to_string(path).expect("it was just listed");
    match pack::read(&text) {
        Ok(inputs) => replay(target, &what, &inputs),
        Err(e) => vec![format!("{}: {e}", path.display())],
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    files
}

fn all_of(target: &Target) -> Vec<String> {
    let mut failures = replay(target, "seed", &(target.seeds)());
    // Each input is cut once, too: a seed's halves are its neighbours.
    let halves: Vec<Vec<u8>> = (target.seeds)().iter().map(|s| s[..s.len() / 2].to_vec()).collect();
    failures.extend(replay(target, "half of a seed", &halves));
    failures.extend(of_file(target, &beside("corpora").join(format!("{}.hex", target.name))));
    for file in files(&beside("regressions").join(target.name)) {
        failures.extend(of_file(target, &file));
    }
    failures
}

#[test]
fn no_input_fails_again() {
    let failures: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = TARGETS.iter().map(|t| scope.spawn(|| all_of(t))).collect();
        runs.into_iter().flat_map(|run| run.join().expect("failures are caught")).collect()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_regression_says_why_and_belongs_to_a_target() {
    for folder in files(&beside("regressions")) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(fuzz_targets::target(&name).is_some(), "{name} is no target");
        for file in files(&folder) {
            let text = std::fs::read_to_string(&file).expect("it was just listed");
            assert!(text.starts_with("# "), "{} does not say why it is there", file.display());
            assert!(!pack::read(&text).expect("hexadecimal").is_empty(), "{}", file.display());
        }
    }
}
