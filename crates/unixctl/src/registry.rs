// SPDX-License-Identifier: Apache-2.0
//! Commands: their names, their words, and what answers them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde_json::Value;
use tokio::sync::oneshot;

/// Bytes of an error that a peer gets. As in Open vSwitch, an error quotes a whole flow of datapath
/// syntax, which may have as many bytes as a command line.
const MAX_ERROR: usize = 128 << 10;

/// The form in which a peer wants results (`set-options --format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    #[default]
    Text,
    /// JSON. A command that only has a text wraps it.
    Json,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    /// A text for people.
    Text(String),
    /// A JSON value, for a peer that wants [`Format::Json`].
    Json(Value),
}

/// The outcome of a command: its result, or the text of an error.
pub(crate) type Outcome = Result<Body, String>;

/// The way to answer one request, at once or later, from anywhere.
///
/// Dropped without an answer, it answers with an error, so that a peer never waits for a reply that
/// does not come.
#[derive(Debug)]
pub struct Reply {
    sender: Option<oneshot::Sender<Outcome>>,
}

impl Reply {
    /// Makes an answer and the place where it will arrive.
    pub(crate) fn channel() -> (Reply, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        (Reply { sender: Some(sender) }, receiver)
    }

    /// Answers with a text. The line end at the end may be left out.
    pub fn ok(self, text: impl Into<String>) {
        self.send(Ok(text.into()));
    }

    /// Answers with an error.
    pub fn error(self, text: impl Into<String>) {
        self.send(Err(text.into()));
    }

    /// Answers with either. An error beyond `MAX_ERROR` is abridged: it may quote a request.
    pub fn send(self, outcome: Result<String, String>) {
        self.send_body(outcome.map(Body::Text));
    }

    fn send_body(mut self, outcome: Outcome) {
        let outcome = outcome.map_err(|text| vlog::abridged(&text, MAX_ERROR).into_owned());
        if let Some(sender) = self.sender.take() {
            // The peer may have gone; then nobody wants the answer.
            let _ = sender.send(outcome);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Err("the command was abandoned before it was answered".into()));
        }
    }
}

/// One call of a command.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The command's name.
    pub command: &'a str,
    /// The words after it; their number is within the command's bounds.
    pub args: &'a [String],
}

impl<'a> Invocation<'a> {
    /// The `index`th word after the command, from 0.
    pub fn arg(&self, index: usize) -> Option<&'a str> {
        self.args.get(index).map(String::as_str)
    }
}

/// The command that sets the form of results.
const SET_OPTIONS: &str = "set-options";

type Handler = Rc<dyn Fn(Invocation<'_>, Reply)>;
type JsonHandler = Rc<dyn Fn(Invocation<'_>) -> Result<Value, String>>;

#[derive(Clone)]
struct Command {
    /// The words of the command, for `list-commands`; `None` for a command that it leaves out.
    usage: Option<String>,
    min_args: usize,
    max_args: usize,
    handler: Handler,
    /// Answers a peer that wants JSON; `None` for a command that only has a text.
    json: Option<JsonHandler>,
}

/// The commands of a daemon. Cheap to clone; clones share the commands, which may be added at any
/// time, also by a handler. Bound to one thread.
#[derive(Clone)]
pub struct Registry {
    commands: Rc<RefCell<BTreeMap<String, Command>>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.commands.borrow().keys()).finish()
    }
}

impl Registry {
    /// A registry with the two commands that every daemon has: `list-commands`, and `version`,
    /// which answers with `version`.
    pub fn new(version: &str) -> Registry {
        let registry = Registry { commands: Rc::default() };
        let version = version.to_owned();
        registry.add("version", "", 0, 0, move |_| Ok(version.clone()));
        // Weak, or the registry would own itself and live for ever.
        let commands = Rc::downgrade(&registry.commands);
        registry.add("list-commands", "", 0, 0, move |_| {
            let commands = commands.upgrade().ok_or("the daemon is going away")?;
            Ok(list(&commands.borrow()))
        });
        let commands = Rc::downgrade(&registry.commands);
        registry.add_json("list-commands", move |_| {
            let commands = commands.upgrade().ok_or("the daemon is going away")?;
            let commands = commands.borrow();
            let usages = commands.iter().filter_map(|(name, command)| {
                Some((name.clone(), Value::from(command.usage.clone()?)))
            });
            Ok(Value::Object(usages.collect()))
        });
        // The connection carries it out; here it has its place in the list.
        registry.add(SET_OPTIONS, "[--format text|json]", 1, 2, |_| Ok(String::new()));
        registry
    }

    /// Adds a command that answers at once, in place of any of the same name. `usage` describes
    /// its words for `list-commands`; use `usize::MAX` for "any number of words".
    pub fn add(
        &self,
        name: &str,
        usage: &str,
        min_args: usize,
        max_args: usize,
        handler: impl Fn(Invocation<'_>) -> Result<String, String> + 'static,
    ) {
        self.add_deferred(name, usage, min_args, max_args, move |call, reply| {
            reply.send(handler(call));
        });
    }

    /// Adds a command that answers through a [`Reply`], when it is ready. The handler itself must
    /// not block.
    pub fn add_deferred(
        &self,
        name: &str,
        usage: &str,
        min_args: usize,
        max_args: usize,
        handler: impl Fn(Invocation<'_>, Reply) + 'static,
    ) {
        let command = Command {
            usage: Some(usage.to_owned()),
            min_args,
            max_args,
            handler: Rc::new(handler),
            json: None,
        };
        self.commands.borrow_mut().insert(name.to_owned(), command);
    }

    /// Gives the command `name` an answer in JSON, for peers that want it. Without such a command
    /// nothing changes.
    pub fn add_json(
        &self,
        name: &str,
        handler: impl Fn(Invocation<'_>) -> Result<Value, String> + 'static,
    ) {
        if let Some(command) = self.commands.borrow_mut().get_mut(name) {
            command.json = Some(Rc::new(handler));
        }
    }

    /// Gives the command `name` an older name too, which `list-commands` leaves out. Without such a
    /// command nothing changes.
    pub fn add_alias(&self, alias: &str, name: &str) {
        let mut commands = self.commands.borrow_mut();
        if let Some(command) = commands.get(name).cloned() {
            commands.insert(alias.to_owned(), Command { usage: None, ..command });
        }
    }

    /// The names of all commands, sorted.
    pub fn names(&self) -> Vec<String> {
        self.commands.borrow().keys().cloned().collect()
    }

    /// Runs a command as if a peer had asked for it.
    pub fn dispatch(&self, name: &str, args: &[String], reply: Reply) {
        self.dispatch_in(Format::Text, name, args, reply);
    }

    fn dispatch_in(&self, format: Format, name: &str, args: &[String], reply: Reply) {
        // The borrow ends here: a handler may add commands or dispatch others.
        match self.find(name, args.len()) {
            Ok(Command { json: Some(json), .. }) if format == Format::Json => {
                reply.send_body(json(Invocation { command: name, args }).map(Body::Json));
            }
            Ok(command) => (command.handler)(Invocation { command: name, args }, reply),
            Err(error) => reply.error(error),
        }
    }

    /// [`Registry::dispatch`] for a request's parameters, which may be of any type.
    /// `format` is the connection's, and `set-options` changes it.
    pub(crate) fn dispatch_params(
        &self,
        name: &str,
        params: Vec<Value>,
        format: &mut Format,
        reply: Reply,
    ) {
        if let Err(error) = self.find(name, params.len()) {
            return reply.error(error);
        }
        let args: Option<Vec<String>> = params
            .into_iter()
            .map(|param| match param {
                Value::String(text) => Some(text),
                _ => None,
            })
            .collect();
        match args {
            Some(args) if name == SET_OPTIONS => reply.send(set_options(&args, format)),
            Some(args) => self.dispatch_in(*format, name, &args, reply),
            None => reply.error(format!("\"{name}\" command has non-string argument")),
        }
    }

    fn find(&self, name: &str, args: usize) -> Result<Command, String> {
        let commands = self.commands.borrow();
        let Some(command) = commands.get(name) else {
            return Err(format!(
                "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid \
                 commands)"
            ));
        };
        if args < command.min_args {
            Err(format!("\"{name}\" command requires at least {} arguments", command.min_args))
        } else if args > command.max_args {
            Err(format!("\"{name}\" command takes at most {} arguments", command.max_args))
        } else {
            Ok(command.clone())
        }
    }
}

/// Carries out `set-options`, by which clients of Open vSwitch 3.4 and later begin a connection:
/// `--format text|json` or `--format=...`. An option may be abbreviated.
fn set_options(args: &[String], format: &mut Format) -> Result<String, String> {
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let (option, attached) = match arg.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (arg, None),
        };
        if option.len() < 3 || !"--format".starts_with(option) {
            return Err(match option.strip_prefix('-') {
                Some(name) => {
                    let name = name.strip_prefix('-').unwrap_or(name);
                    format!("unrecognized option '{name}'")
                }
                None => format!("unexpected argument '{arg}'"),
            });
        }
        let value = attached
            .or_else(|| args.next())
            .ok_or_else(|| "option 'format' requires an argument".to_owned())?;
        *format = if value.eq_ignore_ascii_case("text") {
            Format::Text
        } else if value.eq_ignore_ascii_case("json") {
            Format::Json
        } else {
            return Err(format!("option format has invalid value {value}"));
        };
    }
    Ok(String::new())
}

fn list(commands: &BTreeMap<String, Command>) -> String {
    let mut out = String::from("The available commands are:\n");
    for (name, command) in commands {
        if let Some(usage) = &command.usage {
            out.push_str(&format!("  {name:<23} {usage}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(registry: &Registry, name: &str, args: &[&str]) -> Result<String, String> {
        let (reply, mut receiver) = Reply::channel();
        let params = args.iter().map(|a| Value::from(*a)).collect();
        registry.dispatch_params(name, params, &mut Format::Text, reply);
        let outcome = receiver.try_recv().expect("answered at once");
        outcome.map(|body| match body {
            Body::Text(text) => text,
            Body::Json(value) => panic!("JSON in place of text: {value}"),
        })
    }

    #[test]
    fn results_take_the_form_that_the_peer_has_set() {
        let registry = Registry::new("v");
        registry.add("fdb/show", "bridge", 1, 1, |_| Ok("text".to_owned()));
        registry.add("quiet", "", 0, 0, |_| Ok("text".to_owned()));
        registry.add_json("fdb/show", |call| match call.arg(0) {
            Some("br0") => Ok(serde_json::json!([{"port": 1}])),
            _ => Err("no such bridge".to_owned()),
        });
        registry.add_json("nosuch", |_| Ok(Value::Null));
        let mut format = Format::Text;
        let mut call = |name: &str, args: &[&str]| {
            let (reply, mut receiver) = Reply::channel();
            let params = args.iter().map(|a| Value::from(*a)).collect();
            registry.dispatch_params(name, params, &mut format, reply);
            receiver.try_recv().expect("answered at once")
        };
        let text = |text: &str| Ok(Body::Text(text.to_owned()));
        assert_eq!(call("fdb/show", &["br0"]), text("text"));
        assert_eq!(call("set-options", &["--format", "json"]), text(""));
        assert_eq!(call("fdb/show", &["br0"]), Ok(Body::Json(serde_json::json!([{"port": 1}]))));
        assert_eq!(call("fdb/show", &["br1"]), Err("no such bridge".to_owned()));
        assert_eq!(call("quiet", &[]), text("text"));
        assert!(call("nosuch", &[]).is_err());
        let Ok(Body::Json(commands)) = call("list-commands", &[]) else { panic!("no JSON") };
        assert_eq!(commands.get("fdb/show"), Some(&Value::from("bridge")));
        for (bad, error) in [
            (&["--format", "xml"][..], "option format has invalid value xml"),
            (&["--format"], "option 'format' requires an argument"),
            (&["--colour=red"], "unrecognized option 'colour'"),
            (&["json"], "unexpected argument 'json'"),
            (&[], "\"set-options\" command requires at least 1 arguments"),
        ] {
            assert_eq!(call("set-options", bad), Err(error.to_owned()));
        }
        assert_eq!(call("fdb/show", &["br0"]), Ok(Body::Json(serde_json::json!([{"port": 1}]))));
        assert_eq!(call("set-options", &["--fo=TEXT"]), text(""));
        assert_eq!(call("fdb/show", &["br0"]), text("text"));
    }

    #[test]
    fn texts_are_those_of_ovs() {
        let registry = Registry::new("ovs-vswitchd (Open vSwitch) 3.1.0");
        registry.add("fdb/show", "bridge", 1, 1, |call| Ok(call.arg(0).unwrap().to_owned()));
        registry.add("dpctl/ct-disable-tcp-seq-chk", "[dp]", 0, 1, |_| Ok(String::new()));
        registry.add_alias("fdb/list", "fdb/show"); // not listed
        assert_eq!(call(&registry, "version", &[]).unwrap(), "ovs-vswitchd (Open vSwitch) 3.1.0");
        assert_eq!(call(&registry, "fdb/show", &["br0"]).unwrap(), "br0");
        assert_eq!(call(&registry, "fdb/list", &["br0"]).unwrap(), "br0");
        assert_eq!(
            call(&registry, "list-commands", &[]).unwrap(),
            "The available commands are:\n\
             \x20 dpctl/ct-disable-tcp-seq-chk [dp]\n\
             \x20 fdb/show                bridge\n\
             \x20 list-commands           \n\
             \x20 set-options             [--format text|json]\n\
             \x20 version                 \n"
        );
        for (name, args, want) in [
            ("fdb/show", &[][..], "\"fdb/show\" command requires at least 1 arguments"),
            ("fdb/show", &["a", "b"], "\"fdb/show\" command takes at most 1 arguments"),
            (
                "nosuch",
                &[],
                "\"nosuch\" is not a valid command (use \"list-commands\" to see a list of valid \
                 commands)",
            ),
        ] {
            assert_eq!(call(&registry, name, args), Err(want.into()));
        }
        let (reply, mut receiver) = Reply::channel();
        registry.dispatch_params("fdb/show", vec![Value::from(3)], &mut Format::Text, reply);
        assert_eq!(
            receiver.try_recv().unwrap(),
            Err("\"fdb/show\" command has non-string argument".into())
        );
    }

    #[test]
    fn an_error_quotes_no_more_than_its_reader_can_bear() {
        let registry = Registry::new("v");
        registry.add("quote", "", 1, 1, |call| Err(format!("{}: no such port", call.args[0])));
        let whole = "x".repeat(100_000);
        let quoted = call(&registry, "quote", &[&whole]).unwrap_err();
        assert_eq!(quoted, format!("{whole}: no such port"));
        let long = "x".repeat(6_000_000);
        let unknown = call(&registry, &long, &[]).unwrap_err();
        assert!(unknown.len() < 132_000 && unknown.contains("is not a valid command"));
        let quoted = call(&registry, "quote", &[&long]).unwrap_err();
        assert!(quoted.len() < 132_000 && quoted.ends_with("x: no such port"));
        assert!(quoted.contains(" bytes ...]"));
    }

    #[test]
    fn a_forgotten_reply_is_an_error_and_handlers_may_add_commands() {
        let registry = Registry::new("v");
        registry.add_deferred("forget", "", 0, 0, |_, _| {});
        let inner = registry.clone();
        registry.add("grow", "", 0, 0, move |_| {
            inner.add("grown", "", 0, 0, |_| Ok("yes".into()));
            Ok(String::new())
        });
        assert!(call(&registry, "forget", &[]).is_err());
        call(&registry, "grow", &[]).unwrap();
        assert_eq!(call(&registry, "grown", &[]).unwrap(), "yes");
    }
}
