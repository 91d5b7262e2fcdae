// SPDX-License-Identifier: Apache-2.0
//! The command line of `ovs-vswitchd(8)`.
//!
//! Read by hand, by the rules of `getopt_long(3)`: long options may be shortened to any unique
//! prefix, an optional value must be attached (`--pidfile=F`, `-vSPEC`), options and operands may
//! be mixed, `--` ends the options, and the first `--help`, `--version` or mistake decides.
//! `clap` has no unambiguous-prefix rule with getopt's messages and no order among options, which
//! `-v` needs.
//!
//! [`Args::parse`] is pure: it touches neither files nor the process. The methods of [`Args`]
//! resolve values that depend on directories or on the system's users.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use process::{DaemonOptions, Dirs, User};

/// The name under which scripts know the daemon, whatever its binary is called.
pub const PROGRAM: &str = "ovs-vswitchd";

/// The answer of `ovs-appctl version` and the first line of `--version`: the Open vSwitch release
/// whose behaviour we have. Scripts read the number.
pub const VERSION_LINE: &str = "ovs-vswitchd (Open vSwitch) 3.1.0";

/// An end of the program that the command line asks for: help, version, or a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The exit status.
    pub status: u8,
    /// Text for standard output.
    pub stdout: String,
    /// Text for standard error.
    pub stderr: String,
}

impl Exit {
    /// A mistake: `ovs-vswitchd: TEXT` on standard error, status 1.
    pub fn error(text: impl std::fmt::Display) -> Exit {
        Exit { status: 1, stdout: String::new(), stderr: format!("{PROGRAM}: {text}\n") }
    }

    fn success(stdout: String) -> Exit {
        Exit { status: 0, stdout, stderr: String::new() }
    }

    /// Writes the texts and gives the status for `main` to return.
    pub fn emit(self) -> std::process::ExitCode {
        use std::io::Write;
        // A reader that has gone away needs no text.
        let _ = std::io::stdout().write_all(self.stdout.as_bytes());
        let _ = std::io::stderr().write_all(self.stderr.as_bytes());
        std::process::ExitCode::from(self.status)
    }
}

/// `--enable-dummy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DummyLevel {
    /// Not given: no dummy interfaces or datapaths.
    #[default]
    Off,
    /// `--enable-dummy`: the types `dummy` exist.
    New,
    /// `--enable-dummy=system`: the system's interfaces and datapath are dummies.
    System,
    /// `--enable-dummy=override`: everything is a dummy.
    Override,
}

/// `--ca-cert` or `--bootstrap-ca-cert`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CaCert {
    /// Neither was given.
    #[default]
    Unset,
    /// `none`: peers are not verified.
    None,
    /// A file of certificates.
    File(PathBuf),
    /// A file that is made from the first peer's certificate when it does not exist.
    Bootstrap(PathBuf),
}

/// The SSL options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SslArgs {
    /// `--private-key`.
    pub private_key: Option<PathBuf>,
    /// `--certificate`.
    pub certificate: Option<PathBuf>,
    /// `--ca-cert`, `--bootstrap-ca-cert`: the last one given.
    pub ca_cert: CaCert,
    /// `--peer-ca-cert`.
    pub peer_ca_cert: Option<PathBuf>,
    /// `--ssl-protocols`, `--ssl-ciphers`, `--ssl-ciphersuites`, `--ssl-server-name`.
    pub policy: tls::Policy,
    /// Versions in `--ssl-protocols` that are not spoken any more.
    pub too_old: Vec<String>,
}

/// One logging option. Their order matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogArg {
    /// `-v` alone: everything at DBG.
    Verbose,
    /// `-vSPEC`.
    Spec(String),
    /// `--log-file[=FILE]`.
    File(Option<PathBuf>),
    /// `--syslog-method`.
    SyslogMethod(String),
    /// `--syslog-target`.
    SyslogTarget(String),
}

/// The command line, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// The operand: how to reach the database. See [`Args::database`].
    pub database: Option<String>,
    /// `--detach`.
    pub detach: bool,
    /// `--no-chdir`.
    pub no_chdir: bool,
    /// `--no-self-confinement`: paths from the database may lie outside the usual directories.
    pub no_self_confinement: bool,
    /// `--pidfile`: absent, with the default name, or with this one.
    pub pidfile: Option<Option<PathBuf>>,
    /// `--overwrite-pidfile`.
    pub overwrite_pidfile: bool,
    /// `--monitor`.
    pub monitor: bool,
    /// `--user`, as given.
    pub user: Option<String>,
    /// `--mlockall`.
    pub mlockall: bool,
    /// `--unixctl`, as given. See [`Args::unixctl_path`].
    pub unixctl: Option<String>,
    /// Logging, in order.
    pub logging: Vec<LogArg>,
    /// SSL.
    pub ssl: SslArgs,
    /// `--disable-system`: no kernel datapath.
    pub disable_system: bool,
    /// `--disable-system-route`: the system's routing table is not followed.
    pub disable_system_route: bool,
    /// `--enable-dummy`.
    pub dummy: DummyLevel,
    /// `--dummy-numa`: the NUMA node of each core, by core number.
    pub dummy_numa: Option<Vec<u32>>,
}

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    No,
    Optional,
    Required,
}

/// The meaning of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opt {
    Help,
    Version,
    Mlockall,
    Unixctl,
    Detach,
    NoChdir,
    NoSelfConfinement,
    Pidfile,
    OverwritePidfile,
    Monitor,
    User,
    Verbose,
    LogFile,
    SyslogMethod,
    SyslogTarget,
    PrivateKey,
    Certificate,
    CaCert,
    SslProtocols,
    SslCiphers,
    SslCiphersuites,
    SslServerName,
    PeerCaCert,
    BootstrapCaCert,
    EnableDummy,
    DisableSystem,
    DisableSystemRoute,
    Dpdk,
    DummyNuma,
}

const OPTIONS: &[(&str, Option<char>, Value, Opt)] = &[
    ("help", Some('h'), Value::No, Opt::Help),
    ("version", Some('V'), Value::No, Opt::Version),
    ("mlockall", None, Value::No, Opt::Mlockall),
    ("unixctl", None, Value::Required, Opt::Unixctl),
    ("detach", None, Value::No, Opt::Detach),
    ("no-chdir", None, Value::No, Opt::NoChdir),
    ("no-self-confinement", None, Value::No, Opt::NoSelfConfinement),
    ("pidfile", None, Value::Optional, Opt::Pidfile),
    ("overwrite-pidfile", None, Value::No, Opt::OverwritePidfile),
    ("monitor", None, Value::No, Opt::Monitor),
    ("user", None, Value::Required, Opt::User),
    ("verbose", Some('v'), Value::Optional, Opt::Verbose),
    ("log-file", None, Value::Optional, Opt::LogFile),
    ("syslog-method", None, Value::Required, Opt::SyslogMethod),
    ("syslog-target", None, Value::Required, Opt::SyslogTarget),
    ("private-key", Some('p'), Value::Required, Opt::PrivateKey),
    ("certificate", Some('c'), Value::Required, Opt::Certificate),
    ("ca-cert", Some('C'), Value::Required, Opt::CaCert),
    ("ssl-protocols", None, Value::Required, Opt::SslProtocols),
    ("ssl-ciphers", None, Value::Required, Opt::SslCiphers),
    ("ssl-ciphersuites", None, Value::Required, Opt::SslCiphersuites),
    ("ssl-server-name", None, Value::Required, Opt::SslServerName),
    ("peer-ca-cert", None, Value::Required, Opt::PeerCaCert),
    ("bootstrap-ca-cert", None, Value::Required, Opt::BootstrapCaCert),
    ("enable-dummy", None, Value::Optional, Opt::EnableDummy),
    ("disable-system", None, Value::No, Opt::DisableSystem),
    ("disable-system-route", None, Value::No, Opt::DisableSystemRoute),
    ("dpdk", None, Value::Optional, Opt::Dpdk),
    ("dummy-numa", None, Value::Required, Opt::DummyNuma),
];

/// The long option that `name` means.
fn find_long(name: &str) -> Result<(&'static str, Value, Opt), Exit> {
    let mut candidates = Vec::new();
    for (long, _, value, opt) in OPTIONS {
        if *long == name {
            return Ok((long, *value, *opt));
        }
        if long.starts_with(name) {
            candidates.push((*long, *value, *opt));
        }
    }
    match candidates.as_slice() {
        [] => Err(Exit::error(format!("unrecognized option '--{name}'"))),
        [one] => Ok(*one),
        many => {
            let names: String = many.iter().map(|(long, ..)| format!(" '--{long}'")).collect();
            Err(Exit::error(format!("option '--{name}' is ambiguous; possibilities:{names}")))
        }
    }
}

impl Args {
    /// Reads the words after the program's name. `dirs` only fills the defaults that `--help`
    /// shows.
    ///
    /// # Errors
    /// Help, version, or the first mistake, in the words of the real program.
    pub fn parse<I>(words: I, dirs: &Dirs) -> Result<Args, Exit>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let mut args = Args::default();
        let mut operands = Vec::new();
        let mut words = words.into_iter().map(|word| {
            word.into().into_string().map_err(|word| {
                Exit::error(format!("{}: argument is not valid UTF-8", word.to_string_lossy()))
            })
        });
        while let Some(word) = words.next().transpose()? {
            if word == "--" {
                for rest in words.by_ref() {
                    operands.push(rest?);
                }
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, attached) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let (name, wants, opt) = find_long(name)?;
                let value = match (wants, attached) {
                    (Value::No, Some(_)) => {
                        return Err(Exit::error(format!(
                            "option '--{name}' doesn't allow an argument"
                        )));
                    }
                    (Value::Required, None) => {
                        Some(words.next().transpose()?.ok_or_else(|| {
                            Exit::error(format!("option '--{name}' requires an argument"))
                        })?)
                    }
                    (_, attached) => attached,
                };
                args.take(opt, value, dirs)?;
            } else if word.len() > 1 && word.starts_with('-') {
                let mut letters = word.chars();
                letters.next();
                while let Some(letter) = letters.next() {
                    let Some((_, _, wants, opt)) =
                        OPTIONS.iter().find(|(_, short, ..)| *short == Some(letter))
                    else {
                        return Err(Exit::error(format!("invalid option -- '{letter}'")));
                    };
                    let attached = Some(letters.as_str().to_owned()).filter(|s| !s.is_empty());
                    let value = match wants {
                        Value::No => {
                            args.take(*opt, None, dirs)?;
                            continue;
                        }
                        Value::Optional => attached,
                        Value::Required => match attached {
                            Some(value) => Some(value),
                            None => Some(words.next().transpose()?.ok_or_else(|| {
                                Exit::error(format!("option requires an argument -- '{letter}'"))
                            })?),
                        },
                    };
                    args.take(*opt, value, dirs)?;
                    break;
                }
            } else {
                operands.push(word);
            }
        }
        let mut operands = operands.into_iter();
        args.database = operands.next();
        if operands.next().is_some() {
            return Err(Exit::error(
                "at most one non-option argument accepted; use --help for usage",
            ));
        }
        Ok(args)
    }

    /// Takes in one option with its value, which is there when the option requires one.
    fn take(&mut self, opt: Opt, value: Option<String>, dirs: &Dirs) -> Result<(), Exit> {
        let path = |value: &Option<String>| value.clone().map(PathBuf::from);
        match opt {
            Opt::Help => return Err(Exit::success(help(dirs))),
            Opt::Version => return Err(Exit::success(version())),
            Opt::Mlockall => self.mlockall = true,
            Opt::Unixctl => self.unixctl = value,
            Opt::Detach => self.detach = true,
            Opt::NoChdir => self.no_chdir = true,
            Opt::NoSelfConfinement => self.no_self_confinement = true,
            Opt::Pidfile => self.pidfile = Some(path(&value)),
            Opt::OverwritePidfile => self.overwrite_pidfile = true,
            Opt::Monitor => self.monitor = true,
            Opt::User => self.user = value,
            Opt::Verbose => self.logging.push(value.map_or(LogArg::Verbose, LogArg::Spec)),
            Opt::LogFile => self.logging.push(LogArg::File(path(&value))),
            Opt::SyslogMethod => self.logging.extend(value.map(LogArg::SyslogMethod)),
            Opt::SyslogTarget => self.logging.extend(value.map(LogArg::SyslogTarget)),
            Opt::PrivateKey => self.ssl.private_key = path(&value),
            Opt::Certificate => self.ssl.certificate = path(&value),
            Opt::CaCert => {
                self.ssl.ca_cert = match value {
                    None => CaCert::Unset,
                    Some(none) if none == "none" => CaCert::None,
                    Some(file) => CaCert::File(file.into()),
                };
            }
            Opt::BootstrapCaCert => {
                self.ssl.ca_cert =
                    value.map_or(CaCert::Unset, |file| CaCert::Bootstrap(file.into()));
            }
            Opt::PeerCaCert => self.ssl.peer_ca_cert = path(&value),
            Opt::SslProtocols => {
                let list = value.unwrap_or_default();
                let set = self.ssl.policy.set_versions(&list);
                self.ssl.too_old =
                    set.map_err(|e| Exit::error(format!("--ssl-protocols={list}: {e}")))?;
            }
            Opt::SslCiphers => {
                let list = value.unwrap_or_default();
                let set = self.ssl.policy.set_ciphers(&list);
                set.map_err(|e| Exit::error(format!("--ssl-ciphers={list}: {e}")))?;
            }
            Opt::SslCiphersuites => {
                let list = value.unwrap_or_default();
                let set = self.ssl.policy.set_ciphersuites(&list);
                set.map_err(|e| Exit::error(format!("--ssl-ciphersuites={list}: {e}")))?;
            }
            Opt::SslServerName => {
                let name = value.unwrap_or_default();
                let set = self.ssl.policy.set_server_name(&name);
                set.map_err(|e| Exit::error(format!("--ssl-server-name: {e}")))?;
            }
            Opt::EnableDummy => {
                self.dummy = match value.as_deref() {
                    None | Some("") => DummyLevel::New,
                    Some("system") => DummyLevel::System,
                    Some("override") => DummyLevel::Override,
                    Some(other) => {
                        return Err(Exit::error(format!("{other}: unknown dummy level")));
                    }
                };
            }
            Opt::DisableSystem => self.disable_system = true,
            Opt::DisableSystemRoute => self.disable_system_route = true,
            Opt::Dpdk => {
                return Err(Exit::error("Using --dpdk to configure DPDK is not supported."));
            }
            Opt::DummyNuma => {
                let text = value.unwrap_or_default();
                let nodes: Result<Vec<u32>, _> =
                    text.split(',').map(|node| node.trim().parse()).collect();
                self.dummy_numa = Some(nodes.map_err(|_| {
                    Exit::error(format!(
                        "--dummy-numa={text}: expected a list of NUMA nodes, one for each core, \
                         such as 0,0,1,1"
                    ))
                })?);
            }
        }
        Ok(())
    }

    /// The database's address: the operand, else `unix:RUN/db.sock`.
    pub fn database(&self, dirs: &Dirs) -> String {
        self.database
            .clone()
            .unwrap_or_else(|| format!("unix:{}", dirs.run.join("db.sock").display()))
    }

    /// The control socket's path, for the calling process (so ask after the fork); `None` for
    /// `--unixctl=none`.
    pub fn unixctl_path(&self, dirs: &Dirs) -> Option<PathBuf> {
        match self.unixctl.as_deref() {
            None => Some(dirs.default_ctl(PROGRAM)),
            Some("none") => None,
            Some(path) => Some(dirs.in_run(Path::new(path))),
        }
    }

    /// The options of [`process::Daemon::start`].
    ///
    /// # Errors
    /// `--user` names nobody.
    pub fn daemon_options(&self, dirs: &Dirs) -> Result<DaemonOptions, Exit> {
        let user = self.user.as_deref().map(User::parse).transpose().map_err(Exit::error)?;
        Ok(DaemonOptions {
            detach: self.detach,
            monitor: self.monitor,
            no_chdir: self.no_chdir,
            pidfile: self.pidfile.as_ref().map(|pidfile| match pidfile {
                Some(path) => dirs.in_run(path),
                None => dirs.default_pidfile(PROGRAM),
            }),
            overwrite_pidfile: self.overwrite_pidfile,
            user,
        })
    }

    /// Applies the logging options to `logger`, in order. The modules that specifications may name
    /// must be registered before.
    ///
    /// # Errors
    /// The first option that does not fit, or a log file that cannot be opened. The logger reports
    /// the latter, and the text is empty.
    pub fn apply_logging(&self, logger: &vlog::Logger, dirs: &Dirs) -> Result<(), Exit> {
        for arg in &self.logging {
            match arg {
                LogArg::Verbose => logger.set_verbose(),
                LogArg::Spec(spec) => logger
                    .set(spec)
                    .map_err(|e| Exit::error(format!("processing \"{spec}\": {e}")))?,
                LogArg::File(path) => {
                    // Absolute, so that a reopening after the change of directory finds it.
                    let path = match path {
                        Some(path) => std::path::absolute(path).map_err(|e| {
                            Exit::error(format!("{}: {}", path.display(), vlog::errno_text(&e)))
                        })?,
                        None => dirs.default_log(PROGRAM),
                    };
                    let silent = Exit { status: 1, stdout: String::new(), stderr: String::new() };
                    logger.open_file(&path).map_err(|_| silent)?;
                }
                LogArg::SyslogMethod(method) => {
                    let method = vlog::SyslogMethod::parse(method).map_err(Exit::error)?;
                    logger.set_syslog_method(method);
                }
                LogArg::SyslogTarget(target) => {
                    let address = vlog::parse_target(target).map_err(Exit::error)?;
                    logger
                        .set_syslog_target(address)
                        .map_err(|e| Exit::error(format!("{target}: {}", vlog::errno_text(&e))))?;
                }
            }
        }
        Ok(())
    }
}

fn version() -> String {
    format!("{VERSION_LINE}\nSlipswitch {}\n", env!("CARGO_PKG_VERSION"))
}

fn help(dirs: &Dirs) -> String {
    let (run, log) = (dirs.run.display(), dirs.log.display());
    format!(
        "\
{PROGRAM}: Open vSwitch daemon (Slipswitch)
usage: {PROGRAM} [OPTIONS] [DATABASE]
where DATABASE is a socket on which ovsdb-server is listening
      (default: \"unix:{run}/db.sock\").

Active DATABASE connection methods:
  tcp:HOST:PORT           PORT at remote HOST
  ssl:HOST:PORT           SSL PORT at remote HOST
  unix:FILE               Unix domain socket named FILE
PKI configuration (required to use SSL):
  -p, --private-key=FILE  file with private key
  -c, --certificate=FILE  file with certificate for private key
  -C, --ca-cert=FILE      file with peer CA certificate
  --bootstrap-ca-cert=FILE  file with peer CA certificate to read or create
  --peer-ca-cert=FILE     file with CA certificates to send to peers
SSL options:
  --ssl-protocols=PROTOS  list of SSL protocols to enable
  --ssl-ciphers=CIPHERS   list of SSL ciphers to enable
  --ssl-ciphersuites=SUITES  list of TLS 1.3 suites to enable
  --ssl-server-name=NAME  server name to send to servers

Daemon options:
  --detach                run in background as daemon
  --monitor               creates a process to monitor this daemon
  --user=username[:group] changes the effective daemon user:group
  --no-chdir              do not chdir to '/'
  --no-self-confinement   accept socket paths outside {run}
  --pidfile[=FILE]        create pidfile (default: {run}/{PROGRAM}.pid)
  --overwrite-pidfile     with --pidfile, start even if already running
  --mlockall              lock the memory of the process into RAM

Logging options:
  -vSPEC, --verbose=SPEC   set logging levels
  -v, --verbose            set maximum verbosity level
  --log-file[=FILE]        enable logging to specified FILE
                           (default: {log}/{PROGRAM}.log)
  --syslog-method=(libc|unix:file|udp:ip:port|null)
                           specify how to send messages to syslog daemon
  --syslog-target=HOST:PORT  also send syslog msgs to HOST:PORT via UDP

Datapath options:
  --disable-system        do not use the kernel's datapath
  --disable-system-route  do not follow the system's routing table
  --enable-dummy[=override|system]
                          dummy interfaces and datapaths, for tests
  --dummy-numa=LIST       NUMA node of each core, for tests

Other options:
  --unixctl=SOCKET          override default control socket name
  -h, --help                display this help message
  -V, --version             display version information
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> Dirs {
        Dirs::from_vars(|name| (name == "OVS_RUNDIR").then(|| "/run/x".into()))
    }

    fn parse(line: &str) -> Result<Args, Exit> {
        Args::parse(line.split_whitespace(), &dirs())
    }

    #[test]
    fn everything_together() {
        let args = parse(
            "--detach --no-chdir --no-self-confinement --pidfile --overwrite-pidfile --monitor \
             --log-file=/l -vconsole:emer -vsyslog:err --verbose=file:info -v --mlockall \
             tcp:1.2.3.4:6640 --unixctl=c --user=root:daemon --disable-system \
             --disable-system-route --enable-dummy=override --dummy-numa 0,0,1 -p k -cC2 -C none \
             --peer-ca-cert=q --ssl-protocols=TLSv1.1,TLSv1.2 --ssl-ciphers HIGH \
             --ssl-ciphersuites TLS_AES_256_GCM_SHA384 --ssl-server-name=name --syslog-method=null \
             --syslog-target 127.0.0.1:514",
        )
        .unwrap();
        let mut policy = tls::Policy::default();
        assert_eq!(policy.set_versions("TLSv1.2"), Ok(vec![]));
        assert_eq!(policy.set_ciphers("ALL"), Ok(()));
        assert_eq!(policy.set_ciphersuites("TLS_AES_256_GCM_SHA384"), Ok(()));
        assert_eq!(policy.set_server_name("name"), Ok(()));
        assert!(args.detach && args.no_chdir && args.no_self_confinement && args.monitor);
        assert!(args.overwrite_pidfile && args.mlockall);
        assert!(args.disable_system && args.disable_system_route);
        assert_eq!(args.dummy, DummyLevel::Override);
        assert_eq!(args.dummy_numa.as_deref(), Some(&[0, 0, 1][..]));
        assert_eq!(args.database(&dirs()), "tcp:1.2.3.4:6640");
        assert_eq!(args.unixctl_path(&dirs()), Some("/run/x/c".into()));
        assert_eq!(
            args.ssl,
            SslArgs {
                private_key: Some("k".into()),
                certificate: Some("C2".into()),
                ca_cert: CaCert::None,
                peer_ca_cert: Some("q".into()),
                policy,
                too_old: vec!["TLSv1.1".into()],
            }
        );
        assert_eq!(
            args.logging,
            [
                LogArg::File(Some("/l".into())),
                LogArg::Spec("console:emer".into()),
                LogArg::Spec("syslog:err".into()),
                LogArg::Spec("file:info".into()),
                LogArg::Verbose,
                LogArg::SyslogMethod("null".into()),
                LogArg::SyslogTarget("127.0.0.1:514".into()),
            ]
        );
        let options = args.daemon_options(&dirs()).unwrap();
        assert_eq!(options.pidfile, Some("/run/x/ovs-vswitchd.pid".into()));
        assert_eq!(options.user.map(|u| (u.uid(), u.gid())), Some((0, 1)));
    }

    #[test]
    fn defaults() {
        let args = parse("").unwrap();
        assert_eq!(args, Args::default());
        assert_eq!(args.database(&dirs()), "unix:/run/x/db.sock");
        let ctl = args.unixctl_path(&dirs()).unwrap();
        assert_eq!(ctl, Path::new(&format!("/run/x/ovs-vswitchd.{}.ctl", std::process::id())));
        assert_eq!(args.daemon_options(&dirs()).unwrap(), DaemonOptions::default());
        assert_eq!(parse("--unixctl=none").unwrap().unixctl_path(&dirs()), None);
    }

    #[test]
    fn pidfile_forms_and_prefixes() {
        let pidfile = |line| parse(line).unwrap().daemon_options(&dirs()).unwrap().pidfile;
        assert_eq!(pidfile("--pid"), Some("/run/x/ovs-vswitchd.pid".into()));
        assert_eq!(pidfile("--pidfil=/tmp/x"), Some("/tmp/x".into()));
        assert_eq!(pidfile("--pidfile=y"), Some("/run/x/y".into()));
        assert!(!parse("--disable-system").unwrap().disable_system_route);
        assert_eq!(parse("--log").unwrap().logging, [LogArg::File(None)]);
        assert_eq!(parse("-v dbg").unwrap().database.as_deref(), Some("dbg"));
        assert_eq!(parse("-- --detach").unwrap().database.as_deref(), Some("--detach"));
        assert_eq!(parse("--enable-dummy").unwrap().dummy, DummyLevel::New);
        assert_eq!(
            parse("--bootstrap-ca-cert=b").unwrap().ssl.ca_cert,
            CaCert::Bootstrap("b".into())
        );
    }

    #[test]
    fn mistakes_in_the_words_of_the_real_program() {
        for (line, want) in [
            ("--nosuch", "unrecognized option '--nosuch'"),
            ("-x", "invalid option -- 'x'"),
            ("--detach=3", "option '--detach' doesn't allow an argument"),
            ("--unixctl", "option '--unixctl' requires an argument"),
            ("-p", "option requires an argument -- 'p'"),
            ("--no-chdir --v", "option '--v' is ambiguous; possibilities: '--version' '--verbose'"),
            ("a b", "at most one non-option argument accepted; use --help for usage"),
            ("--enable-dummy=foo", "foo: unknown dummy level"),
            ("--dpdk", "Using --dpdk to configure DPDK is not supported."),
            ("--user", "option '--user' requires an argument"),
            (
                "--ssl-protocols=SSLv3",
                "--ssl-protocols=SSLv3: names no version that is supported: use TLSv1.2 and TLSv1.3",
            ),
            (
                "--ssl-protocols=TLSv1.2,x",
                "--ssl-protocols=TLSv1.2,x: \"x\" is no version; use TLSv1.2 and TLSv1.3",
            ),
            (
                "--ssl-ciphers=HIGH:@SECLEVEL=4",
                "--ssl-ciphers=HIGH:@SECLEVEL=4: \"@SECLEVEL=4\": levels up to 2 are supported",
            ),
            ("--mlockall=2", "option '--mlockall' doesn't allow an argument"),
        ] {
            let exit = parse(line).unwrap_err();
            assert_eq!(exit.status, 1, "{line}");
            assert_eq!(exit.stderr, format!("ovs-vswitchd: {want}\n"), "{line}");
            assert!(exit.stdout.is_empty());
        }
        assert!(parse("--dummy-numa=0,x").is_err());
        let bad: OsString = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
        assert!(Args::parse([bad], &dirs()).is_err());
        let nobody = parse("--user=nosuchuser").unwrap().daemon_options(&dirs()).unwrap_err();
        assert_eq!(nobody.stderr, "ovs-vswitchd: user nosuchuser not found, aborting.\n");
    }

    #[test]
    fn help_and_version_come_first() {
        for line in ["--version --nosuch", "-Vh", "--detach -V"] {
            let exit = parse(line).unwrap_err();
            assert_eq!(exit.status, 0);
            assert_eq!(exit.stdout.lines().next(), Some("ovs-vswitchd (Open vSwitch) 3.1.0"));
            assert!(exit.stdout.contains("\nSlipswitch "));
        }
        let help = parse("-h").unwrap_err().stdout;
        for (name, _, _, opt) in OPTIONS {
            assert!(*opt == Opt::Dpdk || help.contains(&format!("--{name}")), "{name}");
        }
        assert!(help.contains("unix:/run/x/db.sock"));
    }

    #[test]
    fn logging_is_applied_in_order() {
        let logger = vlog::Logger::new(PROGRAM);
        logger.set_syslog_method(vlog::SyslogMethod::Null);
        logger.register_modules(&["bridge"]);
        let args = parse("-vconsole:off -vbridge:file:dbg -vany:syslog:err").unwrap();
        args.apply_logging(&logger, &dirs()).unwrap();
        assert!(logger.list().contains("bridge             OFF        ERR        DBG\n"));
        let apply = |line: &str| parse(line).unwrap().apply_logging(&logger, &dirs()).unwrap_err();
        assert_eq!(
            apply("-vfoo").stderr,
            "ovs-vswitchd: processing \"foo\": no destination, level, or module \"foo\"\n"
        );
        assert_eq!(
            apply("--syslog-method=foo").stderr,
            "ovs-vswitchd: unsupported syslog method 'foo'\n"
        );
        assert_eq!(apply("--log-file=/nosuch/x").status, 1);
    }
}
