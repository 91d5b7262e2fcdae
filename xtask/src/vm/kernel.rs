// SPDX-License-Identifier: Apache-2.0
//! Kernels, unpacked in the target directory.

use super::apt::Apt;
use super::host;
use super::release::{Release, Series};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// A kernel that can be started.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub release: Release,
    /// Holds `boot/` and `lib/modules/`.
    pub dir: PathBuf,
}

impl Kernel {
    /// The file to start.
    pub fn image(&self) -> PathBuf {
        self.dir.join(format!("boot/vmlinuz-{}", self.release.name()))
    }

    /// The directory with its modules.
    pub fn modules(&self) -> PathBuf {
        self.dir.join("lib/modules").join(self.release.name())
    }
}

/// The kernels in a directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The store below `dir`, which need not be there.
    pub fn new(dir: &Path) -> Store {
        Store { dir: dir.to_owned() }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn kernels(&self) -> PathBuf {
        self.dir.join("kernels")
    }

    /// Returns the cached kernels, in no order.
    pub fn cached(&self) -> Vec<Release> {
        let Ok(entries) = std::fs::read_dir(self.kernels()) else { return Vec::new() };
        entries.flatten().filter_map(|e| Release::parse(e.file_name().to_str()?)).collect()
    }

    fn get(&self, release: Release) -> Kernel {
        let dir = self.kernels().join(release.name());
        Kernel { release, dir }
    }

    /// Returns a kernel of the series: the newest cached one. With `update`, or when none is
    /// cached, it is the newest of Debian's.
    pub fn obtain(&self, series: Series, update: bool) -> Result<Kernel> {
        let cached = self.cached().into_iter().filter(|r| r.series() == series).max();
        match cached {
            Some(release) if !update => Ok(self.get(release)),
            _ => self.newest(series),
        }
    }

    fn newest(&self, series: Series) -> Result<Kernel> {
        let (apt, release) = self.look_up(series)?;
        let kernel = self.get(release);
        if !kernel.dir.exists() {
            self.add(&apt, &kernel).with_context(|| kernel.release.package())?;
        }
        Ok(kernel)
    }

    /// Returns the packages with everything to build modules for a kernel, unpacked once below the
    /// returned directory.
    pub fn headers(&self, release: &Release) -> Result<PathBuf> {
        let dir = self.dir.join("headers").join(release.name());
        if dir.exists() {
            return Ok(dir);
        }
        let (apt, _) = self.look_up(release.series())?;
        let packages = apt.headers(release)?;
        eprintln!("vm: fetching {} (once)", packages.join(", "));
        let temporary = Temporary::new(&self.dir)?;
        let root = temporary.dir.join("root");
        for file in apt.fetch_all(&packages, &temporary.dir)? {
            host::output(host::command("dpkg-deb").arg("-x").args([&file, &root]))?;
        }
        std::fs::create_dir_all(self.dir.join("headers"))?;
        // Another run may have put it there meanwhile.
        match std::fs::rename(&root, &dir) {
            Err(_) if dir.is_dir() => Ok(dir),
            moved => {
                moved.with_context(|| format!("cannot make {}", dir.display()))?;
                Ok(dir)
            }
        }
    }

    fn look_up(&self, series: Series) -> Result<(Apt, Release)> {
        let system = Apt::system();
        if let Some(release) = system.newest(series)? {
            return Ok((system, release));
        }
        eprintln!("vm: this system's apt sources have no kernel {series}; asking deb.debian.org");
        let private = Apt::private(&self.dir.join("apt"))?;
        match private.newest(series)? {
            Some(release) => Ok((private, release)),
            None => bail!("Debian has no kernel {series}; --list shows those that it has"),
        }
    }

    /// Fetches and unpacks next to the final place, then moves there: a kernel there is complete.
    fn add(&self, apt: &Apt, kernel: &Kernel) -> Result<()> {
        let package = kernel.release.package();
        let size = apt.sizes(std::slice::from_ref(&kernel.release))?.get(&package).copied();
        let megabytes = size.map_or("?".to_owned(), |bytes| (bytes / 1_000_000).to_string());
        eprintln!("vm: fetching {package}, {megabytes} MB (once)");
        let temporary = Temporary::new(&self.dir)?;
        let file = apt.fetch(&kernel.release, &temporary.dir)?;
        let root = temporary.dir.join("root");
        host::output(host::command("dpkg-deb").arg("-x").args([&file, &root]))?;
        normalize_package(&root, &kernel.release)?;
        std::fs::create_dir_all(self.kernels())?;
        // Another run may have put it there meanwhile.
        match std::fs::rename(&root, &kernel.dir) {
            Err(_) if kernel.image().is_file() => Ok(()),
            moved => moved.with_context(|| format!("cannot make {}", kernel.dir.display())),
        }
    }
}

/// Gives the unpacked package one shape, and modprobe's tables.
fn normalize_package(root: &Path, release: &Release) -> Result<()> {
    if !root.join("lib").exists() {
        // Debian 13 has /lib below /usr.
        std::os::unix::fs::symlink("usr/lib", root.join("lib"))?;
    }
    let _ = std::fs::remove_dir_all(root.join("usr/share"));
    host::output(host::command("depmod").arg("-b").arg(root).arg(release.name()))?;
    let kernel = Kernel { release: release.clone(), dir: root.to_owned() };
    if !kernel.image().is_file() || !kernel.modules().join("modules.dep").is_file() {
        bail!("the package has no kernel or no modules");
    }
    Ok(())
}

/// A directory that is removed when dropped.
#[derive(Debug)]
struct Temporary {
    dir: PathBuf,
}

impl Temporary {
    fn new(below: &Path) -> Result<Temporary> {
        let dir = below.join(format!("fetch.{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Temporary { dir })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_cached_kernel_of_the_series_is_taken() {
        let dir = testing::directory();
        for name in ["6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.1+deb12-amd64", "else"] {
            std::fs::create_dir_all(dir.path().join("kernels").join(name)).expect("made");
        }
        let store = Store::new(dir.path());
        assert_eq!(store.cached().len(), 3);
        let kernel = store.obtain(Series { major: 6, minor: 1 }, false).expect("it is there");
        assert_eq!(kernel.release.name(), "6.1.0-56-amd64");
        assert!(kernel.image().ends_with("6.1.0-56-amd64/boot/vmlinuz-6.1.0-56-amd64"));
    }

    #[test]
    fn an_empty_store_has_nothing() {
        assert_eq!(Store::new(Path::new("/nowhere/at/all")).cached(), []);
    }
}
