// SPDX-License-Identifier: Apache-2.0
//! Limits of connections in zones of the kernel's tracker (`OVS_CT_LIMIT_CMD_*`).

use crate::family::{Body, Family};
use crate::kernel_datapath::{KernelDatapath, Shared};
use conntrack::Counts;
use netlink::Error;
use netlink::attribute::array;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// `OVS_CT_LIMIT_CMD_*`
mod command {
    pub const SET: u8 = 1;
    pub const DEL: u8 = 2;
    pub const GET: u8 = 3;
}

/// `OVS_CT_LIMIT_ATTR_ZONE_LIMIT`: a list of `struct ovs_zone_limit`, each of three integers: zone,
/// limit and count.
const ZONE_LIMIT: u16 = 1;
/// Bytes of the structure.
const SIZE: usize = 12;
/// The zone that stands for those without a limit of their own.
const DEFAULT: i32 = -1;

/// The limits that the kernel has from this process; 0 is none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneLimits {
    default: u32,
    zones: BTreeMap<u16, u32>,
}

impl ZoneLimits {
    /// Reads the limits of the switch's own tracker.
    fn of(counts: Counts<'_>) -> ZoneLimits {
        let limit = |zone| Some((zone, counts.limit(zone)?));
        ZoneLimits {
            default: counts.default_limit(),
            zones: (0..=u16::MAX).filter_map(limit).collect(),
        }
    }

    /// Returns the limits to set and the zones whose limit goes, to come from `before` to these.
    fn changes(&self, before: &ZoneLimits) -> (Vec<(i32, u32)>, Vec<i32>) {
        let zones = self.zones.iter().filter(|(zone, limit)| before.zones.get(zone) != Some(limit));
        let mut set: Vec<(i32, u32)> =
            zones.map(|(zone, limit)| ((*zone).into(), *limit)).collect();
        if self.default != before.default {
            set.push((DEFAULT, self.default));
        }
        let gone = before.zones.keys().filter(|zone| !self.zones.contains_key(zone));
        (set, gone.map(|zone| (*zone).into()).collect())
    }
}

fn encode(limits: impl IntoIterator<Item = (i32, u32)>) -> Vec<u8> {
    let words = |(zone, limit): (i32, u32)| [zone.to_ne_bytes(), limit.to_ne_bytes(), [0; 4]];
    limits.into_iter().flat_map(words).flatten().collect()
}

/// Decodes an answer: zone, limit and count of each. Total.
pub(crate) fn decode(body: &Body<'_>) -> Vec<(i32, u32, u32)> {
    let (all, _) = body.attribute(ZONE_LIMIT).unwrap_or_default().as_chunks::<SIZE>();
    let word = |bytes: &[u8], at: usize| bytes.get(at..).and_then(array).unwrap_or_default();
    all.iter()
        .map(|bytes| {
            (
                i32::from_ne_bytes(word(bytes, 0)),
                u32::from_ne_bytes(word(bytes, 4)),
                u32::from_ne_bytes(word(bytes, 8)),
            )
        })
        .collect()
}

fn send(shared: &Shared, command: u8, list: Option<&[u8]>) -> Result<Vec<(i32, u32, u32)>, Error> {
    let mut answer = Vec::new();
    let request = shared.families.request(Family::CtLimit, command, 0, shared.datapath());
    let request = match list {
        Some(list) => request.attribute(ZONE_LIMIT, list),
        None => request,
    };
    shared.with_socket(|socket| {
        socket.transact(request, |_, payload| {
            answer.extend(Body::decode(payload).iter().flat_map(decode));
        })
    })?;
    Ok(answer)
}

impl KernelDatapath {
    /// Gives the kernel's tracker the limits of the switch's own. The first call removes all others.
    ///
    /// # Errors
    ///
    /// The text names the cause, such as a kernel without limits.
    pub fn follow_zone_limits(&self, counts: Counts<'_>) -> Result<(), String> {
        let shared = self.shared();
        let mut known = self.zone_limits();
        let wanted = ZoneLimits::of(counts);
        if known.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let words = |error: Error| format!("limits of zones in openvswitch.ko: {error}");
        if !shared.families.has(Family::CtLimit) {
            let none = ZoneLimits::default();
            return match wanted == none {
                true => Ok(()),
                false => Err("openvswitch.ko of this kernel has no limits of zones".to_owned()),
            };
        }
        let before = match known.take() {
            Some(before) => before,
            None => self.kernel_limits().map_err(words)?,
        };
        let (set, gone) = wanted.changes(&before);
        if !gone.is_empty() {
            let list = encode(gone.into_iter().map(|zone| (zone, 0)));
            send(shared, command::DEL, Some(&list)).map_err(words)?;
        }
        if !set.is_empty() {
            send(shared, command::SET, Some(&encode(set))).map_err(words)?;
        }
        *known = Some(wanted);
        Ok(())
    }

    /// Reads the limits that the kernel has.
    fn kernel_limits(&self) -> Result<ZoneLimits, Error> {
        let mut limits = ZoneLimits::default();
        for (zone, limit, _) in send(self.shared(), command::GET, None)? {
            match u16::try_from(zone) {
                Ok(zone) => drop(limits.zones.insert(zone, limit)),
                Err(_) => limits.default = limit,
            }
        }
        Ok(limits)
    }

    /// Returns the answer of `dpctl/ct-get-limits` for these zones, or, for none, of all that have
    /// a limit of their own. There is no newline at the end.
    ///
    /// # Errors
    ///
    /// The text names the cause.
    pub fn zone_limits_text(&self, zones: &[u16]) -> Result<String, String> {
        let shared = self.shared();
        if !shared.families.has(Family::CtLimit) {
            return Err("openvswitch.ko of this kernel has no limits of zones".to_owned());
        }
        let all = zones.iter().map(|zone| (i32::from(*zone), 0));
        let list = encode([(DEFAULT, 0)].into_iter().chain(all));
        let list = (!zones.is_empty()).then_some(&*list);
        let answer = send(shared, command::GET, list).map_err(|error| error.to_string())?;
        let default = answer.iter().find(|(zone, ..)| *zone == DEFAULT);
        let mut text = format!("default limit={}", default.map_or(0, |(_, limit, _)| *limit));
        for (zone, limit, count) in answer.iter().filter(|(zone, ..)| *zone != DEFAULT) {
            let _ = write!(text, "\nzone={zone},limit={limit},count={count}");
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_lead_from_one_list_to_the_other() {
        let list = |default, zones: &[(u16, u32)]| ZoneLimits {
            default,
            zones: zones.iter().copied().collect(),
        };
        let before = list(0, &[(1, 10), (2, 20), (3, 30)]);
        let after = list(5, &[(1, 10), (3, 31), (4, 0)]);
        assert_eq!(after.changes(&before), (vec![(3, 31), (4, 0), (DEFAULT, 5)], vec![2]));
        assert_eq!(after.changes(&after), (vec![], vec![]));
    }

    #[test]
    fn lists_are_read_back() {
        let mut message = vec![command::GET, 1, 0, 0, 7, 0, 0, 0];
        netlink::attribute::put(&mut message, ZONE_LIMIT, &encode([(DEFAULT, 3), (65535, 9)]));
        let body = Body::decode(&message).expect("it has both headers");
        assert_eq!(decode(&body), [(DEFAULT, 3, 0), (65535, 9, 0)]);
        for end in 8..message.len() {
            Body::decode(&message[..end]).iter().for_each(|body| drop(decode(body)));
        }
    }
}
