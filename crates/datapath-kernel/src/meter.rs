// SPDX-License-Identifier: Apache-2.0
//! The kernel's meters.

use crate::family::{Body, Family, counters, put_word};
use crate::kernel_datapath::{KernelDatapath, Shared};
use datapath::{MeterConfig, MeterStats, Meters, Refusal};
use netlink::Request;
use netlink::attribute::{find, nest, read};
use std::collections::BTreeMap;

/// `OVS_METER_CMD_*`
mod command {
    pub const FEATURES: u8 = 1;
    pub const SET: u8 = 2;
    pub const DEL: u8 = 3;
    pub const GET: u8 = 4;
}

/// `OVS_METER_ATTR_*`
mod attr {
    pub const ID: u16 = 1;
    pub const KBPS: u16 = 2;
    pub const STATS: u16 = 3;
    pub const BANDS: u16 = 4;
    pub const CLEAR: u16 = 6;
    pub const MAX_METERS: u16 = 7;
    pub const MAX_BANDS: u16 = 8;
}

/// `OVS_BAND_ATTR_*`
mod band {
    pub const TYPE: u16 = 1;
    pub const RATE: u16 = 2;
    pub const BURST: u16 = 3;
    pub const STATS: u16 = 4;
    /// `OVS_METER_BAND_TYPE_DROP`
    pub const DROP: u32 = 1;
}

/// The meters that are to be in the kernel, and when each was set.
pub(crate) type Known = BTreeMap<u32, (clock::Millis, MeterConfig)>;

fn request(shared: &Shared, command: u8) -> Request {
    shared.families.request(Family::Meter, command, 0, shared.datapath())
}

/// Returns the request that sets a meter, whose counters start at zero.
fn set_request(shared: &Shared, id: u32, config: &MeterConfig) -> Request {
    let mut bands = Vec::new();
    for each in &config.bands {
        nest(&mut bands, 0, |to| {
            put_word(to, band::TYPE, band::DROP);
            put_word(to, band::RATE, each.rate);
            put_word(to, band::BURST, if each.burst == 0 { each.rate } else { each.burst });
        });
    }
    let request = request(shared, command::SET).attribute(attr::ID, &id.to_ne_bytes());
    let request = if config.packets { request } else { request.attribute(attr::KBPS, &[]) };
    request.attribute(attr::CLEAR, &[]).attribute(attr::BANDS, &bands)
}

/// Decodes the counters of a meter.
pub(crate) fn decode(body: &Body<'_>) -> MeterStats {
    let [packets, bytes] = body.attribute(attr::STATS).map(counters).unwrap_or_default();
    let of_band = |value: &[u8]| {
        let [packets, bytes] = find(value, band::STATS).map(counters).unwrap_or_default();
        (packets, bytes)
    };
    let bands = body.attribute(attr::BANDS).unwrap_or_default();
    let bands = read(bands).map(|(_, value)| of_band(value)).collect();
    MeterStats { packets, bytes, bands, since: clock::Millis::default() }
}

impl KernelDatapath {
    /// Sets all meters again, in a datapath that was made again. Their counters start at zero.
    pub(crate) fn set_meters(&self) {
        let known = self.shared().meters().clone();
        for (id, (_, config)) in known {
            if let Err(refusal) = Meters::set(self, id, &config) {
                tracing::warn!(
                    target: "dpif_netlink",
                    "meter {id} is not in the kernel ({refusal}): its packets pass",
                );
            }
        }
    }

    fn meter(&self, command: u8, id: u32) -> Option<MeterStats> {
        let shared = self.shared();
        let mut stats = None;
        let request = request(shared, command).attribute(attr::ID, &id.to_ne_bytes());
        let answer = shared.with_socket(|socket| {
            socket.transact(request, |_, payload| stats = Body::decode(payload).map(|b| decode(&b)))
        });
        answer.ok()?;
        stats
    }
}

impl Meters for KernelDatapath {
    fn limits(&self) -> (u32, u8) {
        let shared = self.shared();
        let mut limits = (0, 0);
        let answer = shared.with_socket(|socket| {
            socket.transact(request(shared, command::FEATURES), |_, payload| {
                let Some(body) = Body::decode(payload) else { return };
                let bands = body.word(attr::MAX_BANDS).unwrap_or_default();
                limits = (
                    body.word(attr::MAX_METERS).unwrap_or_default(),
                    u8::try_from(bands).unwrap_or(u8::MAX),
                );
            })
        });
        if answer.is_err() { (0, 0) } else { limits }
    }

    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        // The kernel limits their number alone.
        if id >= self.limits().0 {
            return Err(Refusal::TableFull);
        }
        let shared = self.shared();
        let request = set_request(shared, id, config);
        match shared.with_socket(|socket| socket.transact(request, |_, _| {})) {
            Ok(_) => {
                shared.meters().insert(id, (shared.clock.now(), config.clone()));
                Ok(())
            }
            Err(_) => Err(Refusal::TableFull),
        }
    }

    fn remove(&self, id: u32) -> Option<MeterStats> {
        let (since, _) = self.shared().meters().remove(&id)?;
        Some(MeterStats { since, ..self.meter(command::DEL, id).unwrap_or_default() })
    }

    fn stats(&self, id: u32) -> Option<MeterStats> {
        let since = self.shared().meters().get(&id).map(|(since, _)| *since)?;
        Some(MeterStats { since, ..self.meter(command::GET, id)? })
    }
}
