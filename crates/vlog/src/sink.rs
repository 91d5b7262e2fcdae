// SPDX-License-Identifier: Apache-2.0
//! The file and the console: writing lines so that neither a full disk nor a reader that has
//! stopped can hold the process up or bring it down.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The log file.
#[derive(Debug, Default)]
pub(crate) struct FileSink {
    path: Option<PathBuf>,
    file: Option<File>,
    /// The last write stopped in the middle of a line.
    torn: bool,
    /// Lines lost since the last one that was written, and why.
    lost: u64,
    why: Option<io::Error>,
}

/// The outcome of an attempt to open a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The same file was open already.
    Same,
    /// A new file is there to be taken.
    New,
}

impl FileSink {
    /// The file's name, whether it is open or not.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Opens `path` for appending, creating it with mode 0660 less the umask. A FIFO without a
    /// reader is an error rather than a wait. A symbolic link is followed when it is root's or
    /// ours: with `--user`, the directory may belong to a user who could point it anywhere.
    pub(crate) fn open(path: &Path) -> io::Result<File> {
        let open = |follow: OFlags| {
            let flags = OFlags::NONBLOCK | OFlags::NOCTTY | follow;
            OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o660)
                .custom_flags(flags.bits().cast_signed())
                .open(path)
        };
        match open(OFlags::NOFOLLOW) {
            Err(e)
                if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) && trusted_link(path) =>
            {
                open(OFlags::empty())
            }
            opened => opened,
        }
    }

    /// Gives the open file to another user. A file that is not regular keeps its owner.
    pub(crate) fn change_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (Some(path), Some(file)) = (&self.path, &self.file) else { return Ok(()) };
        let open = file.metadata()?;
        if !open.is_file() {
            return Ok(());
        }
        let named = std::fs::symlink_metadata(path)?;
        if (named.dev(), named.ino()) != (open.dev(), open.ino()) || open.nlink() != 1 {
            return Err(io::Error::other("it has other names"));
        }
        std::os::unix::fs::fchown(file, uid, gid)
    }

    /// Whether `new` is the file that is open now.
    pub(crate) fn compare(&self, new: &File) -> io::Result<Opened> {
        let Some(old) = &self.file else {
            return Ok(Opened::New);
        };
        let (old, new) = (old.metadata()?, new.metadata()?);
        let same = old.dev() == new.dev() && old.ino() == new.ino();
        Ok(if same { Opened::Same } else { Opened::New })
    }

    /// Takes `file` in place of the present one.
    pub(crate) fn replace(&mut self, path: &Path, file: File) {
        *self = FileSink { path: Some(path.to_owned()), file: Some(file), ..FileSink::default() };
    }

    /// Closes the file; its name stays for a reopening.
    pub(crate) fn close(&mut self) {
        self.file = None;
        self.torn = false;
    }

    /// Writes one line, which must end in a line end. On failure the line is lost and counted.
    /// After a gap, returns how many lines were lost before this one and why.
    pub(crate) fn write(&mut self, line: &str) -> Option<(u64, io::Error)> {
        let file = self.file.as_mut()?;
        if self.torn {
            match file.write(b"\n") {
                Ok(1) => self.torn = false,
                Ok(_) => {
                    self.lost = self.lost.saturating_add(1);
                    return None;
                }
                Err(error) => {
                    self.lost = self.lost.saturating_add(1);
                    self.why = Some(error);
                    return None;
                }
            }
        }
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(n) if n > 0 => rest = rest.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => {
                    self.torn = rest.len() < line.len();
                    self.lost = self.lost.saturating_add(1);
                    self.why = Some(other.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into()));
                    return None;
                }
            }
        }
        match (std::mem::take(&mut self.lost), self.why.take()) {
            (0, _) | (_, None) => None,
            (lost, Some(why)) => Some((lost, why)),
        }
    }

    #[cfg(test)]
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

fn trusted_link(path: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink() && (m.uid() == 0 || m.uid() == us))
}

/// How long a line waits for a console that does not take it, in nanoseconds.
const CONSOLE_PATIENCE_NS: i64 = 100_000_000;

/// A pipe that reports room has at least this much.
const PIPE_BUF: usize = 4096;

/// Writes `line` to standard error. Waits at most 100 ms for a slow reader, then drops the rest.
/// Returns true if the whole line was written.
pub(crate) fn write_console(line: &str) -> bool {
    let console = rustix::stdio::stderr();
    for chunk in line.as_bytes().chunks(PIPE_BUF) {
        let mut rest = chunk;
        while !rest.is_empty() {
            let patience = Timespec { tv_sec: 0, tv_nsec: CONSOLE_PATIENCE_NS };
            let mut fds = [PollFd::from_borrowed_fd(console.as_fd(), PollFlags::OUT)];
            match poll(&mut fds, Some(&patience)) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            }
            match rustix::io::write(console, rest) {
                Ok(n) if n > 0 => rest = rest.get(n..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                _ => return false,
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_counted() {
        let mut sink = FileSink::default();
        assert_eq!(sink.write("no file\n").map(|_| ()), None);
        let full = FileSink::open(Path::new("/dev/full")).unwrap();
        sink.replace(Path::new("/dev/full"), full);
        for _ in 0..3 {
            assert!(sink.write("line\n").is_none());
        }
        assert_eq!(sink.lost(), 3);
        let dir = testing::directory();
        let path = dir.path().join("log");
        sink.file = Some(FileSink::open(&path).unwrap());
        let (lost, why) = sink.write("line\n").unwrap();
        assert_eq!((lost, why.kind()), (3, io::ErrorKind::StorageFull));
        assert!(sink.write("line\n").is_none());
        assert_eq!(std::fs::read_to_string(path).unwrap(), "line\nline\n");
    }

    #[test]
    fn links_of_strangers_are_not_followed() {
        let dir = testing::directory();
        let (path, target) = (dir.path().join("log"), dir.path().join("target"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(FileSink::open(&path).is_ok(), "our own link");
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        std::os::unix::fs::lchown(&path, Some(65_534), None).unwrap();
        assert!(FileSink::open(&path).is_err());
    }

    #[test]
    fn the_owner_changes_of_the_file_itself_only() {
        let us = rustix::process::geteuid().as_raw();
        let dir = testing::directory();
        let (path, other) = (dir.path().join("log"), dir.path().join("other"));
        let sink = |path: &Path| {
            let mut sink = FileSink::default();
            sink.replace(path, FileSink::open(path).unwrap());
            sink
        };
        assert!(sink(&path).change_owner(Some(us), None).is_ok());
        std::fs::hard_link(&path, &other).unwrap();
        assert!(sink(&path).change_owner(Some(us), None).is_err(), "a second name");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(sink(&path).change_owner(Some(us), None).is_err(), "a link");
        assert!(sink(Path::new("/dev/null")).change_owner(Some(us), None).is_ok());
    }

    #[test]
    fn reopening_tells_a_new_file() {
        let dir = testing::directory();
        let path = dir.path().join("log");
        let mut sink = FileSink::default();
        sink.replace(&path, FileSink::open(&path).unwrap());
        assert_eq!(sink.compare(&FileSink::open(&path).unwrap()).unwrap(), Opened::Same);
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        assert_eq!(sink.compare(&FileSink::open(&path).unwrap()).unwrap(), Opened::New);
    }
}
