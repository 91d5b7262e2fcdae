// SPDX-License-Identifier: Apache-2.0
//! Commands that visit all connections. They work in turns of a few milliseconds, and other tasks
//! of the control thread run between two turns.

use super::{Dpctl, NOT_SUPPORTED, Words, failure};
use crate::commands::Answer;
use crate::daemon::Daemon;
use datapath::{Connections, Datapath};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{spawn_local, yield_now};
use unixctl::Reply;

/// Time of a turn, to which one slice may be added.
const TURN: Duration = Duration::from_millis(4);

/// Work in slices: a call does one, and returns the answer after the last.
pub(super) type Work = Box<dyn FnMut(&dyn Connections) -> Option<Answer>>;

impl Dpctl<'_> {
    /// Adds `dpctl/NAME`, which is answered when the work that `prepare` returns is done.
    pub(super) fn add_sliced(
        &self,
        name: &'static str,
        min: usize,
        max: usize,
        prepare: impl Fn(&Daemon, Words<'_>) -> Result<Work, String> + 'static,
    ) {
        let daemon = Rc::clone(self.0.daemon);
        let name_with_prefix = format!("dpctl/{name}");
        self.0.registry.add_deferred(
            &name_with_prefix,
            super::usage(name),
            min,
            max,
            move |call, reply| {
                let prepared = {
                    let daemon = daemon.borrow();
                    let datapath = Arc::clone(daemon.switch.datapath());
                    let work = Words::parse(call.args).and_then(|words| prepare(&daemon, words));
                    work.map(|work| (work, datapath))
                };
                match prepared {
                    Ok((work, datapath)) => {
                        spawn_local(run(work, datapath, reply));
                    }
                    Err(error) => reply.error(error),
                }
            },
        );
    }
}

async fn run(mut work: Work, datapath: Arc<dyn Datapath>, reply: Reply) {
    loop {
        let Some(connections) = datapath.connections() else {
            return reply.error(no_tracking());
        };
        let end = Instant::now() + TURN;
        loop {
            if let Some(answer) = work(connections) {
                return reply.send(answer);
            }
            if Instant::now() >= end {
                break;
            }
        }
        yield_now().await;
    }
}

/// The error of a datapath that does not track connections.
pub(super) fn no_tracking() -> String {
    failure("the datapath does not track connections", NOT_SUPPORTED)
}
