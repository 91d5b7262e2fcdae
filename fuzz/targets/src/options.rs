// SPDX-License-Identifier: Apache-2.0
//! Small languages: log specifications, connection targets, command lines.
//!
//! Words of a command line are separated by newlines.

use std::ffi::OsString;
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    log(&text);
    targets(&text);
    words(&text);
}

fn log(text: &str) {
    let logger = vlog::Logger::new("test");
    logger.register_modules(&["bridge"]);
    let _ = vlog::SyslogMethod::parse(text);
    let _ = vlog::parse_target(text);
    let before = logger.list();
    if logger.set(text).is_err() {
        assert_eq!(logger.list(), before, "what is refused changes nothing");
    }
    logger.list_pattern();
    let args: Vec<&str> = text.split('\n').collect();
    let _ = logger.set_command(&args);
    let _ = logger.set_rate_limits(true, &args);
}

fn targets(text: &str) {
    let directory = Path::new("/run");
    let _ = slipswitchd::openflow::Endpoint::parse(text, directory);
    if let Some(to) = slipswitchd::openflow::Target::parse(text, directory) {
        let printed = to.to_string();
        let again = slipswitchd::openflow::Target::parse(&printed, directory);
        assert_eq!(again.map(|t| t.to_string()), Some(printed));
    }
    if let Ok(remotes) = ovsdb::Remote::parse_list(text, directory) {
        assert!(remotes.len() <= text.len() + 1);
    }
}

fn words(text: &str) {
    let dirs = process::Dirs::from_vars(|_| None);
    let words = text.split('\n').map(OsString::from);
    if let Ok(args) = slipswitchd::args::Args::parse(words, &dirs) {
        args.database(&dirs);
        args.unixctl_path(&dirs);
    }
}
