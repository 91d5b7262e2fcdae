// SPDX-License-Identifier: Apache-2.0
//! Debian's package archive, through apt. Nothing is installed.

use super::host;
use super::release::{Release, Series, newest_of_each};
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One configuration of apt.
#[derive(Debug)]
pub struct Apt {
    options: Vec<String>,
}

/// Sources of kernels, used when the system's own sources have none: Debian 12's, its newer ones,
/// and Debian 13's.
const SUITES: [(&str, &str); 5] = [
    ("debian", "bookworm"),
    ("debian-security", "bookworm-security"),
    ("debian", "bookworm-backports"),
    ("debian", "trixie"),
    ("debian-security", "trixie-security"),
];

impl Apt {
    /// The system's configuration.
    pub fn system() -> Apt {
        Apt { options: vec!["APT::Sandbox::User=root".into()] }
    }

    /// A configuration of its own in `dir`, with Debian's public archive as the only source. The
    /// lists of packages are fetched.
    pub fn private(dir: &Path) -> Result<Apt> {
        for sub in ["state/lists/partial", "cache/archives/partial", "parts"] {
            let sub = dir.join(sub);
            std::fs::create_dir_all(&sub)
                .with_context(|| format!("cannot make {}", sub.display()))?;
        }
        let sources = dir.join("sources.list");
        std::fs::write(&sources, source_list())
            .with_context(|| format!("cannot write {}", sources.display()))?;
        let at = |sub: &str| dir.join(sub).display().to_string();
        let apt = Apt {
            options: vec![
                "APT::Sandbox::User=root".into(),
                format!("Dir::State={}", at("state")),
                format!("Dir::Cache={}", at("cache")),
                format!("Dir::Etc::sourcelist={}", sources.display()),
                format!("Dir::Etc::sourceparts={}", at("parts")),
            ],
        };
        host::output(apt.command("apt-get").args(["--quiet", "update"]))
            .context("Debian's lists of packages cannot be fetched")?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> std::process::Command {
        let mut command = host::command(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// Returns every kernel that apt lists.
    pub fn kernels(&self) -> Result<Vec<Release>> {
        let text = host::text(self.command("apt-cache").args([
            "search",
            "--names-only",
            "^linux-image-[0-9]",
        ]))?;
        Ok(text
            .lines()
            .filter_map(|line| Release::of_package(line.split_whitespace().next()?))
            .collect())
    }

    /// Returns the newest kernel of a series.
    pub fn newest(&self, series: Series) -> Result<Option<Release>> {
        Ok(newest_of_each(self.kernels()?).into_iter().find(|r| r.series() == series))
    }

    /// Returns the bytes to fetch for each of these, by the package's name.
    pub fn sizes(&self, releases: &[Release]) -> Result<HashMap<String, u64>> {
        if releases.is_empty() {
            return Ok(HashMap::new());
        }
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions"]).args(releases.iter().map(Release::package));
        Ok(parse_sizes(&host::text(&mut command)?))
    }

    /// Fetches a kernel's package into `dir`. Returns the package's file.
    pub fn fetch(&self, release: &Release, dir: &Path) -> Result<PathBuf> {
        match self.fetch_all(&[release.package()], dir)?.pop() {
            Some(package) => Ok(package),
            None => bail!("apt-get download left no package in {}", dir.display()),
        }
    }

    /// Fetches packages into `dir`. Returns the packages' files.
    pub fn fetch_all(&self, packages: &[String], dir: &Path) -> Result<Vec<PathBuf>> {
        let mut command = self.command("apt-get");
        command.args(["--quiet", "download"]).args(packages).current_dir(dir);
        host::output(&mut command)
            .context("cannot be fetched; when apt's lists are old, `apt-get update` helps")?;
        Ok(std::fs::read_dir(dir)?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "deb"))
            .collect())
    }

    /// Returns the packages with the headers of a kernel and the programs to build modules for it.
    pub fn headers(&self, release: &Release) -> Result<Vec<String>> {
        let package = format!("linux-headers-{}", release.name());
        let text = host::text(self.command("apt-cache").args(["depends", &package]))?;
        Ok(std::iter::once(package.clone()).chain(parse_headers(&text)).collect())
    }
}

fn source_list() -> String {
    let line = |(archive, suite): &(&str, &str)| {
        format!(
            "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
             http://deb.debian.org/{archive} {suite} main\n"
        )
    };
    SUITES.iter().map(line).collect()
}

/// Returns the packages of headers and build programs among the lines `  Depends: PACKAGE`.
fn parse_headers(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"))
        .map(str::to_owned)
        .collect()
}

fn parse_sizes(text: &str) -> HashMap<String, u64> {
    let field = |paragraph: &str, name: &str| {
        let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
        paragraph.lines().find_map(of)
    };
    text.split("\n\n")
        .filter_map(|p| Some((field(p, "Package")?, field(p, "Size")?.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_descriptions() {
        let text = "Package: a\nInstalled-Size: 4\nSize: 70\nDescription: x\n Size: 5\n\n\
                    Package: b\nSize: many\n\nPackage: c\nSize: 9\n";
        let sizes = parse_sizes(text);
        assert_eq!(sizes.get("a"), Some(&70));
        assert_eq!(sizes.get("b"), None);
        assert_eq!(sizes.get("c"), Some(&9));
    }

    #[test]
    fn headers_are_found_among_dependencies() {
        let text = "linux-headers-6.1.0-9-amd64\n  Depends: linux-headers-6.1.0-9-common\n  \
                    Depends: linux-kbuild-6.1\n  Depends: linux-compiler-gcc-12-x86\n";
        assert_eq!(parse_headers(text), ["linux-headers-6.1.0-9-common", "linux-kbuild-6.1"]);
    }

    #[test]
    fn every_source_is_signed() {
        let list = source_list();
        assert_eq!(list.lines().count(), SUITES.len());
        assert!(list.lines().all(|l| l.starts_with("deb [") && l.contains("signed-by=")));
    }
}
