// SPDX-License-Identifier: Apache-2.0
//! Bundles: changes that happen together or not at all (OpenFlow 1.5 section 6.3.9 and, for 1.3,
//! ONF extension 230).
//!
//! A bundle keeps its messages encoded, as they were received, because a decoded flow mod is ten
//! times as large. The peer waits for the commit, so most flow mods that add a rule are kept in
//! prepared form, too: they are decoded once, while the peer sends the next ones. The commit
//! decodes the other messages again. It changes the bridge's tables and keeps a clone of the old
//! ones, which shares all unchanged parts. On an error the clone replaces the tables. Packets,
//! monitors and other controllers see the changes only after all messages have succeeded.

use super::change::{check_flow_mod, check_packet_out, check_port_mod, translate_packet_out};
use super::monitor::Cause;
use super::origin::Origin;
use super::reply::Reply;
use super::{ConnectionId, Connections};
use crate::pipeline::{Change, PreparedAdd};
use crate::switch::{Switch, TranslatedOut};
use clock::Millis;
use hashbrown::HashMap;
use openflow::OfError;
use openflow::message::{
    Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags, ForwardedChange, GroupMod,
    Message, PortMod, Protocol, RequestForwardReason,
};

/// Milliseconds without use after which a bundle is discarded, unless configured.
pub(super) const IDLE_TIMEOUT_MS: u64 = 10_000;
/// Most open bundles of one connection.
const MAX_BUNDLES: usize = 128;
/// Most bytes in all bundles of one connection.
const MAX_BYTES: usize = 512 << 20;
/// Most bytes in the bundles of all connections.
const MAX_BYTES_OF_ALL: usize = 1 << 30;
/// Bytes of an encoded message above which it is not kept in prepared form.
const MAX_SIZE_TO_PREPARE: usize = 256;
/// Most bytes that the prepared form of such a message takes: decoded actions are up to eight times
/// as large as encoded ones. Prepared forms may take as much memory as all messages. The commit
/// decodes the messages for which there is no room.
const PREPARED_SIZE: usize = 8 * MAX_SIZE_TO_PREPARE;

/// A bundle that is not committed yet.
#[derive(Debug)]
pub(super) struct Bundle {
    flags: BundleFlags,
    closed: bool,
    /// OFPT_BUNDLE_ADD_MESSAGE messages, concatenated.
    messages: Vec<u8>,
    /// Some of these messages in prepared form, in their order, each with its offset in `messages`.
    prepared: Vec<(usize, PreparedAdd)>,
    /// Time at which it was opened or last extended.
    pub(super) touched: Millis,
    /// The message that opened it, truncated to 64 bytes, for errors.
    opened_by: Vec<u8>,
    opened_xid: u32,
}

impl Bundle {
    fn new(flags: BundleFlags, origin: Origin<'_>) -> Bundle {
        Bundle {
            flags,
            closed: false,
            messages: Vec::new(),
            prepared: Vec::new(),
            touched: origin.now,
            opened_by: origin.bytes.get(..64).unwrap_or(origin.bytes).to_vec(),
            opened_xid: origin.xid,
        }
    }

    /// Returns the prepared form of the message of `origin`, if it has one and is small enough.
    fn prepare(&self, origin: Origin<'_>, body: &Body) -> Option<PreparedAdd> {
        match body {
            Body::FlowMod(fm) if origin.bytes.len() <= MAX_SIZE_TO_PREPARE => {
                PreparedAdd::new(fm, self.prepared.last().map(|(_, last)| last))
            }
            _ => None,
        }
    }

    /// Appends the message of `origin`, and its prepared form.
    fn push(&mut self, origin: Origin<'_>, prepared: Option<PreparedAdd>) {
        self.prepared.extend(prepared.map(|add| (self.messages.len(), add)));
        self.messages.extend_from_slice(origin.bytes);
        self.touched = origin.now;
    }
}

/// Work that remains after every message of a bundle has succeeded.
#[derive(Default)]
struct DeferredWork {
    causes: Vec<Cause>,
    groups: Vec<(u32, GroupMod)>,
    ports: Vec<PortMod>,
    packets: Vec<TranslatedOut>,
}

impl DeferredWork {
    /// Adds changes that the message with `xid` made, for monitors and controllers.
    fn report(&mut self, changes: Vec<Change>, xid: u32) {
        self.causes.extend(changes.into_iter().map(|change| (change, xid)));
    }
}

/// A message of a bundle that failed.
struct Failed {
    error: OfError,
    xid: u32,
    raw: Vec<u8>,
}

impl Connections {
    pub(super) fn bundle_control(
        &mut self,
        origin: Origin<'_>,
        control: &BundleControl,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let (id, flags) = (control.bundle_id, control.flags);
        let bundles =
            &mut self.sessions.get_mut(&origin.id).ok_or(OfError::OFPBFC_UNKNOWN)?.bundles;
        let kind = match control.kind {
            BundleControlKind::OpenRequest => {
                if bundles.remove(&id).is_some() {
                    return Err(OfError::OFPBFC_BAD_ID); // and the one that was open is gone
                }
                if bundles.len() >= MAX_BUNDLES {
                    return Err(OfError::OFPBFC_OUT_OF_BUNDLES);
                }
                bundles.insert(id, Bundle::new(flags, origin));
                BundleControlKind::OpenReply
            }
            BundleControlKind::CloseRequest => {
                let bundle = bundles.get_mut(&id).ok_or(OfError::OFPBFC_BAD_ID)?;
                let error = if bundle.closed {
                    Some(OfError::OFPBFC_BUNDLE_CLOSED)
                } else {
                    (bundle.flags != flags).then_some(OfError::OFPBFC_BAD_FLAGS)
                };
                bundle.closed = true;
                if let Some(error) = error {
                    bundles.remove(&id);
                    return Err(error);
                }
                BundleControlKind::CloseReply
            }
            BundleControlKind::CommitRequest => {
                // The bundle is removed whether the commit succeeds or fails.
                let bundle = bundles.remove(&id).ok_or(OfError::OFPBFC_BAD_ID)?;
                if bundle.flags != flags {
                    return Err(OfError::OFPBFC_BAD_FLAGS);
                }
                self.commit(origin, bundle, switch)?;
                BundleControlKind::CommitReply
            }
            BundleControlKind::DiscardRequest => {
                bundles.remove(&id).ok_or(OfError::OFPBFC_BAD_ID)?;
                BundleControlKind::DiscardReply
            }
            BundleControlKind::OpenReply
            | BundleControlKind::CloseReply
            | BundleControlKind::CommitReply
            | BundleControlKind::DiscardReply => return Err(OfError::OFPBFC_BAD_TYPE),
        };
        let reply = BundleControl { bundle_id: id, kind, flags: BundleFlags::empty() };
        Ok(Reply::of(Body::BundleControl(reply)))
    }

    /// Adds a message to a bundle, and opens the bundle when it does not exist. A flow mod that can
    /// never succeed is refused at once.
    pub(super) fn bundle_add(
        &mut self,
        origin: Origin<'_>,
        add: &BundleAdd,
    ) -> Result<Reply, OfError> {
        match &add.message.body {
            Body::FlowMod(fm) => check_flow_mod(fm, origin.version)?,
            // The commit checks these messages, and fails as a whole when one of them fails.
            Body::GroupMod(_) | Body::PortMod(_) => {}
            Body::PacketOut(po) if po.buffer_id.is_some() => {
                return Err(OfError::OFPBRC_BUFFER_UNKNOWN);
            }
            Body::PacketOut(_) => {}
            _ => return Err(OfError::OFPBFC_MSG_UNSUP),
        }
        let memory = self.bundle_memory.unwrap_or(MAX_BYTES_OF_ALL);
        let of_all: usize = self.sessions.values().map(|s| held(&s.bundles)).sum();
        let room = memory.saturating_sub(of_all);
        let all = self.sessions.values().flat_map(|s| s.bundles.values());
        let prepared: usize = all.map(|b| b.prepared.len()).sum();
        let may_prepare = prepared < memory / PREPARED_SIZE;
        let bundles =
            &mut self.sessions.get_mut(&origin.id).ok_or(OfError::OFPBFC_UNKNOWN)?.bundles;
        let room = room.min(MAX_BYTES.saturating_sub(held(bundles)));
        if !bundles.contains_key(&add.bundle_id) && bundles.len() >= MAX_BUNDLES {
            return Err(OfError::OFPBFC_OUT_OF_BUNDLES);
        }
        let bundle = bundles.entry(add.bundle_id).or_insert_with(|| Bundle::new(add.flags, origin));
        let error = if bundle.closed {
            Some(OfError::OFPBFC_BUNDLE_CLOSED)
        } else if bundle.flags != add.flags {
            Some(OfError::OFPBFC_BAD_FLAGS)
        } else if origin.bytes.len() > room {
            Some(OfError::OFPBFC_MSG_TOO_MANY)
        } else {
            None
        };
        if let Some(error) = error {
            bundles.remove(&add.bundle_id);
            return Err(error);
        }
        let prepared = if may_prepare { bundle.prepare(origin, &add.message.body) } else { None };
        bundle.push(origin, prepared);
        Ok(Reply::None)
    }

    /// Carries out a bundle: all of it or, on an error, nothing. The failed message gets an error
    /// of its own.
    fn commit(
        &mut self,
        origin: Origin<'_>,
        bundle: Bundle,
        switch: &mut Switch,
    ) -> Result<(), OfError> {
        let protocol = self
            .sessions
            .get(&origin.id)
            .and_then(super::Session::protocol)
            .ok_or(OfError::OFPBFC_UNKNOWN)?;
        let saved = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?.pipeline.clone();
        let deferred = match apply(origin, bundle, &protocol, switch) {
            Ok(deferred) => deferred,
            Err(failed) => {
                if let Some(bridge) = switch.bridge_rules_mut(origin.bridge) {
                    bridge.pipeline = saved;
                }
                self.send_error(origin.id, failed.xid, failed.error, &failed.raw);
                return Err(OfError::OFPBFC_MSG_FAILED);
            }
        };
        self.changed(origin.bridge, &deferred.causes, Some(origin.id), switch, origin.now);
        for (xid, gm) in deferred.groups {
            self.forward(origin, RequestForwardReason::GroupMod, xid, || {
                ForwardedChange::Group(gm)
            });
        }
        for pm in &deferred.ports {
            self.modify_port(pm, origin, switch);
        }
        switch.publish_and_wait();
        for packet in deferred.packets {
            match switch.send_out(packet) {
                Ok(learned) => self.learned(learned, switch, origin.now),
                // The dry run succeeded, but earlier packets have learned flows since.
                Err(error) => {
                    tracing::debug!(target: "ofproto", "packet-out of a bundle was not sent ({error})");
                }
            }
        }
        self.flush_removed(switch);
        Ok(())
    }

    /// Discards bundles that were not used within the timeout, and sends their owner an error.
    pub(super) fn expire_bundles(&mut self, id: ConnectionId, now: Millis) {
        let timeout = self.bundle_timeout();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let old: Vec<u32> = session
            .bundles
            .iter()
            .filter(|(_, b)| now.since(b.touched) >= timeout)
            .map(|(id, _)| *id)
            .collect();
        for bundle in old {
            let Some(bundle) = self.sessions.get_mut(&id).and_then(|s| s.bundles.remove(&bundle))
            else {
                continue;
            };
            self.send_error(id, bundle.opened_xid, OfError::OFPBFC_TIMEOUT, &bundle.opened_by);
        }
    }
}

/// Returns the number of bytes that bundles hold.
fn held(bundles: &HashMap<u32, Bundle>) -> usize {
    bundles.values().map(|b| b.messages.len()).sum()
}

/// Applies the messages to tables and groups, up to the first failure.
fn apply(
    origin: Origin<'_>,
    bundle: Bundle,
    protocol: &Protocol,
    switch: &mut Switch,
) -> Result<DeferredWork, Failed> {
    let mut deferred = DeferredWork::default();
    let mut prepared = bundle.prepared.into_iter().peekable();
    let mut offset = 0;
    for bytes in openflow::frame::split(&bundle.messages) {
        let ready = prepared.next_if(|(of, _)| *of == offset);
        offset += bytes.len();
        if let Some((_, add)) = ready {
            match switch.add_prepared(origin.bridge, add) {
                Ok(changes) => deferred.report(changes, openflow::frame::xid(bytes)),
                Err(error) => return Err(failed(bytes, protocol, error)),
            }
            continue;
        }
        let add = decode(bytes, protocol)?;
        let BundleAdd { message, raw, .. } = *add;
        let xid = message.xid;
        apply_message(origin, message, &mut deferred, switch).map_err(|error| Failed {
            error,
            xid,
            raw,
        })?;
    }
    Ok(deferred)
}

/// Decodes a message of a bundle again. It decoded when it was added. After a change of the flow
/// format it may not decode.
fn decode(bytes: &[u8], protocol: &Protocol) -> Result<Box<BundleAdd>, Failed> {
    match Message::decode(bytes, protocol) {
        Ok(Message { body: Body::BundleAdd(add), .. }) => Ok(add),
        Ok(Message { xid, .. }) => {
            Err(Failed { error: OfError::OFPBFC_MSG_UNSUP, xid, raw: bytes.to_vec() })
        }
        Err(e) => Err(Failed { error: e.error, xid: e.xid, raw: e.data }),
    }
}

/// Returns the failure of a message that was prepared.
fn failed(bytes: &[u8], protocol: &Protocol, error: OfError) -> Failed {
    match decode(bytes, protocol) {
        Ok(add) => Failed { error, xid: add.message.xid, raw: add.raw },
        Err(undecoded) => Failed { error, ..undecoded },
    }
}

/// Carries out the part of a message that can be undone. A packet leaves after all changes, by the
/// tables as the messages before it have left them.
fn apply_message(
    origin: Origin<'_>,
    message: Message,
    deferred: &mut DeferredWork,
    switch: &mut Switch,
) -> Result<(), OfError> {
    let xid = message.xid;
    let changes = match message.body {
        Body::FlowMod(fm) => switch.flow_mod(origin.bridge, &fm)?,
        Body::GroupMod(gm) => {
            let bridge = switch.bridge_rules_mut(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
            let changes = bridge.pipeline.group_mod(&gm, origin.now)?;
            deferred.groups.push((xid, gm));
            changes
        }
        Body::PortMod(pm) => {
            check_port_mod(&pm, switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?)?;
            deferred.ports.push(pm);
            Vec::new()
        }
        Body::PacketOut(po) => {
            check_packet_out(
                &po,
                switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?,
                origin.version,
            )?;
            let then = switch.draft();
            deferred.packets.push(translate_packet_out(&po, origin, &then, switch)?);
            Vec::new()
        }
        _ => return Err(OfError::OFPBFC_MSG_UNSUP),
    };
    deferred.report(changes, xid);
    Ok(())
}
