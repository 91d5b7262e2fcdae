// SPDX-License-Identifier: Apache-2.0
//! Names of kernels.

use std::fmt;
use std::str::FromStr;

/// A series of kernels, as in 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Series {
    type Err = String;

    fn from_str(text: &str) -> Result<Series, String> {
        text.split_once('.')
            .and_then(|(major, minor)| {
                Some(Series { major: major.parse().ok()?, minor: minor.parse().ok()? })
            })
            .ok_or_else(|| "a kernel series has two numbers, as in 6.12".to_owned())
    }
}

/// A kernel as `uname -r` names it in the guest, as in `6.12.117+deb12-amd64`. Only Debian's
/// plain flavour: the one for clouds has no 9p file system, which the guest's root is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    name: String,
    /// Every number in the name: what releases are ordered by.
    numbers: Vec<u32>,
}

const PACKAGE: &str = "linux-image-";

impl Release {
    /// The release that a package holds, when it is a kernel of the plain flavour.
    pub fn of_package(package: &str) -> Option<Release> {
        package.strip_prefix(PACKAGE).and_then(Release::parse)
    }

    /// Reads a release's name.
    pub fn parse(name: &str) -> Option<Release> {
        let version = name.strip_suffix("-amd64")?;
        // The flavours for clouds and real time have their names before the architecture's.
        let plain = version.split('-').skip(1).all(|part| part.parse::<u32>().is_ok());
        let numbers: Vec<u32> = version
            .split(|c: char| !c.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .map(|digits| digits.parse().ok())
            .collect::<Option<_>>()?;
        // Names with two numbers are of packages that only depend on others.
        let complete = version.split('.').take(3).filter(|p| starts_with_digit(p)).count() == 3;
        (plain && complete).then(|| Release { name: name.to_owned(), numbers })
    }

    /// As `uname -r` has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The package that holds it.
    pub fn package(&self) -> String {
        format!("{PACKAGE}{}", self.name)
    }

    /// The series that it belongs to.
    pub fn series(&self) -> Series {
        Series { major: self.numbers[0], minor: self.numbers[1] }
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Release) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Release {
    fn cmp(&self, other: &Release) -> std::cmp::Ordering {
        (&self.numbers, &self.name).cmp(&(&other.numbers, &other.name))
    }
}

/// The newest of each series, oldest series first.
pub fn newest_of_each(releases: impl IntoIterator<Item = Release>) -> Vec<Release> {
    let mut all: Vec<Release> = releases.into_iter().collect();
    all.sort_by(|a, b| b.cmp(a));
    all.dedup_by_key(|r| r.series());
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(package: &str) -> Option<(String, String)> {
        Release::of_package(package).map(|r| (r.name().to_owned(), r.series().to_string()))
    }

    #[test]
    fn packages_of_the_plain_flavour_are_kernels() {
        for (name, series) in [
            ("6.1.0-56-amd64", "6.1"),
            ("6.12.117+deb12-amd64", "6.12"),
            ("6.10.6+bpo-amd64", "6.10"),
        ] {
            let expected = Some((name.to_owned(), series.to_owned()));
            assert_eq!(of(&format!("linux-image-{name}")), expected);
        }
    }

    #[test]
    fn other_packages_are_not() {
        for package in [
            "linux-image-amd64",
            "linux-image-6.12-amd64",
            "linux-image-6.12-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-56-rt-amd64",
            "linux-image-6.1.0-56-amd64-dbg",
            "linux-image-6.12.107+deb12-cloud-amd64",
            "linux-image-6.12.107+deb12-amd64-unsigned",
            "linux-image-6.1.0-99999999999-amd64",
            "linux-headers-6.1.0-56-amd64",
            "",
        ] {
            assert_eq!(of(package), None, "{package}");
        }
    }

    #[test]
    fn the_newest_is_by_number_not_by_letter() {
        let names = ["6.12.101+deb12", "6.1.0-56", "6.12.99+deb12", "6.1.0-9"];
        let releases = names.map(|n| Release::parse(&format!("{n}-amd64")).expect("a kernel"));
        let newest = newest_of_each(releases);
        let names: Vec<&str> = newest.iter().map(Release::name).collect();
        assert_eq!(names, ["6.1.0-56-amd64", "6.12.101+deb12-amd64"]);
    }
}
