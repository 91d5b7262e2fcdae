//! Variants of the lookup programs.
//!
//! The full variant serves every flow and is always loaded. [`Variants::choose`] looks what the
//! present flows need, and when that stayed the same for a while loads lookup programs whose
//! constants say no more than that, and puts them into the tables of programs. A flow that needs
//! more than the present variant has is published only when the full variant is back
//! ([`Variants::admit`]). A variant that does not know a flow never takes a packet for it: it
//! passes what it cannot compare to the walk.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{Tail, WORDS};
use crate::load::{self, Hook};
use crate::maps::Sizes;
use crate::settings::{Needs, Settings};
use crate::sys;

/// Calls of [`Variants::choose`] in a row that must find the same.
const STEADY: u32 = 2;

/// One hook's programs and own maps.
pub struct Station {
    /// Which.
    pub hook: Hook,
    /// Its programs as loaded with everything on, by name.
    pub programs: HashMap<&'static str, OwnedFd>,
    /// Its maps, the shared ones too, by name.
    pub maps: HashMap<String, OwnedFd>,
}

impl Station {
    /// The table of programs.
    pub fn tails(&self) -> Option<BorrowedFd<'_>> {
        self.maps.get("tails").map(AsFd::as_fd)
    }

    fn put_lookup(&self, program: BorrowedFd<'_>) -> std::io::Result<()> {
        match self.tails() {
            Some(tails) => sys::set_program(tails, Tail::Lookup as u32, program),
            None => Ok(()),
        }
    }

    fn full_lookup(&self) -> std::io::Result<()> {
        match self.programs.get(self.hook.lookup()) {
            Some(program) => self.put_lookup(program.as_fd()),
            None => Ok(()),
        }
    }

    /// Fills the table of programs.
    pub fn fill_tails(&self) -> std::io::Result<()> {
        let Some(tails) = self.tails() else { return Ok(()) };
        // The entry program comes upon the lookup last, when all it goes on to is there.
        for (tail, name) in self.hook.tails().iter().rev() {
            if let Some(program) = self.programs.get(name) {
                sys::set_program(tails, *tail as u32, program.as_fd())?;
            }
        }
        Ok(())
    }
}

struct Choice {
    /// What was found last, and how often in a row.
    seen: (Needs, [u64; WORDS]),
    times: u32,
    /// What the present variant was made from; `None`: the full one.
    present: Option<(Needs, [u64; WORDS])>,
    /// The verifier refused a variant: the full one stays.
    broken: bool,
}

/// Chooses and changes variants.
pub struct Variants {
    stations: Vec<Station>,
    full: Settings,
    sizes: Sizes,
    /// `Needs` of the present variant: words, features in the high half.
    active: AtomicU64,
    choice: Mutex<Choice>,
}

fn packed(needs: Needs) -> u64 {
    u64::from(needs.features) << 32 | u64::from(needs.words)
}

impl Variants {
    /// The full variant is in the tables of `stations`.
    pub fn new(stations: Vec<Station>, full: Settings, sizes: Sizes) -> Variants {
        Variants {
            stations,
            full,
            sizes,
            active: AtomicU64::new(packed(Needs::ALL)),
            choice: Mutex::new(Choice {
                seen: (Needs::ALL, [0; WORDS]),
                times: 0,
                present: None,
                broken: false,
            }),
        }
    }

    /// The hooks.
    pub fn stations(&self) -> &[Station] {
        &self.stations
    }

    /// The settings of the full variant.
    pub fn full(&self) -> &Settings {
        &self.full
    }

    /// What the present variant serves.
    pub fn active(&self) -> Needs {
        let active = self.active.load(Ordering::Acquire);
        Needs { words: active as u32, features: (active >> 32) as u32 }
    }

    /// Called before something is published that needs `needs`. No system call when the present
    /// variant has it.
    pub fn admit(&self, needs: Needs) {
        if self.active().cover(needs) {
            return;
        }
        let mut choice = self.choice.lock().unwrap_or_else(|e| e.into_inner());
        if !self.active().cover(needs) {
            self.go_full(&mut choice);
        }
    }

    fn go_full(&self, choice: &mut Choice) {
        for station in &self.stations {
            if let Err(e) = station.full_lookup() {
                // The walk still finds every flow.
                tracing::error!("could not change the {} lookup ({e})", station.hook.name());
            }
        }
        choice.present = None;
        choice.times = 0;
        self.active.store(packed(Needs::ALL), Ordering::Release);
    }

    /// Changes to what fits `found` when it is the same as last time. About twice a second.
    pub fn choose(&self, found: (Needs, [u64; WORDS])) {
        let mut choice = self.choice.lock().unwrap_or_else(|e| e.into_inner());
        if choice.broken || choice.present == Some(found) {
            choice.times = 0;
            return;
        }
        if choice.seen != found {
            choice.seen = found;
            choice.times = 0;
        }
        choice.times += 1;
        if choice.times < STEADY {
            return;
        }
        choice.times = 0;
        if let Err(e) = self.change(&mut choice, found) {
            tracing::warn!("the general lookup program stays in use: {e}");
            choice.broken = true;
            self.go_full(&mut choice);
        }
    }

    fn change(
        &self,
        choice: &mut Choice,
        found: (Needs, [u64; WORDS]),
    ) -> Result<(), crate::Unavailable> {
        let settings = self.full.for_flows(found.0, &found.1);
        let mut fresh = Vec::new();
        for station in &self.stations {
            let have = station.maps.iter().map(|(name, fd)| (name.clone(), fd.as_fd())).collect();
            let name = station.hook.lookup();
            let loaded = load::load(station.hook, Some(name), &settings, &self.sizes, &have)?;
            fresh.extend(loaded.program(name).map(|program| (station, program)));
        }
        // From here on `admit` waits, or sees the narrow variant.
        self.active.store(packed(found.0), Ordering::Release);
        for (station, program) in &fresh {
            station.put_lookup(program.as_fd()).map_err(|source| crate::Unavailable::System {
                step: format!("changing the {} lookup", station.hook.name()),
                source,
            })?;
        }
        choice.present = Some(found);
        tracing::debug!(
            words = found.0.words.count_ones(),
            features = found.0.features,
            "the lookup programs fit the present flows"
        );
        Ok(())
    }
}
