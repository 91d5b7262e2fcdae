// SPDX-License-Identifier: Apache-2.0
//! The bridges on which a case is played: new ones, or those of the previous case, emptied.
//!
//! Counters of ports and tables cannot be cleared, so they are compared before the case: they are
//! equal after the case, too, if the case counts the same.

use super::{BRIDGES, Bridges, Broken, PATIENCE, Player, Result, Seen, VSCTL};
use crate::case::{Case, Megaflows};
use crate::controller::Controller;
use crate::database;
use crate::ground::Ground;
use crate::setting::Setting;
use crate::shown::{port_counts, requests};
use openflow::message::{
    Body, FlowFlags, FlowMod, FlowModCommand, GROUP_ALL, GroupCommand, GroupKind, GroupMod,
    GroupProperties, Message, MultipartReply, MultipartRequest, TABLE_ALL, TlvTableCommand,
    TlvTableMod, bucket,
};
use openflow::{PortNo, Version};
use std::fmt::Write;
use std::time::Instant;
use unixctl::client::CallError;

impl Player {
    /// Bridges as the case's first steps say.
    pub(super) fn begin(
        &mut self,
        case: &Case,
        bridges: Bridges,
        seen: &mut Vec<Seen>,
    ) -> Result<()> {
        let start = Instant::now();
        // Without installed megaflows a packet costs no scan of all of them.
        let limit = match case.megaflows {
            Megaflows::None => 0,
            Megaflows::Purged | Megaflows::Live => 10_000,
        };
        let global = format!(
            "set open_vswitch . other_config:max-idle=1000000 other_config:flow-limit={limit}"
        );
        let mut line = self.wire.bridge();
        for step in &case.steps {
            let Some(arguments) = step.making() else { break };
            let _ = write!(line, " -- {}", self.wire.arguments(arguments));
        }
        let setting = Setting::parse(&format!("{global} -- {line}"));
        // Whatever goes wrong from here on, they are not to be kept.
        let kept = self.kept.take();
        if bridges == Bridges::Kept && kept.as_ref() == Some(&setting.shape) {
            self.empty(seen)?;
            database::apply(&self.switch.sandbox().file("db.sock"), &setting)?;
            self.profile.add("emptying bridges", start);
        } else {
            self.make(&global, &line, seen)?;
            self.profile.add("making bridges", start);
        }
        self.wire.begin(&mut self.control, &line)?;
        self.control.call("upcall/set-flow-limit", &[limit.to_string()])?;
        self.command("dpctl/flush-conntrack")?;
        self.count_ports()?;
        // Late messages go to the controllers that are connected. After the answer the switch knows
        // which connections of the previous case are gone, and the treatment of a miss depends on
        // that.
        for bridge in BRIDGES {
            self.process(bridge)?;
        }
        self.kept = Some(setting.shape);
        Ok(())
    }

    /// Takes the bridges away, and makes others.
    fn make(&mut self, global: &str, line: &str, seen: &mut Vec<Seen>) -> Result<()> {
        self.controllers.clear();
        self.wire.forget();
        let gone = BRIDGES.map(|b| format!("--if-exists del-br {b}")).join(" -- ");
        let gone = format!("{VSCTL} {gone} -- clear open_vswitch . other_config -- {global}");
        let text = [gone, format!("{VSCTL} {line}")].map(|line| self.switch.sh(&line).text());
        seen.push(Seen { of: "ovs-vsctl".into(), text: text.concat() });
        Ok(())
    }

    /// Removes from the bridges everything that cases put there, and checks that it is gone.
    fn empty(&mut self, seen: &mut Vec<Seen>) -> Result<()> {
        for bridge in BRIDGES {
            if self.controller(bridge, Version::V13)?.is_none() {
                continue;
            }
            self.delete_flows(bridge)?;
            for command in ["fdb/flush", "fdb/stats-clear", "mdb/flush", "fdb/show"] {
                self.control.send(command, &[bridge])?;
            }
            let mut text = String::new();
            for _ in 0..4 {
                text = match self.control.receive() {
                    Ok(text) | Err(CallError::Refused(text)) => text,
                    Err(e) => return Err(e.into()),
                };
            }
            if text.lines().count() != 1 {
                return Err(Broken(format!("addresses of {bridge} are not gone:\n{text}")));
            }
            self.counted(bridge, Version::V13, "before: ", seen)?;
            let left = |s: &&Seen| {
                let is_empty =
                    ["flows", "group statistics"].map(|n| format!("before: {n} of {bridge}"));
                is_empty.iter().any(|of| s.of.starts_with(of)) && !s.text.is_empty()
            };
            if let Some(left) = seen.iter().find(left) {
                return Err(Broken(format!("not gone: {}:\n{}", left.of, left.text)));
            }
        }
        self.command("revalidator/purge")?;
        // Messages about them must not reach the next case.
        for (_, controller) in std::mem::take(&mut self.controllers) {
            controller.end()?;
        }
        let text = self.taken();
        seen.push(Seen { of: "between two cases".to_owned(), text });
        Ok(())
    }

    /// Deletes all flows and groups of a bridge. Open vSwitch reports removed flows late, so this
    /// waits for the reports.
    fn delete_flows(&mut self, bridge: &'static str) -> Result<()> {
        let Some(controller) = self.controller(bridge, Version::V13)? else { return Ok(()) };
        controller.unasked()?;
        let told = to_be_told(controller)?;
        let flows = FlowMod {
            command: FlowModCommand::Delete,
            table_id: TABLE_ALL,
            ..FlowMod::add(0, flow::Match::ANY, &[])
        };
        let groups = GroupMod {
            command: GroupCommand::Delete,
            kind: GroupKind::All,
            group_id: GROUP_ALL,
            command_bucket_id: bucket::ALL,
            buckets: Vec::new(),
            properties: GroupProperties::default(),
        };
        let refused =
            controller.requests(vec![Body::FlowMod(Box::new(flows)), Body::GroupMod(groups)])?;
        if refused.iter().any(|answers| !answers.is_empty()) {
            return Err(Broken(format!("flows and groups cannot be deleted: {refused:?}")));
        }
        controller.await_told(told)?;
        // While a deleted flow is still in use in Open vSwitch, its options are.
        let start = Instant::now();
        let clear = TlvTableMod { command: TlvTableCommand::Clear, mappings: Vec::new() };
        while !controller.request(Body::TlvTableMod(clear.clone()))?.is_empty() {
            if start.elapsed() > PATIENCE {
                return Err(Broken(format!("options of {bridge} cannot be deleted")));
            }
        }
        Ok(())
    }

    /// The number of flows of each bridge whose removal will be reported to controllers.
    pub(super) fn flows_to_tell_of(&mut self) -> Result<Vec<(&'static str, usize)>> {
        let mut out = Vec::new();
        for bridge in BRIDGES {
            if let Some(controller) = self.controller(bridge, Version::V13)? {
                out.push((bridge, to_be_told(controller)?));
            }
        }
        Ok(out)
    }

    /// Notes what devices have counted so far.
    fn count_ports(&mut self) -> Result<()> {
        self.ports.clear();
        for bridge in BRIDGES {
            if self.ground == Ground::Dummies {
                break;
            }
            if let Some(controller) = self.controller(bridge, Version::V13)? {
                let all = Body::MultipartRequest(MultipartRequest::Port(PortNo::NONE));
                let counts = port_counts(&controller.request(all)?, Version::V13);
                self.ports.insert(bridge, counts);
            }
        }
        Ok(())
    }
}

fn to_be_told(controller: &mut Controller) -> Result<usize> {
    let all = requests(Version::V13).into_iter().find(|(name, _)| *name == "flows");
    let (_, all) = all.ok_or_else(|| Broken("nobody asks for flows".to_owned()))?;
    let replies = controller.request(Body::MultipartRequest(all))?;
    let mut told = 0;
    for reply in replies {
        // An unreadable message is compared as raw bytes, and nothing waits for it.
        let message = Message::decode(&reply, &crate::case::protocol(Version::V13));
        if let Ok(Body::MultipartReply { reply: MultipartReply::Flow { flows, .. }, .. }) =
            message.map(|m| m.body)
        {
            told += flows.iter().filter(|f| f.flags.contains(FlowFlags::SEND_FLOW_REM)).count();
        }
    }
    Ok(told)
}
