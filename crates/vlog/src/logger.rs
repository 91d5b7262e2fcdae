// SPDX-License-Identifier: Apache-2.0
//! The logger: modules, destinations and patterns of one process, and the texts of `vlog/*`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::level::{Destination, Facility, Level};
use crate::module::{Module, Modules};
use crate::pattern::Record;
use crate::sink::{FileSink, Opened, write_console};
use crate::spec::{self, Spec};
use crate::syslog::{Syslog, SyslogMethod};

/// Messages are cut to this many bytes.
const MAX_MESSAGE: usize = 4096;

/// Header and text of messages to `--syslog-target`: RFC 5424, the text marked as UTF-8.
const TARGET_PATTERN: &str = "<%B>1 %D{%Y-%m-%dT%H:%M:%S.###Z} %E %A %P %c - \u{feff}%m";

thread_local! {
    static SUBPROGRAM: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Names the present thread or process in log lines (`%t`, `%T`), in place of the thread's own
/// name: `monitor` for the process that watches a daemon.
pub fn set_subprogram(name: &str) {
    SUBPROGRAM.with(|s| *s.borrow_mut() = Some(name.to_owned()));
}

/// The name for `%T`: what [`set_subprogram`] said, else the thread's name, else a number; empty
/// in the main thread.
fn subprogram() -> String {
    let set = SUBPROGRAM.try_with(|s| s.try_borrow().ok().and_then(|s| s.clone()));
    if let Ok(Some(name)) = set {
        return name;
    }
    match std::thread::current().name() {
        Some("main") => String::new(),
        Some(name) => name.to_owned(),
        None => format!("thread{}", rustix::thread::gettid().as_raw_nonzero()),
    }
}

/// Patterns and facility: what a line looks like.
#[derive(Debug)]
struct Style {
    syslog: Arc<str>,
    console: Arc<str>,
    file: Arc<str>,
    facility: Option<Facility>,
}

impl Style {
    fn of(&self, destination: Destination) -> &Arc<str> {
        match destination {
            Destination::Syslog => &self.syslog,
            Destination::Console => &self.console,
            Destination::File => &self.file,
        }
    }
}

/// The system's time zone: seconds east of UTC at a time given in seconds since 1970.
pub type LocalOffset = fn(i64) -> i32;

/// The logging of one process. Any thread may log; lines of several threads do not mix.
///
/// Most programs use the one that [`crate::init`] makes, through the functions of the crate.
/// Locks are held while one line is written to one destination, never across destinations.
#[derive(Debug)]
pub struct Logger {
    program: RwLock<String>,
    host: String,
    started: Instant,
    serial: AtomicU64,
    modules: Modules,
    style: RwLock<Style>,
    file: Mutex<FileSink>,
    syslog: Mutex<Syslog>,
    target: Mutex<Option<(UdpSocket, SocketAddr)>>,
    local_offset: RwLock<Option<LocalOffset>>,
    /// The second that `cached_offset` belongs to, and the offset, packed; see `offset_at`.
    cached_offset: AtomicI64,
    console_lost: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The protected data are valid after every statement, so a poisoned lock is usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Logger {
    /// A logger with OVS's defaults: all destinations at INFO, no log file, syslog by `libc`.
    pub fn new(program: &str) -> Logger {
        let pattern = |d: Destination| Arc::from(d.default_pattern());
        Logger {
            program: RwLock::new(program.to_owned()),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            started: Instant::now(),
            serial: AtomicU64::new(0),
            modules: Modules::new(),
            style: RwLock::new(Style {
                syslog: pattern(Destination::Syslog),
                console: pattern(Destination::Console),
                file: pattern(Destination::File),
                facility: None,
            }),
            file: Mutex::new(FileSink::default()),
            syslog: Mutex::new(Syslog::new(SyslogMethod::Libc)),
            target: Mutex::new(None),
            local_offset: RwLock::new(None),
            cached_offset: AtomicI64::new(i64::MIN),
            console_lost: AtomicU64::new(0),
        }
    }

    /// The program's name (`%A`).
    pub fn program(&self) -> String {
        self.program.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the program's name.
    pub fn set_program(&self, name: &str) {
        name.clone_into(&mut self.program.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Gives `%d` the local time zone. Without it, `%d` is UTC. The function may be called by any
    /// thread.
    pub fn set_local_offset(&self, offset: LocalOffset) {
        *self.local_offset.write().unwrap_or_else(PoisonError::into_inner) = Some(offset);
    }

    /// Makes the names known, so that specifications can speak of them before they log.
    pub fn register_modules(&self, names: &[&str]) {
        for name in names {
            self.modules.register(name);
        }
    }

    pub(crate) fn module_of(&self, target: &str) -> Arc<Module> {
        self.modules.of_target(target)
    }

    /// Whether rate limits hold for the module that `target` belongs to.
    pub fn honors_rate_limits(&self, target: &str) -> bool {
        self.modules.of_target(target).honors_rate_limits()
    }

    // --- lines --------------------------------------------------------------------------------

    /// Logs `message` for the module that `target` belongs to, wherever its thresholds allow.
    /// Never fails: a destination that does not take the line loses it, and counts.
    pub fn log(&self, target: &str, level: Level, message: &str) {
        self.log_module(&self.modules.of_target(target), level, message);
    }

    pub(crate) fn log_module(&self, module: &Module, level: Level, message: &str) {
        if level == Level::Off || level > module.max_level() {
            return;
        }
        self.emit(module, level, message, &Destination::ALL);
    }

    /// Logs at EMER to all destinations but the console, which the caller serves in plain words.
    pub(crate) fn log_fatal(&self, target: &str, message: &str) {
        let module = self.modules.of_target(target);
        self.emit(&module, Level::Emer, message, &[Destination::Syslog, Destination::File]);
    }

    fn emit(&self, module: &Module, level: Level, message: &str, to: &[Destination]) {
        let time = SystemTime::now();
        let program = self.program();
        let subprogram = subprogram();
        let message = abridged(message, MAX_MESSAGE);
        let message = plain(&message);
        let (patterns, facility) = {
            let style = self.style.read().unwrap_or_else(PoisonError::into_inner);
            (Destination::ALL.map(|d| Arc::clone(style.of(d))), style.facility)
        };
        let record = Record {
            program: &program,
            host: &self.host,
            module: &module.name,
            level,
            message: &message,
            serial: self.serial.fetch_add(1, Ordering::Relaxed) + 1,
            pid: std::process::id(),
            subprogram: &subprogram,
            time,
            uptime_ms: self.started.elapsed().as_millis(),
            facility: facility.unwrap_or(Facility::DAEMON),
            local_offset: self.offset_at(time),
        };
        for (destination, pattern) in Destination::ALL.into_iter().zip(&patterns) {
            if !to.contains(&destination) || level > module.level(destination) {
                continue;
            }
            let mut line = String::with_capacity(message.len() + 64);
            match destination {
                Destination::Console => {
                    record.format(pattern, &mut line);
                    line.push('\n');
                    if !write_console(&line) {
                        self.console_lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Destination::File => {
                    record.format(pattern, &mut line);
                    line.push('\n');
                    self.write_file(&record, &line);
                }
                Destination::Syslog => {
                    record.format(pattern, &mut line);
                    self.write_syslog(&record, &line, facility);
                }
            }
        }
    }

    fn write_file(&self, record: &Record<'_>, line: &str) {
        let mut file = lock(&self.file);
        if let Some((lost, why)) = file.write(line) {
            let message = format!("{lost} log messages lost: {why}");
            let note =
                Record { module: "vlog", level: Level::Warn, message: &message, ..record.clone() };
            let mut line = String::new();
            note.format(Destination::File.default_pattern(), &mut line);
            line.push('\n');
            file.write(&line);
        }
    }

    /// One datagram for each line of the message, as the protocol wants it.
    fn write_syslog(&self, record: &Record<'_>, text: &str, facility: Option<Facility>) {
        {
            let mut syslog = lock(&self.syslog);
            let mut prefix = String::new();
            record.format(syslog.method().wire_prefix(), &mut prefix);
            for line in text.split('\n').filter(|l| !l.is_empty()) {
                syslog.send(format!("{prefix}{line}").as_bytes());
            }
        }
        if let Some((socket, _)) = &*lock(&self.target) {
            let record =
                Record { facility: facility.unwrap_or(Facility::LOCAL0), ..record.clone() };
            let mut line = String::new();
            record.format(TARGET_PATTERN, &mut line);
            // UDP: what does not arrive is lost by nature.
            let _ = socket.send(line.as_bytes());
        }
    }

    /// The local offset; asked of the system once in 15 minutes, the grain of time zones.
    fn offset_at(&self, time: SystemTime) -> i32 {
        let Some(ask) = *self.local_offset.read().unwrap_or_else(PoisonError::into_inner) else {
            return 0;
        };
        let unix = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let unix = i64::try_from(unix).unwrap_or(0);
        let quarter = (unix / 900) & 0xff_ffff_ffff;
        let cached = self.cached_offset.load(Ordering::Relaxed);
        if cached >> 20 == quarter {
            // The low 20 bits hold the offset plus half their range.
            return ((cached & 0xf_ffff) - 0x8_0000) as i32;
        }
        let offset = ask(unix).clamp(-0x7_ffff, 0x7_ffff);
        let packed = quarter << 20 | (i64::from(offset) + 0x8_0000);
        self.cached_offset.store(packed, Ordering::Relaxed);
        offset
    }

    // --- settings -----------------------------------------------------------------------------

    /// Applies one specification, as after `-v` or in `vlog/set`.
    ///
    /// # Errors
    /// OVS's text about the word that does not fit; nothing has been changed then.
    pub fn set(&self, spec: &str) -> Result<(), String> {
        match spec::parse(spec, |word| self.modules.find(word).is_some())? {
            Spec::Pattern(only, pattern) => {
                let pattern: Arc<str> = Arc::from(pattern);
                let mut style = self.style.write().unwrap_or_else(PoisonError::into_inner);
                for destination in Destination::ALL {
                    if only.is_none_or(|only| only == destination) {
                        let place = match destination {
                            Destination::Syslog => &mut style.syslog,
                            Destination::Console => &mut style.console,
                            Destination::File => &mut style.file,
                        };
                        *place = Arc::clone(&pattern);
                    }
                }
            }
            Spec::Facility(facility) => {
                self.style.write().unwrap_or_else(PoisonError::into_inner).facility =
                    Some(facility);
            }
            Spec::Levels { module, destination, level } => {
                let module = module.and_then(|name| self.modules.find(&name));
                self.modules.set_level(module.as_deref(), destination, level);
                tracing::callsite::rebuild_interest_cache();
            }
        }
        Ok(())
    }

    /// Sets every threshold to DBG (`-v` alone).
    pub fn set_verbose(&self) {
        self.modules.set_level(None, None, Level::Dbg);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Chooses how messages reach the system log.
    pub fn set_syslog_method(&self, method: SyslogMethod) {
        *lock(&self.syslog) = Syslog::new(method);
    }

    /// Sends each message that the system log gets also to `target`, by UDP (RFC 5424).
    ///
    /// # Errors
    /// The socket could not be made or connected.
    pub fn set_syslog_target(&self, target: SocketAddr) -> io::Result<()> {
        let any: SocketAddr =
            if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        socket.connect(target)?;
        *lock(&self.target) = Some((socket, target));
        self.log(
            "vlog",
            Level::Warn,
            "--syslog-target flag is deprecated, use --syslog-method instead",
        );
        Ok(())
    }

    /// Opens `path` for logging in place of the present log file, if any, and says so in the log.
    /// A file that is open already stays as it is.
    ///
    /// # Errors
    /// The file could not be opened; a WARN message has said so, and the old file stays in use.
    pub fn open_file(&self, path: &Path) -> io::Result<()> {
        let opened = FileSink::open(path).and_then(|file| {
            let same = lock(&self.file).compare(&file)? == Opened::Same;
            Ok((file, same))
        });
        match opened {
            Ok((_, true)) => Ok(()),
            Ok((file, false)) => {
                if lock(&self.file).is_open() {
                    self.log("vlog", Level::Info, "closing log file");
                }
                lock(&self.file).replace(path, file);
                self.log("vlog", Level::Info, &format!("opened log file {}", path.display()));
                Ok(())
            }
            Err(error) => {
                let message = format!(
                    "failed to open {} for logging: {}",
                    path.display(),
                    errno_text(&error)
                );
                self.log("vlog", Level::Warn, &message);
                Err(error)
            }
        }
    }

    /// The `uid` and `gid` given to the open log file, so that a process that has changed its
    /// user can reopen it.
    ///
    /// # Errors
    /// The kernel's, or the file has other names: those may be anybody's. Nothing to do without a
    /// log file.
    pub fn change_file_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        lock(&self.file).change_owner(uid, gid)
    }

    // --- the texts of unixctl -----------------------------------------------------------------

    /// `vlog/list`.
    pub fn list(&self) -> String {
        let mut out = String::from(concat!(
            "                 console    syslog    file\n",
            "                 -------    ------    ------\n",
        ));
        for module in self.modules.all() {
            let level = |d| module.level(d).name();
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "{:<16}  {:>4}       {:>4}       {:>4}",
                module.name,
                level(Destination::Console),
                level(Destination::Syslog),
                level(Destination::File)
            );
            if !module.honors_rate_limits() {
                out.push_str("    (rate limiting disabled)");
            }
            out.push('\n');
        }
        out
    }

    /// `vlog/list-pattern`.
    pub fn list_pattern(&self) -> String {
        let mut out = String::from(concat!(
            "         prefix                            format\n",
            "         ------                            ------\n",
        ));
        let syslog_prefix = lock(&self.syslog).method().shown_prefix();
        let style = self.style.read().unwrap_or_else(PoisonError::into_inner);
        for destination in Destination::ALL {
            let prefix = if destination == Destination::Syslog { syslog_prefix } else { "none" };
            let _ =
                writeln!(out, "{:<8} {prefix:<32}  {}", destination.name(), style.of(destination));
        }
        out
    }

    /// `vlog/set ARGS`: each argument is a specification; none at all means DBG everywhere.
    ///
    /// # Errors
    /// The text about the first argument that does not fit; those before it have been applied.
    pub fn set_command<S: AsRef<str>>(&self, args: &[S]) -> Result<String, String> {
        if args.is_empty() {
            self.set_verbose();
        }
        args.iter().try_for_each(|arg| self.set(arg.as_ref()))?;
        Ok(String::new())
    }

    /// `vlog/reopen`, also for SIGHUP.
    ///
    /// # Errors
    /// No log file was ever named, or it does not open.
    pub fn reopen(&self) -> Result<String, String> {
        let path = lock(&self.file).path().map(Path::to_owned);
        match path {
            None => Err("Logging to file not configured".into()),
            Some(path) => {
                self.open_file(&path).map_err(|e| errno_text(&e))?;
                Ok(String::new())
            }
        }
    }

    /// `vlog/close`: closes the log file until `vlog/reopen`.
    ///
    /// # Errors
    /// None; the type is that of the other commands.
    pub fn close(&self) -> Result<String, String> {
        lock(&self.file).close();
        Ok(String::new())
    }

    /// `vlog/enable-rate-limit` and `vlog/disable-rate-limit` with their module names; none or
    /// `any` means all.
    ///
    /// # Errors
    /// A name that is no module's; those before it have been applied.
    pub fn set_rate_limits<S: AsRef<str>>(
        &self,
        enable: bool,
        modules: &[S],
    ) -> Result<String, String> {
        if modules.is_empty() {
            self.modules.set_honor_rate_limits(None, enable);
        }
        for name in modules.iter().map(AsRef::as_ref) {
            if name.eq_ignore_ascii_case("ANY") {
                self.modules.set_honor_rate_limits(None, enable);
            } else {
                let module = self.modules.find(name).ok_or("unknown module")?;
                self.modules.set_honor_rate_limits(Some(&module), enable);
            }
        }
        Ok(String::new())
    }
}

/// The system's words for `error`, without Rust's "(os error N)".
pub fn errno_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text.get(..at).unwrap_or(&text).to_owned(),
        None => text,
    }
}

/// The message without Rust's " (os error N)" after the system's error text. The text says it
/// already.
fn plain(message: &str) -> Cow<'_, str> {
    const NUMBER: &str = " (os error ";
    let mut rest = message;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(NUMBER) {
        let behind = after.trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str(before);
        match behind.strip_prefix(')') {
            Some(behind) if behind.len() + 1 < after.len() => rest = behind,
            _ => {
                out.push_str(NUMBER);
                rest = after;
            }
        }
    }
    if out.is_empty() && rest.len() == message.len() {
        return Cow::Borrowed(message);
    }
    Cow::Owned(out + rest)
}

/// A text of at most about `most` bytes: in place of the middle of a longer one stands how much of
/// it is missing. A message that quotes what somebody sent, of any length, keeps its beginning,
/// which says what it is about, and its end, which often says why.
pub fn abridged(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let (mut end, mut begin) = (most / 4 * 3, text.len() - most / 4);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    let (head, tail) = (text.get(..end).unwrap_or_default(), text.get(begin..).unwrap_or_default());
    Cow::Owned(format!("{head} [... {} bytes ...] {tail}", begin - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_enough() {
        assert_eq!(
            plain("h1: failed (No such device (os error 19)); go on"),
            "h1: failed (No such device); go on"
        );
        assert_eq!(plain("No such device (os error 19)"), "No such device");
        for text in ["", "an (os error ) of", "an (os error 1x)", "an (os error 1", "plain"] {
            assert_eq!(plain(text), text);
        }
    }

    #[test]
    fn long_texts_keep_their_ends() {
        assert_eq!(abridged("short", 5), "short");
        let long = format!("\"{}\" is not a command", "x".repeat(60_000));
        let text = abridged(&long, 100);
        assert!(text.starts_with("\"xxx") && text.ends_with("x\" is not a command"), "{text}");
        assert!(text.contains(" [... 59919 bytes ...] ") && text.len() < 130, "{text}");
        for most in 0..40 {
            let _ = abridged(&"\u{20ac}".repeat(100), most); // no half characters
        }
    }
}
