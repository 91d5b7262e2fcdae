// SPDX-License-Identifier: Apache-2.0
//! The output of a command.

/// The output of a command and its exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The bytes of standard output, as text.
    pub stdout: String,
    /// The bytes of standard error, as text.
    pub stderr: String,
    /// The exit code; `None` when a signal ended the command.
    pub code: Option<i32>,
}

impl Output {
    /// True when the command said that it succeeded.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard output followed by standard error.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl From<std::process::Output> for Output {
    fn from(output: std::process::Output) -> Output {
        Output {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }
}
