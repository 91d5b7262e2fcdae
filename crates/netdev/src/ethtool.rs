// SPDX-License-Identifier: Apache-2.0
//! Drivers' data about themselves and their links, by the `SIOCETHTOOL` ioctl
//! (include/uapi/linux/ethtool.h).
//!
//! The functions work in the network namespace of their socket, or of the calling thread.

use crate::netlink::text_of;
use crate::status::{DriverInfo, Duplex, Features};
use crate::sys::{self, IfRequest};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
// include/uapi/linux/sockios.h.
const SIOCGMIIPHY: u32 = 0x8947;
const SIOCGMIIREG: u32 = 0x8948;
/// The register of a PHY's basic status, and its bit of an established link (include/uapi/linux/mii.h).
const MII_BMSR: u16 = 1;
const BMSR_LSTATUS: u16 = 4;
/// Maximum words of a link mode bitmap; the kernel has 4 or 5.
const MAX_MODE_WORDS: i8 = 16;

const PORT_TP: u8 = 0;
const PORT_FIBRE: u8 = 3;

// enum ofp_port_features, OpenFlow 1.1 and later.
const OTHER: u32 = 1 << 10;
const COPPER: u32 = 1 << 11;
const FIBER: u32 = 1 << 12;
const AUTONEG: u32 = 1 << 13;
const PAUSE: u32 = 1 << 14;
const PAUSE_ASYM: u32 = 1 << 15;

/// The mode of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkMode {
    /// Speed in bits per second; `None`: unknown.
    pub speed_bps: Option<u64>,
    /// Duplex; `None`: unknown.
    pub duplex: Option<Duplex>,
    /// Features of OpenFlow.
    pub features: Features,
}

/// Returns the members of `struct mii_ioctl_data`: the PHY, the register, the value to write, the value read.
fn words_of(union: u64) -> [u16; 4] {
    let [a, b, c, d, e, f, g, h] = union.to_ne_bytes();
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_ne_bytes)
}

fn of_words(words: [u16; 4]) -> u64 {
    let [[a, b], [c, d], [e, f], [g, h]] = words.map(u16::to_ne_bytes);
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct RawDriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    rest: [u8; 96],
}

/// `struct ethtool_link_settings` with room for its bitmaps.
#[repr(C)]
struct RawLinkSettings {
    command: u32,
    speed: u32,
    duplex: u8,
    port: u8,
    phy: u8,
    autonegotiation: u8,
    bytes: [u8; 3],
    mode_words: i8,
    rest: [u8; 32],
    modes: [u32; 3 * MAX_MODE_WORDS as usize],
}

/// A socket for ethtool requests. Any thread may use it.
pub struct Ethtool {
    socket: OwnedFd,
}

impl Ethtool {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// No socket can be created.
    pub fn new() -> io::Result<Ethtool> {
        Ok(Ethtool { socket: sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)? })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads the data of interface `name`'s driver about itself.
    ///
    /// # Errors
    ///
    /// `ENODEV`, or `EOPNOTSUPP` when the driver does not support the request.
    pub fn driver(&self, name: &str) -> io::Result<DriverInfo> {
        let mut info = RawDriverInfo {
            command: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            version: [0; 32],
            firmware: [0; 32],
            rest: [0; 96],
        };
        // SAFETY: `info` has the layout and size that this command writes (196 bytes).
        unsafe { ethtool(self.socket.as_fd(), name, &mut info)? };
        Ok(DriverInfo {
            name: text_of(&info.driver),
            version: text_of(&info.version),
            firmware: text_of(&info.firmware),
        })
    }

    /// Returns true when interface `name` has a link by the registers of its PHY or, for a driver without
    /// access to them, by the driver's own check.
    ///
    /// # Errors
    ///
    /// `ENODEV`, or `EOPNOTSUPP` when the driver supports neither.
    pub(crate) fn has_link(&self, name: &str) -> io::Result<bool> {
        if let Ok(status) = self.status_register(name) {
            return Ok(status & BMSR_LSTATUS != 0);
        }
        let mut request = [ETHTOOL_GLINK, 0];
        // SAFETY: the kernel writes struct ethtool_value, which is two words.
        unsafe { ethtool(self.socket.as_fd(), name, &mut request)? };
        Ok(request[1] != 0)
    }

    /// Reads the register of the basic status from the PHY of interface `name`.
    fn status_register(&self, name: &str) -> io::Result<u16> {
        let mut request = IfRequest::new(name)?;
        self.mii(SIOCGMIIPHY, &mut request)?;
        let [phy, ..] = words_of(request.value[0]);
        request.value[0] = of_words([phy, MII_BMSR, 0, 0]);
        self.mii(SIOCGMIIREG, &mut request)?;
        let [.., value] = words_of(request.value[0]);
        Ok(value)
    }

    fn mii(&self, command: u32, request: &mut IfRequest) -> io::Result<()> {
        // SAFETY: the kernel reads and writes `request`, which has struct ifreq's size; struct
        // mii_ioctl_data has 8 bytes in its union.
        sys::check(unsafe {
            libc::ioctl(self.socket.as_raw_fd(), command as _, std::ptr::from_mut(request))
        })?;
        Ok(())
    }

    /// Returns speed, duplex and features of interface `name`, where known.
    ///
    /// # Errors
    ///
    /// `ENODEV`, or `EOPNOTSUPP` when the driver does not support the request.
    pub fn link_mode(&self, name: &str) -> io::Result<LinkMode> {
        let mut settings = RawLinkSettings {
            command: ETHTOOL_GLINKSETTINGS,
            speed: 0,
            duplex: 0,
            port: 0,
            phy: 0,
            autonegotiation: 0,
            bytes: [0; 3],
            mode_words: 0,
            rest: [0; 32],
            modes: [0; 3 * MAX_MODE_WORDS as usize],
        };
        // The first call returns the length of the kernel's bitmaps as a negative number.
        // SAFETY: with `mode_words` 0 the kernel writes the fixed 48 bytes only.
        unsafe { ethtool(self.socket.as_fd(), name, &mut settings)? };
        let words = settings.mode_words.checked_neg().unwrap_or(0);
        if !(1..=MAX_MODE_WORDS).contains(&words) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        settings.command = ETHTOOL_GLINKSETTINGS;
        settings.mode_words = words;
        // SAFETY: the kernel writes three bitmaps of `words` words after the fixed part, and
        // `modes` has room for three of MAX_MODE_WORDS.
        unsafe { ethtool(self.socket.as_fd(), name, &mut settings)? };
        Ok(link_mode(&settings, usize::from(words.unsigned_abs())))
    }
}

fn link_mode(settings: &RawLinkSettings, words: usize) -> LinkMode {
    let speed_bps = match settings.speed {
        0 | u32::MAX => None,
        mbps => Some(u64::from(mbps) * 1_000_000),
    };
    let duplex = match settings.duplex {
        0 => Some(Duplex::Half),
        1 => Some(Duplex::Full),
        _ => None,
    };
    let port = match settings.port {
        PORT_TP => COPPER,
        PORT_FIBRE => FIBER,
        _ => 0,
    };
    let autonegotiation = if settings.autonegotiation == 1 { AUTONEG } else { 0 };
    let mut maps = settings.modes.chunks(words);
    let mut map = || maps.next().map_or(0, features);
    let (supported, advertised, peer) = (map(), map(), map());
    LinkMode {
        speed_bps,
        duplex,
        features: Features {
            current: speed_feature(settings.speed, duplex) | port | autonegotiation,
            advertised,
            supported,
            peer,
        },
    }
}

/// Returns the feature bit of a speed in Mbit/s.
fn speed_feature(mbps: u32, duplex: Option<Duplex>) -> u32 {
    let full = duplex != Some(Duplex::Half);
    match (mbps, full) {
        (0 | u32::MAX, _) => 0,
        (10, false) => 1 << 0,
        (10, true) => 1 << 1,
        (100, false) => 1 << 2,
        (100, true) => 1 << 3,
        (1_000, false) => 1 << 4,
        (1_000, true) => 1 << 5,
        (10_000, true) => 1 << 6,
        (40_000, true) => 1 << 7,
        (100_000, true) => 1 << 8,
        (1_000_000, true) => 1 << 9,
        _ => OTHER,
    }
}

/// Returns the feature bits of a bitmap of `ETHTOOL_LINK_MODE_..._BIT`.
fn features(map: &[u32]) -> u32 {
    let mut bits = 0;
    for (word, value) in map.iter().enumerate() {
        for bit in (0..32).filter(|bit| value >> bit & 1 != 0) {
            bits |= match word * 32 + bit {
                mode @ 0..=5 => 1 << mode,
                6 => AUTONEG,
                7 => COPPER,
                10 => FIBER,
                12 | 18..=20 | 42..=46 => 1 << 6,
                13 => PAUSE,
                14 => PAUSE_ASYM,
                17 | 41 => 1 << 5,
                23..=26 => 1 << 7,
                36..=39 => 1 << 8,
                // Kinds of connector and error correction, not speeds.
                8 | 9 | 11 | 16 | 49..=51 => 0,
                _ => OTHER,
            };
        }
    }
    bits
}

/// # Safety
///
/// `data` must start with an ethtool command and be at least as long as the kernel's answer to it.
pub(crate) unsafe fn ethtool<T>(
    socket: BorrowedFd<'_>,
    name: &str,
    data: &mut T,
) -> io::Result<()> {
    let mut request = IfRequest::new(name)?;
    request.value[0] = (&raw mut *data).expose_provenance() as u64;
    // SAFETY: the kernel reads and writes `request`, which has struct ifreq's size, and the
    // structure at its pointer, which the caller guarantees.
    sys::check(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<RawDriverInfo>(), 196);
        assert_eq!(size_of::<RawLinkSettings>(), 48 + 3 * 16 * 4);
        assert_eq!(std::mem::offset_of!(RawLinkSettings, mode_words), 15);
        assert_eq!(std::mem::offset_of!(RawLinkSettings, modes), 48);
        assert_eq!(size_of::<IfRequest>(), 40);
    }

    #[test]
    fn modes_become_openflow_features() {
        // 10 and 100 full, autonegotiation, twisted pair; 40000baseCR4; 100000baseSR4.
        assert_eq!(features(&[0b1100_1010 | 1 << 24, 1 << 5]), 0b10_1001_1000_1010);
        assert_eq!(speed_feature(10_000, Some(Duplex::Full)), 1 << 6);
        assert_eq!(speed_feature(25_000, Some(Duplex::Full)), OTHER);
        assert_eq!(speed_feature(u32::MAX, None), 0);
    }

    #[test]
    fn a_driver_without_registers_is_asked_itself() {
        assert_eq!(words_of(of_words([1, 2, 3, 4])), [1, 2, 3, 4]);
        let ethtool = Ethtool::new().expect("a socket");
        assert!(ethtool.status_register("lo").is_err());
        assert!(ethtool.has_link("lo").is_ok());
        let missing = ethtool.has_link("no-such-dev").err();
        assert_eq!(missing.and_then(|e| e.raw_os_error()), Some(libc::ENODEV));
    }

    #[test]
    fn a_missing_device_is_an_error() {
        let e = Ethtool::new().and_then(|t| t.driver("no-such-dev")).err();
        assert_eq!(e.and_then(|e| e.raw_os_error()), Some(libc::ENODEV));
    }
}
