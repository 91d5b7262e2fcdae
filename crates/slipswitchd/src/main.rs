// SPDX-License-Identifier: Apache-2.0
//! `slipswitchd`: see the library's text.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    slipswitchd::run::main()
}
