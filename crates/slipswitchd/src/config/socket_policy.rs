// SPDX-License-Identifier: Apache-2.0
//! The Unix sockets that a Controller row may name.
//!
//! A client that can write the database must not make the daemon connect to any socket of the host,
//! nor replace one of the host's files by a socket. `--no-self-confinement` lifts this.

use crate::openflow::{Endpoint, Target};
use std::path::{Component, Path};

/// Checks that a bridge may have this controller. Of Unix sockets, a bridge may connect to those in
/// the run directory, and listen on `BRIDGE.*` there.
///
/// # Errors
/// The bridge may not have the controller. The text is for the log.
pub(super) fn check(target: &str, bridge: &str, run: &Path) -> Result<(), String> {
    if let Some(Target::Unix(path)) = Target::parse(target, run)
        && !in_run(&path, run)
    {
        return Err(format!(
            "not connecting to \"{target}\": the database may only name sockets in {} (see --no-self-confinement)",
            run.display()
        ));
    }
    if let Ok(Endpoint::Unix(path)) = Endpoint::parse(target, run)
        && !is_of_bridge(&path, bridge, run)
    {
        return Err(format!(
            "not listening on \"{target}\", which could be in the place of another file: the database may only name {}/{bridge}.* (see --no-self-confinement)",
            run.display()
        ));
    }
    Ok(())
}

/// Returns true for paths below `run` that do not climb out of it.
fn in_run(path: &Path, run: &Path) -> bool {
    path.strip_prefix(run)
        .is_ok_and(|rest| rest.components().all(|c| matches!(c, Component::Normal(_))))
}

/// Returns true for `RUN/BRIDGE.*`.
fn is_of_bridge(path: &Path, bridge: &str, run: &Path) -> bool {
    let name = path.strip_prefix(run).ok().and_then(Path::to_str);
    name.and_then(|n| n.strip_prefix(bridge))
        .and_then(|n| n.strip_prefix('.'))
        .is_some_and(|n| !n.is_empty() && !n.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_the_run_directory_only() {
        let allowed = |target| check(target, "br0", Path::new("/run/ovs")).is_ok();
        for good in [
            "unix:ofproxy.sock",
            "unix:/run/ovs/a/b.sock",
            "unix:/run//ovs/./c",
            "punix:br0.controller",
            "punix:/run/ovs/br0.x",
            "tcp:10.0.0.1:6653",
            "ssl:10.0.0.1",
            "ptcp:6653",
            "nonsense",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in [
            "unix:/run/docker.sock",
            "unix:../docker.sock",
            "unix:/run/ovs/../docker.sock",
            "unix:/run/ovs-other/x",
            "punix:db.sock",
            "punix:br1.controller",
            "punix:br0.",
            "punix:br0",
            "punix:br0.x/../db.sock",
            "punix:/etc/passwd",
            "punix:/run/ovs/../br0.x",
        ] {
            assert!(!allowed(bad), "{bad}");
        }
    }
}
