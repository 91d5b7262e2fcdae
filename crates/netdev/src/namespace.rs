//! Work in other network namespaces.
//!
//! The namespace is a property of the thread, so whoever wants something from another one does
//! it on a thread that ends with the question.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::link::LinkClient;
use crate::netlink::{NLM_F_ACK, Request, attributes, u32_of};
use crate::sys;

// include/uapi/linux/rtnetlink.h, net_namespace.h
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// Runs `work` on a thread in `namespace` and waits for it.
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

/// What tells a namespace from all others that there are: device and inode.
pub(crate) type Identity = (u64, u64);

/// The calling thread's.
pub(crate) fn own() -> io::Result<Identity> {
    fs::metadata("/proc/thread-self/ns/net").map(|m| (m.dev(), m.ino()))
}

/// That of a descriptor.
pub(crate) fn identity(namespace: &File) -> io::Result<Identity> {
    namespace.metadata().map(|m| (m.dev(), m.ino()))
}

/// By which paths namespaces were found, by their numbers. Paths, because an open descriptor would
/// keep a namespace, and all devices in it, alive.
pub(crate) type Ways = BTreeMap<i32, PathBuf>;

/// The namespace that the one of `client` numbers `number` (`IFLA_LINK_NETNSID`), when it has a
/// name, or is the namespace of a process. There may be thousands of processes: the way by which
/// it was found is tried first.
pub(crate) fn numbered(client: &LinkClient, number: i32, ways: &mut Ways) -> Option<OwnedFd> {
    let opened = |path: &Path| {
        let namespace = OwnedFd::from(File::open(path).ok()?);
        (number_of(client, &namespace) == Some(number)).then_some(namespace)
    };
    if let Some(namespace) = ways.get(&number).and_then(|path| opened(path)) {
        return Some(namespace);
    }
    ways.remove(&number);
    let (namespace, path) = all().find_map(|(path, _)| Some((opened(&path)?, path)))?;
    ways.insert(number, path);
    Some(namespace)
}

/// Every namespace that has a name, or is that of a process, once.
pub(crate) fn all() -> impl Iterator<Item = (PathBuf, Identity)> {
    let mut seen = BTreeSet::new();
    let named =
        ["/run/netns", "/run/docker/netns"].into_iter().flat_map(|dir| entries(dir.as_ref()));
    let of_processes = entries("/proc".as_ref())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.first().is_some_and(u8::is_ascii_digit)
        })
        .map(|process| process.join("ns/net"));
    named.chain(of_processes).filter_map(move |path| {
        // Processes and names come and go, and some are not for us to look at.
        let identity = fs::metadata(&path).ok().map(|m| (m.dev(), m.ino()))?;
        seen.insert(identity).then_some((path, identity))
    })
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// What the namespace of `client` numbers `namespace`; `None` without a number.
fn number_of(client: &LinkClient, namespace: &OwnedFd) -> Option<i32> {
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
