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

/// The way to answer one request, at once or later, from anywhere.
///
/// Dropped without an answer, it answers with an error, so that a peer never waits for a reply that
/// does not come.
#[derive(Debug)]
pub struct Reply {
    sender: Option<oneshot::Sender<Result<String, String>>>,
}

impl Reply {
    /// Makes an answer and the place where it will arrive.
    pub(crate) fn channel() -> (Reply, oneshot::Receiver<Result<String, String>>) {
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
    pub fn send(mut self, outcome: Result<String, String>) {
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

type Handler = Rc<dyn Fn(Invocation<'_>, Reply)>;

#[derive(Clone)]
struct Command {
    /// The words of the command, for `list-commands`; `None` for a command that it leaves out.
    usage: Option<String>,
    min_args: usize,
    max_args: usize,
    handler: Handler,
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
        };
        self.commands.borrow_mut().insert(name.to_owned(), command);
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
        match self.find(name, args.len()) {
            // The borrow has ended: a handler may add commands or dispatch others.
            Ok(handler) => handler(Invocation { command: name, args }, reply),
            Err(error) => reply.error(error),
        }
    }

    /// [`Registry::dispatch`] for a request's parameters, which may be of any type.
    pub(crate) fn dispatch_params(&self, name: &str, params: Vec<Value>, reply: Reply) {
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
            Some(args) => self.dispatch(name, &args, reply),
            None => reply.error(format!("\"{name}\" command has non-string argument")),
        }
    }

    fn find(&self, name: &str, args: usize) -> Result<Handler, String> {
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
            Ok(Rc::clone(&command.handler))
        }
    }
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
        registry.dispatch_params(name, params, reply);
        receiver.try_recv().expect("answered at once")
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
        registry.dispatch_params("fdb/show", vec![Value::from(3)], reply);
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
