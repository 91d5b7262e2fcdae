// SPDX-License-Identifier: Apache-2.0
//! OpenFlow meters of one bridge (OpenFlow 1.3 section 5.7). The datapath runs them.

use clock::Millis;
use datapath::{MeterBand as DpBand, MeterConfig as DpConfig, Meters};
use hashbrown::HashMap;
use openflow::OfError;
use openflow::message::{
    MeterBandKind, MeterCommand, MeterConfig, MeterFlags, MeterMod, MeterStats, meter_id,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
struct Meter {
    dp_id: u32,
    config: MeterConfig,
    created: Millis,
}

/// The meters of one bridge. All bridges of a datapath share the datapath meter numbers. Each
/// bridge takes the lowest free number ([`MeterIds`]), because faster tiers have room for a
/// thousand meters, indexed by number.
#[derive(Debug, Default)]
pub(crate) struct MeterTable {
    meters: HashMap<u32, Meter>,
}

/// Allocator of datapath meter numbers. The number of a removed meter stays allocated while
/// megaflows may name it, because another meter must not police their packets.
#[derive(Debug, Default)]
pub(crate) struct MeterIds {
    /// Numbers of meters that exist, or that existed and may still be named.
    used: BTreeSet<u32>,
    /// Numbers of removed meters that the published snapshot may still name.
    removed: Vec<u32>,
    /// Numbers of removed meters, each after the version of the first snapshot without the meter;
    /// oldest first.
    retired: VecDeque<(u64, u32)>,
}

impl MeterIds {
    fn take(&mut self, max: u32) -> Option<u32> {
        let id = (0..max).find(|id| !self.used.contains(id))?;
        self.used.insert(id);
        Some(id)
    }

    /// Releases the number of a meter that was not created after all.
    fn give_back(&mut self, id: u32) {
        self.used.remove(&id);
    }

    /// Marks the number of a removed meter.
    fn retire(&mut self, id: u32) {
        self.removed.push(id);
    }

    /// Records that all changes so far are in the snapshot that was published as `version`.
    pub(crate) fn published(&mut self, version: u64) {
        self.retired.extend(self.removed.drain(..).map(|id| (version, id)));
    }

    /// Releases numbers once no megaflow is left from a snapshot older than `version`.
    pub(crate) fn release_retired(&mut self, version: u64) {
        while self.retired.front().is_some_and(|(since, _)| *since <= version)
            && let Some((_, id)) = self.retired.pop_front()
        {
            self.used.remove(&id);
        }
    }
}

impl MeterTable {
    /// Returns true when meter `id` exists.
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.meters.contains_key(&id)
    }

    /// Returns the map of OpenFlow numbers to datapath numbers, for snapshots.
    pub(crate) fn view(&self) -> Arc<HashMap<u32, u32>> {
        Arc::new(self.meters.iter().map(|(id, m)| (*id, m.dp_id)).collect())
    }

    /// Carries out `mm` and returns the removed meters. The caller removes their rules, too.
    ///
    /// # Errors
    ///
    /// Fails when the meter exists already or does not exist, or when the datapath has no meters,
    /// no free meter, or no support for the bands. Nothing has changed then.
    pub(crate) fn modify(
        &mut self,
        mm: &MeterMod,
        datapath: Option<&dyn Meters>,
        ids: &mut MeterIds,
        now: Millis,
    ) -> Result<Vec<u32>, OfError> {
        let id = mm.meter.meter_id;
        let real = (1..=meter_id::MAX).contains(&id)
            || matches!(id, meter_id::SLOWPATH | meter_id::CONTROLLER);
        let datapath = datapath.ok_or(OfError::OFPMMFC_OUT_OF_METERS)?;
        match mm.command {
            MeterCommand::Add if !real => Err(OfError::OFPMMFC_INVALID_METER),
            MeterCommand::Add if self.contains(id) => Err(OfError::OFPMMFC_METER_EXISTS),
            MeterCommand::Add => {
                let config = to_datapath(&mm.meter, datapath)?;
                let dp_id = ids.take(datapath.limits().0).ok_or(OfError::OFPMMFC_OUT_OF_METERS)?;
                if datapath.set(dp_id, &config).is_err() {
                    ids.give_back(dp_id);
                    return Err(OfError::OFPMMFC_OUT_OF_METERS);
                }
                self.meters.insert(id, Meter { dp_id, config: mm.meter.clone(), created: now });
                Ok(Vec::new())
            }
            MeterCommand::Modify => {
                let meter = self.meters.get_mut(&id).ok_or(OfError::OFPMMFC_UNKNOWN_METER)?;
                let config = to_datapath(&mm.meter, datapath)?;
                datapath.set(meter.dp_id, &config).map_err(|_| OfError::OFPMMFC_OUT_OF_METERS)?;
                meter.config = mm.meter.clone();
                Ok(Vec::new())
            }
            MeterCommand::Delete => {
                let ids_to_go: Vec<u32> = match id {
                    meter_id::ALL => self.meters.keys().copied().collect(),
                    _ => self.meters.contains_key(&id).then_some(id).into_iter().collect(),
                };
                for id in &ids_to_go {
                    if let Some(meter) = self.meters.remove(id) {
                        datapath.remove(meter.dp_id);
                        ids.retire(meter.dp_id);
                    }
                }
                Ok(ids_to_go)
            }
        }
    }

    /// Returns the configuration of meter `id`, or of all meters ([`meter_id::ALL`]) by number.
    ///
    /// # Errors
    ///
    /// Fails when meter `id` does not exist.
    pub(crate) fn configs(&self, id: u32) -> Result<Vec<MeterConfig>, OfError> {
        Ok(self.named(id)?.into_iter().map(|(_, m)| m.config.clone()).collect())
    }

    /// Returns the statistics of meter `id`, or of all meters. `uses` counts the rules that use a
    /// meter.
    ///
    /// # Errors
    ///
    /// Fails when meter `id` does not exist.
    pub(crate) fn stats(
        &self,
        id: u32,
        datapath: Option<&dyn Meters>,
        uses: &dyn Fn(u32) -> u32,
        now: Millis,
    ) -> Result<Vec<MeterStats>, OfError> {
        let stats = |(id, meter): (u32, &Meter)| {
            let counted = datapath.and_then(|d| d.stats(meter.dp_id)).unwrap_or_default();
            MeterStats {
                meter_id: id,
                flow_count: uses(id),
                packet_in_count: counted.packets,
                byte_in_count: counted.bytes,
                duration: Duration::from_millis(now.since(meter.created)),
                bands: counted.bands,
            }
        };
        Ok(self.named(id)?.into_iter().map(stats).collect())
    }

    fn named(&self, id: u32) -> Result<Vec<(u32, &Meter)>, OfError> {
        if id == meter_id::ALL {
            let mut all: Vec<_> = self.meters.iter().map(|(id, m)| (*id, m)).collect();
            all.sort_by_key(|(id, _)| *id);
            return Ok(all);
        }
        let meter = self.meters.get(&id).ok_or(OfError::OFPMMFC_UNKNOWN_METER)?;
        Ok(vec![(id, meter)])
    }
}

fn to_datapath(config: &MeterConfig, datapath: &dyn Meters) -> Result<DpConfig, OfError> {
    if config.bands.len() > usize::from(datapath.limits().1) {
        return Err(OfError::OFPMMFC_OUT_OF_BANDS);
    }
    let bands = config.bands.iter().map(|band| match band.kind {
        MeterBandKind::Drop if band.rate == 0 => Err(OfError::OFPMMFC_BAD_RATE),
        MeterBandKind::Drop => {
            let burst = if config.flags.contains(MeterFlags::BURST) { band.burst_size } else { 0 };
            Ok(DpBand { rate: band.rate, burst })
        }
        MeterBandKind::DscpRemark { .. } => Err(OfError::OFPMMFC_BAD_BAND),
    });
    Ok(DpConfig {
        packets: config.flags.contains(MeterFlags::PKTPS),
        bands: bands.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_free_again_when_no_megaflow_names_it() {
        let mut ids = MeterIds::default();
        assert_eq!([ids.take(3), ids.take(3)], [Some(0), Some(1)]);
        ids.retire(0);
        ids.release_retired(7);
        assert_eq!(ids.take(3), Some(2), "packets still see the meter");
        ids.published(8);
        ids.release_retired(7);
        assert_eq!(ids.take(3), None, "a megaflow may be older than that");
        ids.retire(1);
        ids.published(9);
        ids.release_retired(8);
        assert_eq!([ids.take(3), ids.take(3)], [Some(0), None]);
        ids.give_back(0);
        assert_eq!(ids.take(3), Some(0), "no packet has seen it");
        ids.release_retired(9);
        assert_eq!(ids.take(3), Some(1));
    }
}
