// SPDX-License-Identifier: Apache-2.0
//! The state of a switch that is visible at the end of a case.

use super::{BRIDGES, Player, Result, Seen};
use crate::shown::{requests, shown};
use openflow::Version;
use openflow::message::Body;
use unixctl::client::CallError;

/// Commands whose answers for each bridge are compared.
const COMMANDS: [&str; 4] = ["bridge/dump-flows", "fdb/show", "fdb/stats-show", "mdb/show"];

impl Player {
    /// All of it.
    pub(super) fn summary(&mut self, seen: &mut Vec<Seen>) -> Result<()> {
        self.process("br0")?;
        self.command("revalidator/purge")?;
        let of = "dpctl/dump-conntrack".to_owned();
        seen.push(Seen { text: self.asked(&of, &[])?, of });
        for bridge in BRIDGES {
            for command in COMMANDS {
                self.control.send(command, &[bridge])?;
            }
            for command in COMMANDS {
                let text = match self.control.receive() {
                    Ok(text) | Err(CallError::Refused(text)) => text,
                    Err(e) => return Err(e.into()),
                };
                let text = self.compared(command, &text);
                seen.push(Seen { of: format!("{command} {bridge}"), text });
            }
            for version in [Version::V10, Version::V13, Version::V15] {
                self.counted(bridge, version, "", seen)?;
            }
        }
        self.unasked(seen)
    }

    /// A bridge's answers to a controller of one version about its contents and counters. Names
    /// start with `prefix`.
    pub(super) fn counted(
        &mut self,
        bridge: &'static str,
        version: Version,
        prefix: &str,
        seen: &mut Vec<Seen>,
    ) -> Result<()> {
        let before = self.ports.get(bridge).cloned();
        let Some(controller) = self.controller(bridge, version)? else { return Ok(()) };
        let (names, requests): (Vec<_>, Vec<_>) = requests(version)
            .into_iter()
            .map(|(name, request)| (name, Body::MultipartRequest(request)))
            .unzip();
        for (name, answers) in names.into_iter().zip(controller.requests(requests)?) {
            let mut lines: Vec<String> =
                answers.iter().flat_map(|a| shown(a, version, before.as_ref())).collect();
            lines.sort();
            let of = format!("{prefix}{name} of {bridge} by {version}");
            seen.push(Seen { of, text: lines.join("\n") });
        }
        Ok(())
    }

    /// The asynchronous messages of controllers, after those that `seen` has. Open vSwitch reports
    /// a removed flow when all its threads have been idle once.
    pub fn unasked(&mut self, seen: &mut Vec<Seen>) -> Result<()> {
        for ((bridge, _), controller) in &mut self.controllers {
            let version = controller.version();
            let of = format!("sent to controllers of {bridge} by {version}");
            let new = controller.unasked()?;
            let at = seen.iter().position(|s| s.of == of).unwrap_or_else(|| {
                seen.push(Seen { of, text: String::new() });
                seen.len() - 1
            });
            let Some(place) = seen.get_mut(at) else { continue };
            let mut lines: Vec<String> = place.text.lines().map(str::to_owned).collect();
            lines.extend(new.iter().flat_map(|m| shown(m, version, None)));
            lines.sort();
            place.text = lines.join("\n");
        }
        Ok(())
    }
}
