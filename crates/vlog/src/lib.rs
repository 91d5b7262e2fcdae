// SPDX-License-Identifier: Apache-2.0
//! Logging as Open vSwitch does it, as a layer of `tracing`.
//!
//! Code logs with `tracing`'s macros. The *module* of a message is the last segment of its target
//! (`target: "ofproto_dpif"`, or by default the last segment of the Rust module's path). Each
//! module has a threshold for each of three *destinations* (console, syslog, file), which `-v` and
//! `ovs-appctl vlog/set` change while the program runs. How a line looks is a pattern.
//!
//! Guarantees:
//! - Writing a line never panics and never returns an error. A full disk, a missing syslog daemon
//!   or a console that nobody reads costs the line (it is counted, and the log file says how many
//!   were lost when it can be written again), and at most 100 ms for the console.
//! - A message that no destination wants costs one load and a branch at its call site.
//! - Serial numbers (`%N`) count messages of the whole process; OVS counts by thread.
//! - TRACE events are not shown: OVS has no level below DBG.
//!
//! [`init`] once, early in `main`; everything else may be called at any time from any thread.

#![forbid(unsafe_code)]

mod calendar;
mod known;
mod layer;
mod level;
mod logger;
mod module;
mod pattern;
mod rate_limit;
mod sink;
mod spec;
mod syslog;

use std::sync::{Arc, OnceLock};

use tracing_subscriber::layer::SubscriberExt;

pub use known::OVS_MODULES;
pub use layer::VlogLayer;
pub use level::{Destination, Facility, Level};
pub use logger::{LocalOffset, Logger, abridged, errno_text, set_subprogram};
pub use rate_limit::{Admission, Dropped, RateLimit};
pub use syslog::{SyslogMethod, parse_target};
#[doc(hidden)]
pub use tracing;

static GLOBAL: OnceLock<Arc<Logger>> = OnceLock::new();

/// The process's logger. Before [`init`] it exists with defaults, but gets no events.
pub fn logger() -> &'static Arc<Logger> {
    GLOBAL.get_or_init(|| Arc::new(Logger::new("ovs-vswitchd")))
}

/// Makes the process's logger the receiver of all `tracing` events and gives it the program's
/// name. Takes the syslog method from `OVS_SYSLOG_METHOD` if that is set and valid. Calling it
/// again changes the name only. If some other subscriber is in place already, events stay with
/// that one.
pub fn init(program: &str) -> &'static Arc<Logger> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let logger = logger();
    logger.set_program(program);
    INSTALLED.get_or_init(|| {
        if let Ok(text) = std::env::var("OVS_SYSLOG_METHOD") {
            match SyslogMethod::parse(&text) {
                Ok(method) => logger.set_syslog_method(method),
                Err(error) => {
                    logger.log("vlog", Level::Warn, &format!("OVS_SYSLOG_METHOD: {error}"))
                }
            }
        }
        let subscriber = tracing_subscriber::registry().with(VlogLayer::new(Arc::clone(logger)));
        // An error means that a subscriber is set already, as documented above.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
    logger
}

/// Logs at EMER, the level that `tracing` does not have, to every destination.
pub fn emer(target: &str, message: &str) {
    logger().log(target, Level::Emer, message);
}

/// Reports an error that ends the program: at EMER to the log file and syslog, and as
/// `PROGRAM: MESSAGE` to standard error. The caller then exits.
pub fn fatal(target: &str, message: &str) {
    let logger = logger();
    logger.log_fatal(target, message);
    sink::write_console(&format!("{}: {message}\n", logger.program()));
}
