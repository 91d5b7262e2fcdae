// SPDX-License-Identifier: Apache-2.0
//! Modules: the names that messages carry, and the thresholds of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::level::{Destination, Level};

/// The thresholds of one module. Any thread may read them; they change one by one.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    levels: Levels,
    honor_rate_limits: AtomicBool,
}

#[derive(Debug)]
struct Levels([AtomicU8; 3]);

impl Levels {
    fn of(&self, destination: Destination) -> &AtomicU8 {
        let [syslog, console, file] = &self.0;
        match destination {
            Destination::Syslog => syslog,
            Destination::Console => console,
            Destination::File => file,
        }
    }
}

impl Module {
    /// The threshold of `destination`.
    pub(crate) fn level(&self, destination: Destination) -> Level {
        Level::from_raw(self.levels.of(destination).load(Ordering::Relaxed))
    }

    pub(crate) fn set_level(&self, destination: Destination, level: Level) {
        self.levels.of(destination).store(level as u8, Ordering::Relaxed);
    }

    /// The most talkative of the three thresholds.
    pub(crate) fn max_level(&self) -> Level {
        Destination::ALL.into_iter().map(|d| self.level(d)).max().unwrap_or(Level::Off)
    }

    pub(crate) fn honors_rate_limits(&self) -> bool {
        self.honor_rate_limits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_honor_rate_limits(&self, honor: bool) {
        self.honor_rate_limits.store(honor, Ordering::Relaxed);
    }
}

/// All modules of the process.
///
/// A module comes to be when it is registered or when the first call site of that name is met; it
/// then starts with the levels that the last `-v` options without a module have set.
#[derive(Debug)]
pub(crate) struct Modules {
    by_name: RwLock<BTreeMap<String, Arc<Module>>>,
    defaults: Levels,
    honor_by_default: AtomicBool,
}

impl Modules {
    pub(crate) fn new() -> Modules {
        let info = || AtomicU8::new(Level::Info as u8);
        Modules {
            by_name: RwLock::new(BTreeMap::new()),
            defaults: Levels([info(), info(), info()]),
            honor_by_default: AtomicBool::new(true),
        }
    }

    /// The module that `target` belongs to: the last segment of a Rust path, else all of it.
    pub(crate) fn of_target(&self, target: &str) -> Arc<Module> {
        self.register(module_name(target))
    }

    /// The module with exactly this name, made if it is not there yet.
    pub(crate) fn register(&self, name: &str) -> Arc<Module> {
        if let Some(module) = self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name)
        {
            return Arc::clone(module);
        }
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let module = by_name.entry(name.to_owned()).or_insert_with(|| {
            let level = |d| AtomicU8::new(self.defaults.of(d).load(Ordering::Relaxed));
            Arc::new(Module {
                name: name.to_owned(),
                levels: Levels([
                    level(Destination::Syslog),
                    level(Destination::Console),
                    level(Destination::File),
                ]),
                honor_rate_limits: AtomicBool::new(self.honor_by_default.load(Ordering::Relaxed)),
            })
        });
        Arc::clone(module)
    }

    /// The module of this name, in any case, `-` and `_` being the same.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Module>> {
        let fold = |s: &str| s.to_ascii_lowercase().replace('-', "_");
        let wanted = fold(name);
        self.all().into_iter().find(|m| fold(&m.name) == wanted)
    }

    /// All modules by name.
    pub(crate) fn all(&self) -> Vec<Arc<Module>> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.values().cloned().collect()
    }

    /// Sets a threshold: of one module, or of all that are and will be.
    pub(crate) fn set_level(
        &self,
        module: Option<&Module>,
        destination: Option<Destination>,
        level: Level,
    ) {
        for d in Destination::ALL {
            if destination.is_some_and(|only| only != d) {
                continue;
            }
            match module {
                Some(module) => module.set_level(d, level),
                None => {
                    self.defaults.of(d).store(level as u8, Ordering::Relaxed);
                    self.all().iter().for_each(|m| m.set_level(d, level));
                }
            }
        }
    }

    /// Switches rate limiting: of one module, or of all that are and will be.
    pub(crate) fn set_honor_rate_limits(&self, module: Option<&Module>, honor: bool) {
        match module {
            Some(module) => module.set_honor_rate_limits(honor),
            None => {
                self.honor_by_default.store(honor, Ordering::Relaxed);
                self.all().iter().for_each(|m| m.set_honor_rate_limits(honor));
            }
        }
    }
}

/// The module name of a `tracing` target.
pub(crate) fn module_name(target: &str) -> &str {
    target.rsplit("::").next().unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_targets() {
        assert_eq!(module_name("datapath_userspace::port::tap"), "tap");
        assert_eq!(module_name("bridge"), "bridge");
        assert_eq!(module_name(""), "");
    }

    #[test]
    fn later_modules_inherit() {
        let modules = Modules::new();
        let early = modules.register("early");
        modules.set_level(None, Some(Destination::Console), Level::Off);
        modules.set_level(Some(&early), None, Level::Dbg);
        let late = modules.of_target("a::late");
        assert_eq!(late.level(Destination::Console), Level::Off);
        assert_eq!(late.max_level(), Level::Info);
        assert_eq!(early.max_level(), Level::Dbg);
        assert!(modules.find("EARLY").is_some());
        assert!(modules.find("a::late").is_none());
    }
}
