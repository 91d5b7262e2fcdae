// SPDX-License-Identifier: Apache-2.0
//! The objects that outlive the daemon: maps and links, pinned in a directory of a BPF file system.
//!
//! ```text
//! /sys/fs/bpf/slipswitch/INSTANCE/
//!     slots masks index … devmap     shared maps, by their names
//!     tails_tc states_tc tails_xdp … maps that each hook has for itself
//!     link_PORT_tc link_PORT_xdp     programs that are attached to a port
//!     link_PORT_generic              XDP after the driver; the kernel does not report it of a link
//!     link_helper_PORT link_segmenter    programs at devices that help tunnels
//!     ct_config ct_zones … ct_chunk_N    the table of connections
//! ```
//!
//! The two parts have versions of their own: see [`Part`].
//!
//! The directory is locked while a daemon uses either part. The lock comes before the first change
//! of what an earlier daemon left, and ends when the last user of [`Pins`] does: a daemon that ends
//! has stopped its threads by then.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::attachment::Unavailable;
use crate::load::Hook;
use crate::sys;

/// `include/uapi/linux/magic.h`: BPF_FS_MAGIC.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// Longest time that a daemon may take to end until the next daemon gives up waiting for its
/// tables.
const HAND_OVER: Duration = Duration::from_secs(3);
/// Conventional mount point of a BPF file system.
const BPFFS: &str = "/sys/fs/bpf";

/// A part of the pinned objects that is made and removed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Flows, ports and the links of programs.
    Flows,
    /// The table of connections. It outlives a change of the layout of flows.
    Connections,
}

/// Prefix of the names of [`Part::Connections`].
const CONNECTIONS: &[u8] = b"ct_";
/// Start of the names of links at tunnel devices.
const HELPER: &str = "link_helper_";

/// An instance's directory, locked. Any thread may use it.
#[derive(Debug)]
pub struct Pins {
    directory: PathBuf,
    /// True once the directory was removed. Connections are pinned under this lock, because the
    /// sweeper's thread lets their memory grow at any time.
    is_removed: Mutex<bool>,
    _lock: File,
}

impl Pins {
    /// Creates and locks the directory, and mounts the BPF file system if necessary. Waits up to
    /// 3 s for a daemon that is about to leave the directory.
    ///
    /// # Errors
    ///
    /// Fails when the path is not in a BPF file system, another daemon keeps the directory, or
    /// other users may change it.
    pub fn open(directory: &Path) -> Result<Pins, Unavailable> {
        let wrong = |cause: io::Error| Unavailable::NotBpffs { path: directory.to_owned(), cause };
        if !in_bpffs(directory) {
            if !directory.starts_with(BPFFS) {
                return Err(wrong(io::Error::other("another kind of file system")));
            }
            mount().map_err(wrong)?;
        }
        let deadline = Instant::now() + HAND_OVER;
        loop {
            let lock = match make(directory) {
                // Another daemon has just removed it, or its parent, at its end. (If it goes during
                // the check, the error is that it exists already and is no directory.)
                Err(e) if is_passing(&e) && Instant::now() < deadline => {
                    std::thread::sleep(HAND_OVER / 3000);
                    continue;
                }
                made => made.map_err(|source| Unavailable::System {
                    step: format!("creating {}", directory.display()),
                    source,
                })?,
            };
            take(&lock, directory)?;
            // The earlier daemon may have removed the directory at its end.
            if is_at(&lock, directory) {
                let is_removed = Mutex::new(false);
                return Ok(Pins { directory: directory.to_owned(), is_removed, _lock: lock });
            }
        }
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn is_removed(&self) -> MutexGuard<'_, bool> {
        self.is_removed.lock().unwrap_or_else(PoisonError::into_inner) // one word
    }

    /// Returns the path of the pin of a map of the table of connections.
    pub(crate) fn connections(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Pins a map of the table of connections. Does nothing when the directory was removed.
    pub(crate) fn pin_connections(&self, name: &str, map: BorrowedFd<'_>) -> io::Result<()> {
        let is_removed = self.is_removed();
        if *is_removed {
            return Ok(());
        }
        sys::pin(map, &self.connections(name))
    }

    /// Returns the path of the pin of a map of `hook`, or of one that both hooks share.
    pub(crate) fn map(&self, name: &str, hook: Option<Hook>) -> PathBuf {
        self.directory.join(match hook {
            Some(hook) => format!("{name}_{}", hook.name()),
            None => name.to_owned(),
        })
    }

    /// Returns the path of the pin of a port's link; for XDP, of the link in the driver.
    pub(crate) fn link(&self, port: u32, hook: Hook) -> PathBuf {
        self.directory.join(format!("link_{port}_{}", hook.name()))
    }

    /// Returns the path of the pin of a port's link to generic XDP.
    pub(crate) fn generic_link(&self, port: u32) -> PathBuf {
        self.directory.join(format!("link_{port}_generic"))
    }

    /// Returns the path of the pin of the link at the tunnel device of a tunnel's port.
    pub(crate) fn helper(&self, port: u32) -> PathBuf {
        self.directory.join(format!("{HELPER}{port}"))
    }

    /// Returns the path of the pin of the link at the segmenter.
    pub(crate) fn segmenter(&self) -> PathBuf {
        self.directory.join("link_segmenter")
    }

    /// Returns the pinned links at tunnel devices.
    pub(crate) fn helpers(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let is_helper = |path: &PathBuf| {
            path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(HELPER.as_bytes()))
        };
        self.names().into_iter().filter(is_helper)
    }

    /// Returns the pinned links, each with the number of its port.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
        self.names().into_iter().filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let port = name.strip_prefix("link_")?.split('_').next()?.parse().ok()?;
            Some((port, path))
        })
    }

    /// Opens the pinned maps called `names`. `None` when one of the maps is missing.
    pub(crate) fn maps(&self, names: &[(String, PathBuf)]) -> Option<HashMap<String, OwnedFd>> {
        names.iter().map(|(name, path)| Some((name.clone(), sys::open_pin(path).ok()?))).collect()
    }

    /// Returns true when nothing of a part is pinned.
    pub(crate) fn is_empty(&self, part: Part) -> bool {
        self.names_of(part).is_empty()
    }

    fn names(&self) -> Vec<PathBuf> {
        names(&self.directory)
    }

    fn names_of(&self, part: Part) -> Vec<PathBuf> {
        let mut names = self.names();
        names.retain(|path| Part::of(path) == part);
        names
    }

    /// Detaches and unpins a part; the directory stays.
    pub(crate) fn clear(&self, part: Part) {
        for path in self.names_of(part) {
            let is_link =
                path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"link_"));
            if is_link && let Ok(link) = sys::open_pin(&path) {
                let _ = sys::detach_link(link.as_fd()); // a link whose device is gone
            }
            unpin(&path);
        }
    }

    /// Detaches and unpins both parts, and removes the directory. Its parent goes, too, if it is
    /// empty. Nothing is pinned in it afterwards.
    pub(crate) fn remove(&self) {
        let mut is_removed = self.is_removed();
        *is_removed = true;
        self.clear(Part::Flows);
        self.clear(Part::Connections);
        for directory in self.directory.ancestors().take(2) {
            if fs::remove_dir(directory).is_err() {
                return; // others are in it
            }
        }
    }
}

impl Part {
    fn of(path: &Path) -> Part {
        let name = path.file_name().map_or(&[][..], |name| name.as_encoded_bytes());
        if name.starts_with(CONNECTIONS) { Part::Connections } else { Part::Flows }
    }
}

fn names(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removes the pin at `path`; logs when that fails.
pub(crate) fn unpin(path: &Path) {
    if let Err(e) = fs::remove_file(path) {
        tracing::warn!(target: "dpif", "could not unpin {} ({e})", path.display());
    }
}

/// Creates the directory if there is none, and opens it.
fn make(directory: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // The parent must be Slipswitch's, too: a user that can rename in it chooses the tables.
    for ours in directory.ancestors().take(2) {
        fs::symlink_metadata(ours).and_then(|about| check_owner(ours, &about))?;
    }
    File::open(directory)
}

/// Returns true for the errors of [`make`] when the directory is removed meanwhile.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

/// Returns true when `path` is the path of `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |about: Metadata| (about.dev(), about.ino());
    let there = fs::symlink_metadata(path).map(identity).ok();
    there.is_some() && there == file.metadata().map(identity).ok()
}

/// Locks `directory`, which `file` refers to. The present holder may be a daemon that is about to
/// end. Its flows go on meanwhile, so waiting for it is worthwhile.
fn take(file: &File, directory: &Path) -> Result<(), Unavailable> {
    let deadline = Instant::now() + HAND_OVER;
    let mut is_reported = false;
    while rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= deadline {
            return Err(Unavailable::InUse(directory.to_owned()));
        }
        if !is_reported {
            tracing::info!(target: "dpif", "waiting for the daemon that has {}", directory.display());
            is_reported = true;
        }
        std::thread::sleep(HAND_OVER / 100);
    }
    Ok(())
}

/// Returns true when `path`, or the deepest present directory on it, is in a BPF file system.
fn in_bpffs(path: &Path) -> bool {
    path.ancestors().find_map(|p| rustix::fs::statfs(p).ok()).is_some_and(|s| is_bpffs(&s))
}

fn is_bpffs(file_system: &rustix::fs::StatFs) -> bool {
    // The field's type is not the same on all architectures; the magic has 32 bits.
    (file_system.f_type as u32) == BPF_FS_MAGIC
}

fn mount() -> io::Result<()> {
    tracing::info!(target: "dpif", "mounting a BPF file system at {BPFFS}");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("bpf", BPFFS, "bpf", flags, Some(c"mode=0700"))?;
    Ok(())
}

/// Checks that only root and this process's user may change `path`, whose metadata is `about`.
///
/// # Errors
///
/// Fails when another user owns it or may write to it.
pub(crate) fn check_owner(path: &Path, about: &Metadata) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let own = rustix::process::geteuid().as_raw();
    if about.uid() != 0 && about.uid() != own {
        return Err(io::Error::other(format!(
            "{} belongs to user {}, not to root or to this daemon's user",
            path.display(),
            about.uid()
        )));
    }
    let keeps_others_off = about.is_dir() && about.mode() & STICKY != 0;
    if about.mode() & OTHERS_WRITE != 0 && !keeps_others_off {
        return Err(io::Error::other(format!("every user may write to {}", path.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_directory_that_its_last_user_removed_is_made_again() {
        if testing::without_root() {
            return;
        }
        let bpffs = testing::BpfFs::new().unwrap();
        let directory = bpffs.path().join("of/one");
        let first = Pins::open(&directory).unwrap();
        let waiting = std::thread::spawn({
            let directory = directory.clone();
            move || Pins::open(&directory)
        });
        std::thread::sleep(HAND_OVER / 10);
        first.remove();
        drop(first);
        let second = waiting.join().unwrap().unwrap();
        assert!(directory.exists());
        second.remove();
    }

    #[test]
    fn daemons_that_end_are_not_in_the_way_of_others() {
        if testing::without_root() {
            return;
        }
        let bpffs = testing::BpfFs::new().unwrap();
        std::thread::scope(|scope| {
            for name in ["of/one", "of/other"] {
                let directory = bpffs.path().join(name);
                scope.spawn(move || {
                    for _ in 0..5000 {
                        Pins::open(&directory).unwrap().remove();
                    }
                });
            }
        });
    }

    #[test]
    fn what_others_may_change_is_not_used() {
        let directory = testing::directory();
        let file = directory.path().join("object");
        fs::write(&file, "").unwrap();
        let check = |path: &Path, mode: u32| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            check_owner(path, &fs::metadata(path).unwrap()).map_err(|e| e.to_string())
        };
        assert_eq!(check(&file, 0o664), Ok(()));
        assert!(check(&file, 0o666).unwrap_err().contains("every user may write"));
        assert!(check(&file, 0o1666).unwrap_err().contains("every user may write"));
        assert_eq!(check(directory.path(), 0o1777), Ok(()));
        assert!(check(directory.path(), 0o777).unwrap_err().contains("every user"));
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&file, Some(1), None).unwrap();
            assert!(check(&file, 0o600).unwrap_err().contains("belongs to user 1"));
        }
    }
}
