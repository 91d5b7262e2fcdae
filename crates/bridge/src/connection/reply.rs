// SPDX-License-Identifier: Apache-2.0
//! Replies, short and long.

use super::flush::Flushing;
use super::{ConnectionId, Connections};
use crate::rule::Rule;
use crate::switch::Switch;
use clock::Millis;
use openflow::Action;
use openflow::message::{Body, FlowStats, Message, MultipartReply};
use std::sync::Arc;
use std::time::Duration;

/// Largest size of one step of a dump, in bytes as [`cost`] counts them: some full messages.
const STEP: usize = 256 * 1024;

/// The reply to a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// The request has no reply.
    None,
    /// One message, which may be encoded as several.
    One(Box<Body>),
    /// A reply that is written as the peer reads.
    Long(Job),
}

impl Reply {
    pub(super) fn of(body: Body) -> Reply {
        Reply::One(Box::new(body))
    }

    pub(super) fn multipart(reply: MultipartReply) -> Reply {
        Reply::of(Body::MultipartReply { more: false, reply })
    }
}

/// A request that is carried out in steps. The requests that follow it wait for its end.
#[derive(Debug)]
pub(super) enum Job {
    /// A long reply.
    Dump(FlowDump),
    /// The removal of connections from the connection tracker.
    Flush(Flushing),
}

/// The flows of a dump that are not written yet.
#[derive(Debug)]
pub(super) struct FlowDump {
    pub(super) xid: u32,
    pub(super) rules: std::vec::IntoIter<Arc<Rule>>,
    pub(super) nicira: bool,
}

impl Connections {
    /// Does the next step of `job`. A remainder becomes the session's job again.
    pub(super) fn step(&mut self, id: ConnectionId, job: Job, switch: &Switch, now: Millis) {
        match job {
            Job::Dump(dump) => self.step_dump(id, dump, now),
            Job::Flush(flushing) => {
                let rest = flushing.step(switch);
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.job = rest.map(Job::Flush);
                    session.rests = true;
                    // This side does not read meanwhile, and the peer need not answer.
                    session.progressed = true;
                }
            }
        }
    }

    /// Writes the next piece of a dump.
    fn step_dump(&mut self, id: ConnectionId, mut job: FlowDump, now: Millis) {
        let mut flows: Vec<FlowStats> = Vec::new();
        let mut bytes = 0;
        while bytes < STEP
            && let Some(rule) = job.rules.next()
        {
            bytes += cost(&rule);
            flows.push(flow_stats(&rule, now));
        }
        let more = job.rules.len() > 0;
        let (xid, nicira) = (job.xid, job.nicira);
        if more && let Some(session) = self.sessions.get_mut(&id) {
            session.job = Some(Job::Dump(job));
        }
        if !self.send(id, &part(xid, nicira, more, &flows)) {
            self.one_by_one(id, xid, nicira, &flows);
            self.send(id, &part(xid, nicira, more, &[]));
        }
    }

    /// Writes each flow in a message of its own, where several do not fit together. A flow that is
    /// too long for any message is left out and logged. Its flow mod was almost too long, too.
    fn one_by_one(&mut self, id: ConnectionId, xid: u32, nicira: bool, flows: &[FlowStats]) {
        for flow in flows {
            if !self.send(id, &part(xid, nicira, true, std::slice::from_ref(flow))) {
                tracing::warn!(
                    target: "ofproto",
                    "a flow of table {} with priority {} and cookie {:#x} is left out of a dump: \
                     it does not fit into a message",
                    flow.table_id, flow.priority, flow.cookie,
                );
            }
        }
    }
}

/// Returns one part of a dump with these flows.
fn part(xid: u32, nicira: bool, more: bool, flows: &[FlowStats]) -> Message {
    let reply = MultipartReply::Flow { flows: flows.to_vec(), nicira };
    Message { xid, body: Body::MultipartReply { more, reply } }
}

/// Estimates the number of bytes that a flow takes in a message.
fn cost(rule: &Rule) -> usize {
    let one = |action: &Action| match action {
        Action::Note(bytes) => bytes.len() + 16,
        Action::Learn(_) | Action::Bundle(_) => 512,
        Action::Clone(_) | Action::WriteActions(_) => 4096,
        _ => 24,
    };
    128 + rule.actions.iter().map(one).sum::<usize>()
}

/// Returns a rule in the form of flow statistics.
pub(super) fn flow_stats(rule: &Rule, now: Millis) -> FlowStats {
    let (packet_count, byte_count) = rule.stats.counts();
    FlowStats {
        table_id: rule.table,
        matching: rule.matching.expand(),
        priority: rule.openflow_priority(),
        cookie: rule.cookie,
        duration: Duration::from_millis(now.since(rule.created)),
        idle_timeout: rule.timeouts.idle(),
        hard_timeout: rule.timeouts.hard(),
        idle_age: Some(seconds(now.since(rule.stats.used()))),
        hard_age: Some(seconds(now.since(rule.modified.get()))),
        importance: rule.importance,
        flags: rule.flags,
        packet_count,
        byte_count,
        actions: Arc::clone(&rule.actions),
    }
}

fn seconds(ms: u64) -> u16 {
    u16::try_from(ms / 1000).unwrap_or(u16::MAX)
}
