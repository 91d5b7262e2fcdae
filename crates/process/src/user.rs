// SPDX-License-Identifier: Apache-2.0
//! Running as another user (`--user`), with just the capabilities that a switch needs.

use crate::error::ProcessError;
use crate::sys;

/// Capabilities by their numbers in linux/capability.h.
const CAP_NET_BIND_SERVICE: u32 = 10;
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The user and group that the process runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, when one was given; its supplementary groups are taken over.
    name: Option<String>,
    uid: u32,
    gid: u32,
}

impl User {
    /// Reads `USER`, `USER:GROUP` or `:GROUP`, by name in the system's database. A missing user is
    /// the present one; a missing group is the user's own (`USER` alone or `USER:`).
    ///
    /// # Errors
    /// A name that does not exist, or a database that cannot be read.
    pub fn parse(spec: &str) -> Result<User, ProcessError> {
        let (user, group) = spec.split_once(':').unwrap_or((spec, ""));
        let lookup =
            |e: std::io::Error| ProcessError::User(format!("{spec}: {}", vlog::errno_text(&e)));
        let (name, uid, own_gid) = if user.is_empty() {
            let uid = rustix::process::getuid().as_raw();
            (None, uid, rustix::process::getgid().as_raw())
        } else {
            let (uid, gid) = sys::user_by_name(user)
                .map_err(lookup)?
                .ok_or_else(|| ProcessError::User(format!("user {user} not found, aborting.")))?;
            (Some(user.to_owned()), uid, gid)
        };
        let gid = if group.is_empty() {
            own_gid
        } else {
            sys::group_by_name(group)
                .map_err(lookup)?
                .ok_or_else(|| ProcessError::User(format!("group {group} not found, aborting.")))?
        };
        Ok(User { name, uid, gid })
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Becomes this user. Kept are CAP_NET_ADMIN (devices), CAP_NET_RAW (AF_PACKET, AF_XDP),
    /// CAP_BPF and CAP_PERFMON (BPF programs: the second lets them compare packet pointers),
    /// CAP_NET_BIND_SERVICE (listeners) and CAP_IPC_LOCK (`--mlockall`), also when the new user is
    /// root; all else is given up for good.
    ///
    /// Call it with a single thread: credentials are a thread's own in Linux.
    ///
    /// # Errors
    /// The caller is not root, or the kernel refused a step. The process may then be between the
    /// users and must end.
    pub fn assume(&self) -> Result<(), ProcessError> {
        if !rustix::process::geteuid().is_root() {
            return Err(ProcessError::User("only root can use --user option, aborting".into()));
        }
        let step = |what: &'static str| {
            move |e: std::io::Error| {
                ProcessError::User(format!("failed to {what} ({}), aborting", vlog::errno_text(&e)))
            }
        };
        match &self.name {
            Some(name) => sys::init_groups(name, self.gid),
            None => sys::clear_groups(),
        }
        .map_err(step("set supplementary groups"))?;
        sys::set_gid(self.gid).map_err(step("change group"))?;
        sys::keep_capabilities(true).map_err(step("keep capabilities"))?;
        sys::set_uid(self.uid).map_err(step("change user"))?;
        let kept =
            [CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON, CAP_NET_BIND_SERVICE, CAP_IPC_LOCK]
                .into_iter()
                .fold(0, |bits, cap| bits | 1u64 << cap);
        sys::set_capabilities(kept).map_err(step("set capabilities"))?;
        sys::keep_capabilities(false).map_err(step("stop keeping capabilities"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up() {
        let root = User::parse("root:").unwrap();
        assert_eq!((root.uid(), root.gid()), (0, 0));
        assert_eq!(User::parse(":root").unwrap().gid(), 0);
        assert_eq!(User::parse("root:daemon").unwrap().gid(), 1);
        assert_eq!(
            User::parse("nosuchuser").unwrap_err().to_string(),
            "user nosuchuser not found, aborting."
        );
        assert_eq!(
            User::parse(":nosuchgroup").unwrap_err().to_string(),
            "group nosuchgroup not found, aborting."
        );
        assert!(User::parse("a\0b").is_err());
    }
}
