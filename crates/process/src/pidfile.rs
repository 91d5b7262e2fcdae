// SPDX-License-Identifier: Apache-2.0
//! The pidfile: a file with the process's number in it, locked as long as the process lives.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::ProcessError;
use crate::sys;

/// A pidfile that this process holds. Dropping it removes the file.
#[derive(Debug)]
pub struct Pidfile {
    path: PathBuf,
    /// Open as long as the lock is to hold. POSIX locks go when *any* descriptor of the file is
    /// closed by the process, so nobody else here may open it.
    file: File,
    pid: u32,
}

impl Pidfile {
    /// Writes and locks `path` for the calling process. With `overwrite`, takes the place of a
    /// file that another live process holds.
    ///
    /// # Errors
    /// [`ProcessError::AlreadyRunning`], or the step that failed.
    pub fn create(path: &Path, overwrite: bool) -> Result<Pidfile, ProcessError> {
        if !overwrite {
            Pidfile::check(path)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        let fail = |step| {
            let temporary = &temporary;
            move |source| ProcessError::pidfile(temporary, step, source)
        };
        // Not O_EXCL: a process that died at this point may have left the file.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // A process that can read it could lock it, and a locked pidfile keeps a daemon from
            // starting.
            .mode(0o640)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&temporary)
            .map_err(fail("create"))?;
        // Lock before writing: of two processes that start at once, one fails here.
        sys::lock_file(file.as_fd()).map_err(fail("lock"))?;
        let pid = std::process::id();
        file.set_len(0).map_err(fail("truncate"))?;
        file.write_all(format!("{pid}\n").as_bytes()).map_err(fail("write"))?;
        if let Err(source) = fs::rename(&temporary, path) {
            // A file that cannot be renamed is of no use; the error below reports the failure.
            let _ = fs::remove_file(&temporary);
            return Err(ProcessError::Pidfile { path: path.to_owned(), step: "rename", source });
        }
        Ok(Pidfile { path: path.to_owned(), file, pid })
    }

    /// Checks whether `path` is free: absent, or not held by a live process other than this one.
    ///
    /// # Errors
    /// [`ProcessError::AlreadyRunning`] or [`ProcessError::PidfileCheck`].
    pub fn check(path: &Path) -> Result<(), ProcessError> {
        match holder(path) {
            Ok(None) => Ok(()),
            Ok(Some(pid)) => Err(ProcessError::AlreadyRunning { path: path.to_owned(), pid }),
            Err(source) => Err(ProcessError::PidfileCheck { path: path.to_owned(), source }),
        }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file at the path is still the one that this process wrote.
    fn is_ours(&self) -> bool {
        match (fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(at_path), Ok(open)) => (at_path.dev(), at_path.ino()) == (open.dev(), open.ino()),
            _ => false,
        }
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        // A fork's copy must not remove the file of its parent.
        if self.pid == std::process::id() && self.is_ours() {
            // It may be gone in between; nothing is left to do then.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The live process that holds the pidfile, if any. A file that is absent or unlocked has none.
fn holder(path: &Path) -> io::Result<Option<i32>> {
    // Write access, because a file that we may not write is none that we could take over.
    let file = match OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((rustix::fs::OFlags::NONBLOCK.bits()).cast_signed())
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    sys::lock_holder(file.as_fd())
}

/// The number of the process that `path` names, when that process still holds the file.
///
/// # Errors
/// The file cannot be read, holds no number, or nobody holds it (`NotFound`).
pub fn read_pidfile(path: &Path) -> io::Result<i32> {
    let mut file = File::open(path)?;
    let mut text = String::new();
    // A pidfile is a few bytes; what is longer is none.
    (&mut file).take(64).read_to_string(&mut text)?;
    let pid: i32 = text.trim().parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: no process number", path.display()))
    })?;
    match sys::lock_holder(file.as_fd())? {
        Some(holder) if holder == pid => Ok(pid),
        Some(holder) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: names {pid} but {holder} holds it", path.display()),
        )),
        None => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{}: process {pid} is no longer running", path.display()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_removed() {
        let dir = testing::directory();
        let path = dir.path().join("x.pid");
        fs::write(&path, "stale").unwrap();
        let pidfile = Pidfile::create(&path, false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert!(!dir.path().join("x.pid.tmp").exists());
        drop(pidfile);
        assert!(!path.exists());
    }

    #[test]
    fn a_link_in_its_way_is_not_followed() {
        let dir = testing::directory();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("x.pid.tmp")).unwrap();
        assert!(Pidfile::create(&dir.path().join("x.pid"), false).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        // In the place of the file itself a link is replaced.
        fs::remove_file(dir.path().join("x.pid.tmp")).unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("x.pid")).unwrap();
        let pidfile = Pidfile::create(&dir.path().join("x.pid"), false).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(pidfile.file.metadata().unwrap().mode() & 0o137, 0);
    }

    #[test]
    fn another_file_at_the_path_stays() {
        let dir = testing::directory();
        let path = dir.path().join("x.pid");
        let pidfile = Pidfile::create(&path, false).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(pidfile);
        assert!(path.exists());
    }

    #[test]
    fn errors_name_the_step() {
        let error = Pidfile::create(Path::new("/nosuch/y"), false).unwrap_err();
        assert_eq!(error.to_string(), "/nosuch/y.tmp: create failed (No such file or directory)");
        let dir = testing::directory();
        let error = Pidfile::create(dir.path(), false).unwrap_err();
        assert!(error.to_string().ends_with("pidfile check failed (Is a directory), aborting"));
        assert!(read_pidfile(&dir.path().join("none")).is_err());
    }
}
