// SPDX-License-Identifier: Apache-2.0
//! Work in other network namespaces.
//!
//! The namespace is a property of the thread. So each piece of work in another namespace runs on a
//! thread of its own, which ends with it.

use crate::link::LinkClient;
use crate::netlink::{NLM_F_ACK, Request, attributes, u32_of};
use crate::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

// include/uapi/linux/rtnetlink.h, net_namespace.h
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// Runs `work` on a thread in `namespace` and waits for its result.
pub(crate) fn within<T: Send + 'static>(
    namespace: OwnedFd,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let thread = std::thread::Builder::new().name("netns".to_owned()).spawn(move || {
        // SAFETY: no memory is passed.
        sys::check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
        work()
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
}

/// Device and inode, which identify a namespace while it exists.
pub(crate) type Identity = (u64, u64);

/// Returns the identity of the calling thread's namespace.
pub(crate) fn own() -> io::Result<Identity> {
    fs::metadata("/proc/thread-self/ns/net").map(|m| (m.dev(), m.ino()))
}

/// Returns the identity of the namespace of a descriptor.
pub(crate) fn identity(namespace: &File) -> io::Result<Identity> {
    namespace.metadata().map(|m| (m.dev(), m.ino()))
}

/// The paths of namespaces, by their numbers. Paths, because an open descriptor would keep a
/// namespace and all devices in it alive.
pub(crate) type NamespacePaths = BTreeMap<i32, PathBuf>;

/// Returns the namespace that the one of `client` numbers `number` (`IFLA_LINK_NETNSID`), if it has
/// a name or belongs to a process. There may be thousands of processes, so the path of the last
/// search is tried first.
pub(crate) fn numbered(
    client: &LinkClient,
    number: i32,
    paths: &mut NamespacePaths,
) -> Option<OwnedFd> {
    let is_it = |namespace: &File| number_of(client, namespace) == Some(number);
    if let Some(namespace) = paths.get(&number).and_then(|path| File::open(path).ok())
        && is_it(&namespace)
    {
        return Some(namespace.into());
    }
    paths.remove(&number);
    let found = all().find(|found| is_it(&found.namespace))?;
    paths.insert(number, found.path);
    Some(found.namespace.into())
}

/// A namespace and the path by which it was found.
pub(crate) struct FoundNamespace {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    /// Keeps the namespace, and all devices in it, alive.
    pub(crate) namespace: File,
}

/// Returns every namespace that has a name or belongs to a process, once.
pub(crate) fn all() -> impl Iterator<Item = FoundNamespace> {
    let named =
        ["/run/netns", "/run/docker/netns"].into_iter().flat_map(|dir| entries(dir.as_ref()));
    let of_processes = entries("/proc".as_ref())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.first().is_some_and(u8::is_ascii_digit)
        })
        .map(|process| process.join("ns/net"));
    distinct(named.chain(of_processes), |path| File::open(path))
}

/// Returns the namespaces at `paths`, each once. A path that cannot be opened (its process has
/// ended, or permission is missing) does not hide another path of the same namespace.
fn distinct(
    paths: impl Iterator<Item = PathBuf>,
    open: impl Fn(&Path) -> io::Result<File>,
) -> impl Iterator<Item = FoundNamespace> {
    let mut seen = BTreeSet::new();
    paths.filter_map(move |path| {
        let namespace = open(&path).ok()?;
        let identity = identity(&namespace).ok()?;
        seen.insert(identity).then_some(FoundNamespace { path, identity, namespace })
    })
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// Returns the number of `namespace` in the namespace of `client`; `None` without a number.
fn number_of(client: &LinkClient, namespace: &File) -> Option<i32> {
    // struct rtgenmsg: family, padded.
    let request = Request::new(RTM_GETNSID, NLM_F_ACK, &[0])
        .attribute(NETNSA_FD, &namespace.as_raw_fd().to_ne_bytes());
    let mut number = None;
    let asked = client.request(request, |kind, payload| {
        if kind == RTM_NEWNSID {
            number = attributes(payload.get(4..).unwrap_or_default())
                .find(|(kind, _)| *kind == NETNSA_NSID)
                .and_then(|(_, value)| u32_of(value))
                .map(u32::cast_signed);
        }
    });
    asked.ok()?;
    number.filter(|n| *n >= 0) // -1: not numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_hides_no_other_of_its_namespace() {
        let own = Path::new("/proc/thread-self/ns/net");
        let paths = ["/proc/1/ns/net", "/proc/2/ns/net", "/proc/3/ns/net"].map(PathBuf::from);
        let found: Vec<_> = distinct(paths.into_iter(), |path| {
            let is_there = path != Path::new("/proc/1/ns/net");
            if is_there { File::open(own) } else { Err(io::ErrorKind::NotFound.into()) }
        })
        .map(|found| found.path)
        .collect();
        assert_eq!(found, [Path::new("/proc/2/ns/net")]);
    }
}
