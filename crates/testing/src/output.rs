// SPDX-License-Identifier: Apache-2.0
//! What a command wrote.

/// What a command wrote, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The exit code; `None` when a signal ended the command.
    pub code: Option<i32>,
}

impl Output {
    /// True when the command said that it succeeded.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Both outputs, one behind the other.
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
