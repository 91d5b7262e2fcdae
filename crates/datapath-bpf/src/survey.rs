// SPDX-License-Identifier: Apache-2.0
//! Reports the tiers that this host and a device would allow, without a running daemon (`slipswitch
//! doctor`).
//!
//! The survey changes nothing: it loads and attaches no program. It reports properties that only an
//! attempt shows (whether a card's driver has XDP) as to be tried.

use crate::XdpMode;
use crate::fit::{self, Wish};
use crate::probe::{KernelProber, Prober};
use datapath::offload::{Reason, tier_setting};
use datapath::{PortKind, Refusal, Tier, TierSet};
use netdev::Kind;
use std::path::{Path, PathBuf};

/// Settings of the switch, the port and its interface that a survey takes into account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveySettings {
    /// Value of `other_config:bpf-offload`.
    pub enabled: bool,
    /// Value of the port's `other_config:tier`; `None`: unset.
    pub tier: Option<String>,
    /// Value of the port's `other_config:xdp-mode`; `None`: unset.
    pub mode: Option<String>,
    /// The port's `options:bpf-object`; a port with an object wants XDP.
    pub object: Option<PathBuf>,
    /// Type of the Interface row, such as "system" or "internal".
    pub kind: String,
    /// Directory where BPF objects are pinned.
    pub pins: PathBuf,
}

impl Default for SurveySettings {
    fn default() -> SurveySettings {
        SurveySettings {
            enabled: true,
            tier: None,
            mode: None,
            object: None,
            kind: "system".to_owned(),
            pins: PathBuf::from("/sys/fs/bpf"),
        }
    }
}

impl SurveySettings {
    /// Returns the kind of device of the port; `None` for types that no device has.
    fn device(&self) -> Option<Kind> {
        PortKind::from_type(&self.kind)?.device()
    }
}

/// A tier, and whether a port could be on the tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierReport {
    /// The tier that this reports on.
    pub tier: Tier,
    /// The state that the tier would have, or the obstacle and the change that would remove it.
    pub state: Result<String, Reason>,
}

/// Oldest kernel whose BPF the programs need, and the first with tcx links.
const OLDEST: (u32, u32) = (5, 15);
const TCX_LINKS: (u32, u32) = (6, 6);

/// Capabilities by number (include/uapi/linux/capability.h).
const CAP_NET_BROADCAST: u32 = 11;
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// `BPF_FS_MAGIC` (include/uapi/linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Returns the tiers, fastest first, and whether the interface called `name` could be on each.
/// Looks at the network namespace of the calling thread.
pub fn survey(name: &str, settings: &SurveySettings) -> Vec<TierReport> {
    let host = Host::read(&settings.pins);
    let reports = reports(name, settings, &host, &KernelProber::default());
    reports.into_iter().map(|(tier, state)| TierReport { tier, state }).collect()
}

type TierResult = (Tier, Result<String, Reason>);

fn reports(
    name: &str,
    settings: &SurveySettings,
    host: &Host,
    prober: &dyn Prober,
) -> Vec<TierResult> {
    let tcx = tcx(name, settings, host, prober);
    let xdp = tcx.as_ref().map_err(Reason::clone).and_then(|_| xdp(name, settings, prober));
    let userspace = Ok("holds every flow".to_owned());
    vec![(Tier::Xdp, xdp), (Tier::Tcx, tcx), (Tier::Userspace, userspace)]
}

fn wish(settings: &SurveySettings) -> Result<Wish, Reason> {
    let known = TierSet::XDP_AND_TCX.with(Tier::Tc);
    let tier = tier_setting(settings.tier.as_deref(), known);
    let tier = tier.map_err(|e| Reason::new(Refusal::TierSetting, e))?;
    Ok(Wish::of(tier).with_object(settings.object.is_some()))
}

fn tcx(
    name: &str,
    settings: &SurveySettings,
    host: &Host,
    prober: &dyn Prober,
) -> Result<String, Reason> {
    if !settings.enabled {
        let detail = "other_config:bpf-offload=false in the Open_vSwitch row";
        return Err(Reason::new(Refusal::TierDisabled, detail));
    }
    if wish(settings)? == Wish::Userspace {
        let detail = "other_config:tier=userspace of the interface";
        return Err(Reason::new(Refusal::TierSetting, detail));
    }
    let kind = settings.device();
    if !matches!(kind, Some(Kind::System | Kind::Internal | Kind::Tap)) {
        let detail = format!("{} ports have no skb hook", settings.kind);
        return Err(Reason::new(Refusal::DeviceKind, detail));
    }
    host.check()?;
    if kind == Some(Kind::System) && prober.ifindex(name).is_none() {
        let detail = format!("there is no interface {name} in this network namespace");
        return Err(Reason::new(Refusal::PortNotHere, detail));
    }
    Ok(match host.kernel {
        Some(version) if version < TCX_LINKS => "attached as a clsact filter".to_owned(),
        _ => "attached by a tcx link".to_owned(),
    })
}

fn xdp(name: &str, settings: &SurveySettings, prober: &dyn Prober) -> Result<String, Reason> {
    if settings.device() != Some(Kind::System) {
        return Err(Reason::new(Refusal::DeviceKind, "packets of the host are no raw frames"));
    }
    let facts = prober.xdp_facts(name);
    let mode = fit::parse_mode(settings.mode.as_deref());
    let mode = mode.map_err(|e| Reason::new(Refusal::TierSetting, e))?;
    fit::xdp_fit(&facts, wish(settings)?, mode)?;
    let place = match mode {
        XdpMode::Driver => format!("in the driver ({})", facts.driver),
        XdpMode::Generic => fit::how(mode).to_owned(),
    };
    Ok(match fit::redirect_fit(&facts, Kind::System, mode == XdpMode::Driver) {
        Ok(()) => format!("is tried {place}"),
        Err(reason) => format!("is tried {place}; others do not redirect to it: {reason}"),
    })
}

/// Properties of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    /// Major and minor version; `None` when it cannot be read.
    kernel: Option<(u32, u32)>,
    /// Effective capabilities of this process.
    capabilities: u64,
    /// The directory for pins, when it is not in a BPF file system.
    not_bpffs: Option<PathBuf>,
}

impl Host {
    fn read(pins: &Path) -> Host {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Host {
            kernel: version(&release),
            capabilities: capabilities(&status),
            not_bpffs: (!is_bpffs(pins)).then(|| pins.to_owned()),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    fn check(&self) -> Result<(), Reason> {
        if self.kernel.is_some_and(|version| version < OLDEST) {
            let detail = format!("it takes Linux {}.{} or newer", OLDEST.0, OLDEST.1);
            return Err(Reason::new(Refusal::KernelTooOld, detail));
        }
        let wanted =
            [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON"), (CAP_NET_ADMIN, "CAP_NET_ADMIN")];
        let missing: Vec<&str> = wanted
            .into_iter()
            .filter(|(n, _)| {
                let by_admin = *n != CAP_NET_ADMIN && self.has(CAP_SYS_ADMIN);
                !self.has(*n) && !by_admin
            })
            .map(|(_, name)| name)
            .collect();
        if !missing.is_empty() {
            let detail = format!("run as root, or with {}", missing.join(" and "));
            return Err(Reason::new(Refusal::NoPermission, detail));
        }
        if let Some(path) = &self.not_bpffs {
            let detail = format!(
                "{} is not in a BPF file system: mount -t bpf bpf /sys/fs/bpf",
                path.display()
            );
            return Err(Reason::new(Refusal::TierUnavailable, detail));
        }
        Ok(())
    }
}

/// "6.1.0-18-amd64" as (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The `CapEff` line of `/proc/PID/status`.
fn capabilities(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// Returns whether the kernel notifies a process of changes at the other ends of veth pairs, by the
/// text of its `/proc/PID/status`. If not, the process checks these ends periodically.
pub fn hears_other_ends(status: &str) -> bool {
    capabilities(status) >> CAP_NET_BROADCAST & 1 == 1
}

/// Returns whether `path`, or the deepest present directory on it, is in a BPF file system.
fn is_bpffs(path: &Path) -> bool {
    path.ancestors()
        .find_map(|dir| rustix::fs::statfs(dir).ok())
        .is_some_and(|fs| fs.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC) // signed on some machines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::XdpFacts;

    struct Card;

    impl Prober for Card {
        fn ifindex(&self, name: &str) -> Option<u32> {
            (name == "eth0").then_some(2)
        }
        fn xdp_facts(&self, _name: &str) -> XdpFacts {
            let driver = "ice".to_owned();
            XdpFacts {
                driver,
                takes_tags_off: Some(false),
                merges: Some(false),
                ..XdpFacts::default()
            }
        }
    }

    fn host() -> Host {
        Host { kernel: Some((6, 1)), capabilities: u64::MAX, not_bpffs: None }
    }

    fn refusals(name: &str, settings: &SurveySettings, host: &Host) -> Vec<Option<Refusal>> {
        let states = reports(name, settings, host, &Card);
        states.into_iter().map(|(_, state)| state.err().map(|r| r.refusal)).collect()
    }

    #[test]
    fn each_obstacle_has_its_reason() {
        let plain = SurveySettings::default();
        assert_eq!(refusals("eth0", &plain, &host()), [None, None, None]);
        let both = |refusal| [Some(refusal), Some(refusal), None];
        assert_eq!(refusals("eth9", &plain, &host()), both(Refusal::PortNotHere));
        let off = SurveySettings { enabled: false, ..plain.clone() };
        assert_eq!(refusals("eth0", &off, &host()), both(Refusal::TierDisabled));
        let old = Host { kernel: Some((5, 4)), ..host() };
        assert_eq!(refusals("eth0", &plain, &old), both(Refusal::KernelTooOld));
        let weak = Host { capabilities: 1 << CAP_NET_ADMIN, ..host() };
        assert_eq!(refusals("eth0", &plain, &weak), both(Refusal::NoPermission));
        let admin = Host { capabilities: 1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN, ..host() };
        assert_eq!(refusals("eth0", &plain, &admin), [None, None, None]);
        let unmounted = Host { not_bpffs: Some("/sys/fs/bpf".into()), ..host() };
        assert_eq!(refusals("eth0", &plain, &unmounted), both(Refusal::TierUnavailable));
        for (tier, expected) in [
            ("userspace", both(Refusal::TierSetting)),
            ("tcx", [Some(Refusal::TierSetting), None, None]),
            ("quick", both(Refusal::TierSetting)),
        ] {
            let set = SurveySettings { tier: Some(tier.to_owned()), ..plain.clone() };
            assert_eq!(refusals("eth0", &set, &host()), expected, "{tier}");
        }
        let generic = SurveySettings { mode: Some("generic".to_owned()), ..plain.clone() };
        let states = reports("eth0", &generic, &host(), &Card);
        assert!(
            states
                .iter()
                .any(|(_, s)| s.as_ref().is_ok_and(|how| how.contains("after the driver")))
        );
        let unheard = SurveySettings { mode: Some("offload".to_owned()), ..plain.clone() };
        assert_eq!(refusals("eth0", &unheard, &host()), [Some(Refusal::TierSetting), None, None]);
        let internal = SurveySettings { kind: "internal".to_owned(), ..plain.clone() };
        assert_eq!(refusals("br0", &internal, &host()), [Some(Refusal::DeviceKind), None, None]);
        let dummy = SurveySettings { kind: "dummy".to_owned(), ..plain };
        assert_eq!(refusals("p1", &dummy, &host()), both(Refusal::DeviceKind));
    }

    #[test]
    fn texts_of_the_system_are_read() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("5.15"), Some((5, 15)));
        assert_eq!(version("strange"), None);
        assert_eq!(capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"), (1 << 41) - 1);
        assert_eq!(capabilities(""), 0);
        assert!(hears_other_ends("CapEff:\t0000000000000800\n"));
        assert!(!hears_other_ends("CapEff:\t000001fffffff7ff\n"));
        assert!(!is_bpffs(Path::new("/proc/self")));
    }
}
