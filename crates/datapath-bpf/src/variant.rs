// SPDX-License-Identifier: Apache-2.0
//! Variants of the lookup programs.
//!
//! The full variant serves every flow and is always loaded. [`Variants::choose`] reads the needs of
//! the present flows. When the needs stayed the same for a while, it loads lookup programs whose
//! constants cover no more than these needs, and puts them into the tables of programs. A flow that
//! needs more than the present variant has is published only when the full variant is back
//! ([`Variants::admit`]). A variant never takes a packet for a flow that it does not serve: it
//! passes keys that it cannot compare to the scan of the masks.
//!
//! Loading takes some 100 ms, most of it in the verifier, and no thread waits for it. It runs
//! without the lock. The loaded programs are discarded when the full variant was requested
//! meanwhile.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::attachment::Unavailable;
use crate::demand::Demand;
use crate::layout::{NEEDS_L3, Tail, WORDS};
use crate::load::{self, Hook, Refused};
use crate::maps::{Sizes, emc_room};
use crate::settings::{ALL_FEATURES, Fit, Needs, VariantSettings};
use crate::sys;

/// Number of calls of [`Variants::choose`] in a row that must choose the same variant.
const STEADY: u32 = 2;

/// The programs of one hook, and its maps.
pub(crate) struct Station {
    /// The hook that this station serves.
    pub(crate) hook: Hook,
    /// Its programs by name; of the lookup, the full variant.
    pub(crate) programs: HashMap<&'static str, OwnedFd>,
    /// Its maps by name, including the shared ones.
    pub(crate) maps: HashMap<String, OwnedFd>,
    /// The optional programs that the kernel refused.
    pub(crate) refused: Vec<Refused>,
}

impl Station {
    /// Returns the table of programs.
    pub(crate) fn tails(&self) -> Option<BorrowedFd<'_>> {
        self.maps.get("tails").map(AsFd::as_fd)
    }

    fn put_lookup(&self, program: BorrowedFd<'_>) -> std::io::Result<()> {
        match self.tails() {
            Some(tails) => sys::set_program(tails, Tail::Lookup as u32, program),
            None => Ok(()),
        }
    }

    /// Fills the table of programs. A table that was taken over may hold programs of the earlier
    /// daemon, for which there are none here: those leave it.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses a program.
    pub(crate) fn fill_tails(&self) -> std::io::Result<()> {
        self.fill_tails_with(|name| self.programs.get(name).map(AsFd::as_fd))
    }

    fn fill_tails_with<'a>(
        &self,
        program: impl Fn(&str) -> Option<BorrowedFd<'a>>,
    ) -> std::io::Result<()> {
        let Some(tails) = self.tails() else { return Ok(()) };
        // Programs that are put in place may call them.
        for (tail, _) in self.hook.tails().iter().filter(|(_, name)| program(name).is_none()) {
            sys::unset(tails, *tail as u32)?;
        }
        // The lookup is put last: the entry program finds it when the programs after it are there.
        for (tail, name) in self.hook.tails().iter().rev() {
            if let Some(program) = program(name) {
                sys::set_program(tails, *tail as u32, program)?;
            }
        }
        Ok(())
    }

    /// Loads this hook's programs (all, or only `only`) with `settings`, over the same maps.
    fn load_again(
        &self,
        only: Option<&str>,
        settings: &VariantSettings,
        sizes: &Sizes,
    ) -> Result<load::Loaded, Unavailable> {
        let have = self.maps.iter().map(|(name, fd)| (name.clone(), fd.as_fd())).collect();
        load::load(self.hook, only, settings, sizes, &have)
    }
}

struct Choice {
    /// The most recent choice, and the number of times in a row that it was made.
    seen: Option<Fit>,
    times: u32,
    /// The parameters of the present variant; `None`: the full variant.
    present: Option<Fit>,
    /// The settings of the full variant.
    full: VariantSettings,
    /// The lookup programs of the full variant, if other ones than at the start.
    lookups: HashMap<Hook, OwnedFd>,
    demand: Demand,
    /// The number of times that the full variant was put back. A variant that was loaded for an
    /// earlier number is out of date.
    resets: u64,
    /// The verifier refused a variant, so the full one stays.
    broken: bool,
}

/// A variant to be loaded.
struct WantedVariant {
    fit: Fit,
    /// The full variant's settings when it was wanted.
    full: VariantSettings,
    /// [`Choice::resets`] when it was wanted.
    resets: u64,
}

impl Choice {
    /// Returns the variant to change to, when it was wanted [`STEADY`] times in a row.
    fn wanted(&mut self, needs: Needs, union_mask: [u64; WORDS]) -> Option<WantedVariant> {
        let fit = Fit { needs, union_mask };
        if self.broken || self.present == Some(fit) {
            self.times = 0;
            return None;
        }
        if self.seen != Some(fit) {
            self.seen = Some(fit);
            self.times = 0;
        }
        self.times += 1;
        if self.times < STEADY {
            return None;
        }
        self.times = 0;
        Some(WantedVariant { fit, full: self.full, resets: self.resets })
    }
}

/// Lookup programs and the stations that they are for.
type Lookups<'a> = Vec<(&'a Station, OwnedFd)>;

/// Chooses and changes variants.
pub(crate) struct Variants {
    stations: Vec<Station>,
    sizes: Sizes,
    /// `Needs` of the present variant, [`packed`].
    active: AtomicU64,
    choice: Mutex<Choice>,
}

/// Returns needs in one word: the bits of words, [`NEEDS_L3`] above them, and the features.
fn packed(needs: Needs) -> u64 {
    let is_l3 = u64::from(needs.words & NEEDS_L3 != 0);
    u64::from(needs.features) << FEATURES_SHIFT | is_l3 << WORDS | needs.words & !NEEDS_L3
}

fn unpacked(packed: u64) -> Needs {
    let words = packed & ((1 << WORDS) - 1);
    let l3 = if packed >> WORDS & 1 != 0 { NEEDS_L3 } else { 0 };
    Needs { words: words | l3, features: (packed >> FEATURES_SHIFT) as u32 }
}

/// Position of the features in [`packed`].
const FEATURES_SHIFT: u32 = 48;

const _: () = assert!(WORDS < FEATURES_SHIFT as usize && ALL_FEATURES < 1 << (64 - FEATURES_SHIFT));

impl Variants {
    /// Returns the variants of `stations`, whose tables of programs have the full variant.
    pub(crate) fn new(stations: Vec<Station>, full: VariantSettings, sizes: Sizes) -> Variants {
        Variants {
            stations,
            sizes,
            active: AtomicU64::new(packed(Needs::ALL)),
            choice: Mutex::new(Choice {
                seen: None,
                times: 0,
                present: None,
                full,
                lookups: HashMap::new(),
                demand: Demand::new(sizes.cpus.div_ceil(sizes.shards)),
                resets: 0,
                broken: false,
            }),
        }
    }

    /// Returns the stations, one for each hook.
    pub(crate) fn stations(&self) -> &[Station] {
        &self.stations
    }

    /// Returns the settings of the full variant.
    pub(crate) fn full(&self) -> VariantSettings {
        self.lock().full
    }

    /// Locks the choice. A holder that panicked has at most left out a change: the full variant
    /// serves all flows.
    fn lock(&self) -> MutexGuard<'_, Choice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all programs parse at most `limit` VLAN tags. The caller ensures that there are no
    /// flows, because the keys change, and the programs are replaced one after the other. Takes as
    /// long as loading the programs did. `generation` is the number of the new full variant.
    ///
    /// # Errors
    ///
    /// Fails when a program cannot be loaded or put in place. The programs may then parse either
    /// number of tags.
    pub(crate) fn set_vlan_limit(&self, limit: u32, generation: u32) -> Result<(), Unavailable> {
        let settings = VariantSettings { vlan_limit: limit, generation, ..self.full() };
        let mut fresh = Vec::new();
        for station in &self.stations {
            fresh.push((station, station.load_again(None, &settings, &self.sizes)?));
        }
        let mut choice = self.lock();
        choice.resets += 1; // also when what follows fails: nothing loaded for before is right
        choice.full = settings;
        choice.seen = None;
        for (station, loaded) in fresh {
            let names = station.hook.tails().iter().map(|(_, name)| *name);
            let programs: HashMap<&str, OwnedFd> =
                names.filter_map(|name| Some((name, loaded.program(name)?))).collect();
            station.fill_tails_with(|name| programs.get(name).map(AsFd::as_fd)).map_err(
                |source| Unavailable::System {
                    step: format!("changing the {} programs", station.hook.name()),
                    source,
                },
            )?;
            let lookup = station.hook.lookup();
            choice.lookups.extend(loaded.program(lookup).map(|lookup| (station.hook, lookup)));
        }
        choice.broken = false;
        self.go_full(&mut choice);
        Ok(())
    }

    /// Returns the needs that the present variant serves.
    pub(crate) fn active(&self) -> Needs {
        unpacked(self.active.load(Ordering::Acquire))
    }

    /// Ensures that the present variant serves `needs`, before a flow or port that needs them is
    /// published. Makes no system call when it does already, otherwise one for each hook.
    pub(crate) fn admit(&self, needs: Needs) {
        if self.active().cover(needs) {
            return;
        }
        let mut choice = self.lock();
        if !self.active().cover(needs) {
            self.go_full(&mut choice);
        }
    }

    fn go_full(&self, choice: &mut Choice) {
        for station in &self.stations {
            let lookup = choice.lookups.get(&station.hook);
            let lookup = lookup.or_else(|| station.programs.get(station.hook.lookup()));
            let Some(lookup) = lookup else { continue };
            if let Err(e) = station.put_lookup(lookup.as_fd()) {
                // The scan of the masks still finds every flow.
                tracing::error!(target: "dpif", "could not change the {} lookup ({e})", station.hook.name());
            }
        }
        choice.present = None;
        choice.times = 0;
        choice.resets += 1;
        choice.demand.clear_pressure();
        self.active.store(packed(Needs::ALL), Ordering::Release);
    }

    /// Returns the number of keys that caches need room for when there are `flows` flows, and the
    /// exact-match cache has `emc_used` lines. `missed` holds the total number of missed keys of
    /// each shard. Called about twice a second.
    pub(crate) fn keys(
        &self,
        flows: usize,
        emc_used: u32,
        missed: impl Iterator<Item = u64>,
    ) -> usize {
        let demand = self.lock().demand.observe(missed, emc_room(emc_used));
        flows.max(demand.min(emc_room(self.sizes.emc_lines)))
    }

    /// Notes that the exact-match cache has another number of lines, so that most keys are missed
    /// once.
    pub(crate) fn caches_start_again(&self) {
        self.lock().demand.clear_pressure();
    }

    /// Changes to the variant for flows with these needs and this union of masks, when the previous
    /// call chose the same. Calls `generation` for the number of the new variant. One thread calls
    /// this about twice a second. It waits until the programs are loaded; no other thread waits.
    pub(crate) fn choose(
        &self,
        (needs, union_mask): (Needs, [u64; WORDS]),
        generation: impl FnOnce() -> u32,
    ) {
        let Some(wanted) = self.lock().wanted(needs, union_mask) else { return };
        let loaded = self.load(&wanted, generation());
        let mut choice = self.lock();
        if choice.resets != wanted.resets {
            tracing::debug!(target: "dpif", "lookup programs that were loaded for earlier flows are discarded");
            return;
        }
        if let Err(e) = loaded.and_then(|lookups| self.change(&mut choice, wanted.fit, &lookups)) {
            tracing::warn!(target: "dpif", "the general lookup program stays in use: {e}");
            choice.broken = true;
            self.go_full(&mut choice);
        }
    }

    fn load(&self, wanted: &WantedVariant, generation: u32) -> Result<Lookups<'_>, Unavailable> {
        let settings = wanted.full.for_flows(&wanted.fit, generation);
        let mut lookups = Vec::new();
        for station in &self.stations {
            let name = station.hook.lookup();
            let loaded = station.load_again(Some(name), &settings, &self.sizes)?;
            lookups.extend(loaded.program(name).map(|program| (station, program)));
        }
        Ok(lookups)
    }

    fn change(
        &self,
        choice: &mut Choice,
        fit: Fit,
        lookups: &Lookups<'_>,
    ) -> Result<(), Unavailable> {
        // From here on `admit` waits, or sees the narrow variant.
        self.active.store(packed(fit.needs), Ordering::Release);
        for (station, program) in lookups {
            station.put_lookup(program.as_fd()).map_err(|source| Unavailable::System {
                step: format!("changing the {} lookup", station.hook.name()),
                source,
            })?;
        }
        choice.present = Some(fit);
        choice.demand.clear_pressure();
        tracing::debug!(
            target: "dpif", words = fit.needs.words.count_ones(),
            features = fit.needs.features,
            "the lookup programs fit the present flows"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::Config;
    use crate::hash;

    /// Variants for no hook, and what some flows need.
    fn variants() -> (Variants, Needs) {
        let sizes = Sizes::new(&Config::default(), 1);
        let full = VariantSettings::full(&sizes, &hash::factors(), 1, false);
        (Variants::new(Vec::new(), full, sizes), Needs { words: 1, features: 0 })
    }

    #[test]
    fn a_program_that_is_refused_leaves_no_earlier_one_in_its_place() {
        if testing::without_root() {
            return;
        }
        let sizes = Sizes::new(&Config::default(), 1);
        let full = VariantSettings::full(&sizes, &hash::factors(), 1, false);
        for hook in [Hook::Tc, Hook::Xdp] {
            for name in hook.optional().iter().map(|optional| optional.program) {
                let (tail, _) = hook.tails().iter().find(|(_, other)| *other == name).unwrap();
                let loaded = load::load(hook, Some(name), &full, &sizes, &HashMap::new()).unwrap();
                let programs = HashMap::from([(name, loaded.program(name).unwrap())]);
                let maps = loaded.maps().into_iter().collect();
                let mut station = Station { hook, programs, maps, refused: Vec::new() };
                let has = |station: &Station| {
                    sys::get(station.tails().unwrap(), *tail as u32).unwrap().is_some()
                };
                station.fill_tails().unwrap();
                assert!(has(&station));
                station.programs.clear();
                station.fill_tails().unwrap();
                assert!(!has(&station));
            }
        }
    }

    #[test]
    fn a_flow_that_needs_more_does_not_wait_for_programs_that_load() {
        let (variants, few) = variants();
        let loading = std::cell::Cell::new(0);
        let choose = |needs, meanwhile: &dyn Fn()| {
            variants.choose((needs, [0; WORDS]), || {
                loading.set(loading.get() + 1);
                meanwhile();
                loading.get()
            });
        };
        choose(few, &|| ());
        assert_eq!(loading.get(), 0, "not twice the same");
        choose(few, &|| ());
        assert_eq!((loading.get(), variants.active()), (1, few));

        let more = Needs { words: 3, features: 0 };
        let most = Needs { words: 7, features: 0 };
        choose(more, &|| ());
        choose(more, &|| {
            variants.admit(most);
            assert_eq!(variants.active(), Needs::ALL);
        });
        assert_eq!(loading.get(), 2);
        assert_eq!(variants.active(), Needs::ALL, "what was loaded does not know that flow");
        choose(most, &|| ());
        choose(most, &|| ());
        assert_eq!((loading.get(), variants.active()), (3, most));
    }

    #[test]
    fn programs_that_load_are_put_away_when_the_vlan_limit_changes() {
        let (variants, few) = variants();
        let choose = |meanwhile: &dyn Fn()| {
            variants.choose((few, [0; WORDS]), || {
                meanwhile();
                1
            });
        };
        choose(&|| ());
        choose(&|| variants.set_vlan_limit(1, 2).expect("no hook, nothing to load"));
        assert_eq!((variants.active(), variants.full().vlan_limit), (Needs::ALL, 1));
    }
}
