// SPDX-License-Identifier: Apache-2.0
//! Dispatch of received messages to their handlers.

use super::origin::{Kind, Origin, VISIBLE_TABLES};
use super::reply::{Job, Reply};
use super::session::CloseCause;
use super::{ConnectionId, Connections, Session, flush, options};
use crate::switch::Switch;
use clock::Millis;
use openflow::message::{
    Body, Capabilities, ErrorMessage, FlowFormat, FragmentHandling, Message, PacketInReason,
    Protocol, Role, SwitchConfig, SwitchFeatures,
};
use openflow::{OfError, Version};

impl Connections {
    /// Carries out the complete messages of the input, as far as the peer reads the replies.
    pub(super) fn work(&mut self, id: ConnectionId, switch: &mut Switch, now: Millis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        // The frames leave the session, so that handlers can borrow messages from them.
        let mut frames = std::mem::take(&mut session.frames);
        session.rests = false;
        while let Some(session) = self.sessions.get_mut(&id) {
            if session.closing.is_some() || session.output.is_full_for_requests() {
                break;
            }
            // An unfinished request is completed before the next message is carried out.
            if let Some(job) = session.job.take() {
                let is_flush = matches!(job, Job::Flush(_));
                self.step(id, job, switch, now);
                // One step of a flush takes all the time that a connection may take at once.
                if is_flush {
                    break;
                }
                continue;
            }
            if session.monitors.is_behind() {
                self.resume_monitors(id, switch);
                if self.sessions.get(&id).is_none_or(|s| s.monitors.is_behind()) {
                    break;
                }
                continue;
            }
            match frames.next_message() {
                Ok(None) => break,
                Ok(Some(bytes)) => {
                    self.message(id, bytes, switch, now);
                    if self.sessions.get(&id).is_some_and(Session::is_flushing) {
                        break;
                    }
                }
                Err(e) => session.close(CloseCause::Protocol, e.to_string()),
            }
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.frames = frames;
        }
    }

    fn message(&mut self, id: ConnectionId, bytes: &[u8], switch: &mut Switch, now: Millis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(protocol) = session.protocol() else {
            session.negotiate(bytes, now);
            return;
        };
        session.counters.received += 1;
        let (bridge, kind) = (session.bridge, session.kind());
        switch.counters.openflow_messages += u64::from(kind != Kind::Snoop);
        let message = Message::decode(bytes, &protocol);
        session.note_message(message.as_ref().ok().map(|m| &m.body), now);
        if kind == Kind::Primary {
            self.snoop(bridge, bytes);
        }
        let message = match message {
            Ok(message) => message,
            Err(e) => {
                tracing::debug!(target: "connmgr", "sending {} error reply to {} message", e.error, e.what);
                // The sender of another version reads its own version.
                match Version::from_wire(e.version).filter(|v| *v != protocol.version) {
                    Some(version) => self.send_in(id, &e.reply(), &Protocol::new(version)),
                    None => self.send(id, &e.reply()),
                };
                return;
            }
        };
        let xid = message.xid;
        let origin = Origin { id, bridge, version: protocol.version, xid, bytes, now };
        let answer = match (kind, message.body) {
            (Kind::Snoop, Body::EchoRequest(data)) => Ok(Reply::of(Body::EchoReply(data))),
            (Kind::Snoop, _) => Ok(Reply::None), // it only listens
            (_, body) => self.handle(origin, body, switch),
        };
        match answer {
            Ok(Reply::None) => {}
            Ok(Reply::One(body)) => {
                self.send(id, &Message { xid, body: *body });
            }
            Ok(Reply::Long(job)) => self.step(id, job, switch, now),
            Err(error) => self.send_error(id, xid, error, bytes),
        }
    }

    pub(super) fn send_error(
        &mut self,
        id: ConnectionId,
        xid: u32,
        error: OfError,
        request: &[u8],
    ) {
        tracing::debug!(target: "connmgr", "sending {error} error reply (xid 0x{xid:x})");
        self.send(id, &Message { xid, body: Body::Error(ErrorMessage::about(error, request)) });
    }

    fn handle(
        &mut self,
        origin: Origin<'_>,
        mut body: Body,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let id = origin.id;
        if changes_switch(&body) && self.sessions.get(&id).is_none_or(|s| s.role == Role::Secondary)
        {
            return Err(OfError::OFPBRC_IS_SECONDARY);
        }
        let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        options::check(&body, bridge)?;
        options::fit(&mut body, bridge)?;
        match body {
            Body::EchoRequest(data) => Ok(Reply::of(Body::EchoReply(data))),
            // Replies to this side's messages, and messages without a reply.
            Body::EchoReply(_) | Body::Hello(_) | Body::Error(_) | Body::FlowAge => Ok(Reply::None),
            Body::FeaturesRequest => self.features(origin, switch),
            Body::GetConfigRequest => self.configuration(origin, switch),
            Body::SetConfig(config) => self.set_configuration(origin, &config, switch),
            Body::BarrierRequest => {
                switch.publish_and_wait();
                self.flush_removed(switch);
                Ok(Reply::of(Body::BarrierReply))
            }
            Body::RoleRequest(request) => {
                Ok(Reply::of(Body::RoleReply(self.role_request(id, &request)?)))
            }
            Body::GetAsyncRequest => match self.sessions.get(&id) {
                Some(session) => Ok(Reply::of(Body::GetAsyncReply(session.async_config))),
                None => Ok(Reply::None),
            },
            Body::SetAsync(set) => self.with_session(id, |s| s.set_async(&set)),
            Body::SetControllerId(controller) => {
                self.with_session(id, |s| s.controller_id = controller)
            }
            Body::SetPacketInFormat(format) => {
                self.with_session(id, |s| s.set_protocol(|p| p.packet_in_format = format))
            }
            Body::SetFlowFormat(format) => self.set_flow_format(origin, format),
            Body::FlowModTableId(on) => {
                self.with_session(id, |s| s.set_protocol(|p| p.flow_mod_table_id = on))
            }
            Body::FlowMod(fm) => self.flow_mod(origin, &fm, switch),
            Body::GroupMod(gm) => self.group_mod(origin, gm, switch),
            Body::MeterMod(mm) => self.meter_mod(origin, mm, switch),
            Body::PortMod(pm) => self.port_mod(origin, &pm, switch),
            Body::TableMod(tm) => self.table_mod(origin, &tm, switch),
            Body::PacketOut(po) => self.packet_out(origin, &po, switch),
            Body::BundleControl(control) => self.bundle_control(origin, &control, switch),
            Body::BundleAdd(add) => self.bundle_add(origin, &add),
            Body::MultipartRequest(request) => self.multipart(origin, request, switch),
            Body::QueueGetConfigRequest { port } => Self::queue_configuration(origin, port, switch),
            Body::FlowMonitorCancel(monitor) => {
                self.cancel_monitor(id, monitor).map(|()| Reply::None)
            }
            Body::TlvTableRequest => {
                let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
                Ok(Reply::of(Body::TlvTableReply(options::table(bridge))))
            }
            Body::TlvTableMod(wanted) => {
                options::change(&wanted, origin.bridge, switch).map(|()| Reply::None)
            }
            Body::CtFlushZone(zone) => flush::of_zone(zone, switch),
            Body::CtFlush(wanted) => flush::of_connections(&wanted, switch),
            Body::Resume(packet_in) => self.resume(origin, &packet_in, switch),
            // Messages that only a switch sends.
            Body::MultipartReply { .. } => Err(OfError::OFPBRC_BAD_STAT),
            Body::FeaturesReply(_)
            | Body::GetConfigReply(_)
            | Body::PacketIn(_)
            | Body::FlowRemoved(_)
            | Body::PortStatus(_)
            | Body::BarrierReply
            | Body::QueueGetConfigReply { .. }
            | Body::RoleReply(_)
            | Body::RoleStatus(_)
            | Body::GetAsyncReply(_)
            | Body::TableStatus(_)
            | Body::RequestForward(_)
            | Body::FlowMonitorPaused
            | Body::FlowMonitorResumed
            | Body::TlvTableReply(_) => Err(OfError::OFPBRC_BAD_TYPE),
        }
    }

    fn with_session(
        &mut self,
        id: ConnectionId,
        change: impl FnOnce(&mut Session),
    ) -> Result<Reply, OfError> {
        if let Some(session) = self.sessions.get_mut(&id) {
            change(session);
        }
        Ok(Reply::None)
    }

    fn set_flow_format(
        &mut self,
        origin: Origin<'_>,
        format: FlowFormat,
    ) -> Result<Reply, OfError> {
        // Later versions have a single flow format.
        if origin.version != Version::V10 {
            return Ok(Reply::None);
        }
        self.with_session(origin.id, |s| s.set_protocol(|p| p.flow_format = format))
    }

    fn features(&self, origin: Origin<'_>, switch: &Switch) -> Result<Reply, OfError> {
        let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        Ok(Reply::of(Body::FeaturesReply(SwitchFeatures {
            datapath_id: bridge.datapath_id,
            n_buffers: 0,
            n_tables: VISIBLE_TABLES,
            auxiliary_id: 0,
            capabilities: Capabilities::FLOW_STATS
                | Capabilities::TABLE_STATS
                | Capabilities::PORT_STATS
                | Capabilities::QUEUE_STATS
                | Capabilities::ARP_MATCH_IP
                | Capabilities::GROUP_STATS
                | Capabilities::BUNDLES,
            actions: SwitchFeatures::ALL_OF10_ACTIONS,
            ports: bridge.ports.values().map(|p| p.desc()).collect(),
        })))
    }

    fn configuration(&self, origin: Origin<'_>, switch: &Switch) -> Result<Reply, OfError> {
        let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        let session = self.sessions.get(&origin.id).ok_or(OfError::OFPBRC_EPERM)?;
        let invalid_ttl = session.async_config.primary[0] & INVALID_TTL != 0;
        Ok(Reply::of(Body::GetConfigReply(SwitchConfig {
            fragments: fragments(bridge.config.frag_handling),
            invalid_ttl_to_controller: Some(invalid_ttl),
            miss_send_len: session.miss_send_len,
        })))
    }

    fn set_configuration(
        &mut self,
        origin: Origin<'_>,
        config: &SwitchConfig,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let session = self.sessions.get_mut(&origin.id).ok_or(OfError::OFPBRC_EPERM)?;
        session.miss_send_len = config.miss_send_len;
        if let Some(on) = config.invalid_ttl_to_controller {
            // Packet-in is the first kind.
            let [packet_in, ..] = &mut session.async_config.primary;
            *packet_in = if on { *packet_in | INVALID_TTL } else { *packet_in & !INVALID_TTL };
        }
        let wanted = match config.fragments {
            FragmentHandling::Normal => 0,
            FragmentHandling::Drop => 1,
            FragmentHandling::NxMatch => 3,
            FragmentHandling::Reassemble => {
                tracing::warn!(
                    target: "ofproto",
                    "{}: a controller asks for fragments to be reassembled, which is not supported: \
                     nothing changes",
                    switch.bridge(origin.bridge).map_or("", |b| &b.name),
                );
                return Ok(Reply::None);
            }
        };
        // A secondary changes only the settings of its own connection.
        let differs =
            switch.bridge(origin.bridge).is_some_and(|b| b.config.frag_handling != wanted);
        if session.role != Role::Secondary
            && differs
            && let Some(bridge) = switch.bridge_mut(origin.bridge)
        {
            bridge.config.frag_handling = wanted;
        }
        Ok(Reply::None)
    }
}

const INVALID_TTL: u32 = 1 << PacketInReason::InvalidTtl as u8;

fn fragments(config: u16) -> FragmentHandling {
    match config {
        1 => FragmentHandling::Drop,
        2 => FragmentHandling::Reassemble,
        3 => FragmentHandling::NxMatch,
        _ => FragmentHandling::Normal,
    }
}

/// Returns true for messages that a secondary controller may not send.
fn changes_switch(body: &Body) -> bool {
    matches!(
        body,
        Body::FlowMod(_)
            | Body::GroupMod(_)
            | Body::MeterMod(_)
            | Body::PortMod(_)
            | Body::TableMod(_)
            | Body::PacketOut(_)
            | Body::BundleControl(_)
            | Body::BundleAdd(_)
            | Body::TlvTableMod(_)
            | Body::Resume(_)
            | Body::CtFlushZone(_)
            | Body::CtFlush(_)
    )
}
