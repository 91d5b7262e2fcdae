// SPDX-License-Identifier: Apache-2.0
//! The table of tunnel options of a bridge (NXT_TLV_TABLE_*), and the messages that name options.

use crate::bridge::Bridge;
use crate::snapshot::BridgeIndex;
use crate::switch::Switch;
use flow::tun_metadata::Wide;
use flow::{Field, Match, TlvError, TlvMapping, TlvTable};
use openflow::OfError;
use openflow::action::options;
use openflow::message::{
    Body, MultipartRequest, TlvMap, TlvTableCommand, TlvTableMod, TlvTableReply,
};
use std::sync::Arc;

/// Returns the reply to NXT_TLV_TABLE_REQUEST.
pub(super) fn table(bridge: &Bridge) -> TlvTableReply {
    let mapping = |(index, m): (usize, TlvMapping)| TlvMap {
        class: m.class,
        kind: m.kind,
        len: m.bytes,
        index: index as u16, // below 64
    };
    TlvTableReply {
        max_option_space: flow::OPTIONS_BYTES as u32,
        max_fields: flow::tun_metadata::FIELDS as u16,
        mappings: bridge.tlv_table.iter().map(mapping).collect(),
    }
}

/// Changes the table of a bridge: all of the change, or nothing.
///
/// # Errors
///
/// NXTTMFC_* for mappings that cannot be added, and for those that a flow or a group uses.
pub(super) fn change(
    wanted: &TlvTableMod,
    bridge: BridgeIndex,
    switch: &mut Switch,
) -> Result<(), OfError> {
    let held = switch.bridge(bridge).ok_or(OfError::OFPBRC_EPERM)?;
    let mut table = TlvTable::clone(&held.tlv_table);
    let indices = || wanted.mappings.iter().map(|m| usize::from(m.index));
    match wanted.command {
        TlvTableCommand::Add => {
            for TlvMap { class, kind, len, index } in &wanted.mappings {
                let mapping = TlvMapping { class: *class, kind: *kind, bytes: *len };
                table.add(usize::from(*index), mapping).map_err(error)?;
            }
        }
        TlvTableCommand::Delete => {
            may_remove(indices().fold(0, |bits, n| bits | 1 << (n % 64)), held)?;
            indices().for_each(|n| table.remove(n));
        }
        TlvTableCommand::Clear => {
            may_remove(u64::MAX, held)?;
            table.clear();
        }
    }
    if table.iter().ne(held.tlv_table.iter())
        && let Some(bridge) = switch.bridge_mut(bridge)
    {
        bridge.tlv_table = Arc::new(table);
    }
    Ok(())
}

fn error(error: TlvError) -> OfError {
    match error {
        TlvError::TableFull => OfError::NXTTMFC_TABLE_FULL,
        TlvError::AlreadyMapped(_) => OfError::NXTTMFC_ALREADY_MAPPED,
        TlvError::Duplicate { .. } => OfError::NXTTMFC_DUP_ENTRY,
        TlvError::Invalid => OfError::NXTTMFC_BAD_FIELD_IDX, // the decoder has checked the length
    }
}

/// Checks that no flow and no group uses one of the fields whose bits are in `fields`.
fn may_remove(fields: u64, bridge: &Bridge) -> Result<(), OfError> {
    let fields = fields & bridge.tlv_table.fields();
    if fields == 0 {
        return Ok(());
    }
    let mut rules = bridge.pipeline.tables().flat_map(|(_, table)| table.rules().iter());
    let mut buckets = bridge.pipeline.groups().values().flat_map(|group| &group.buckets);
    let is_used = rules.any(|rule| {
        let matched = rule.matching.expand().mask().0.tunnel.present.get();
        (matched | options(&rule.actions)) & fields != 0
    }) || buckets.any(|bucket| options(&bucket.actions) & fields != 0);
    if is_used { Err(OfError::NXTTMFC_INVALID_TLV_DEL) } else { Ok(()) }
}

/// Gives the matches of a message the lengths of the bridge's options. The decoder does not have the
/// bridge's table: where another bridge has a longer option for a field, it makes more bits exact.
///
/// # Errors
///
/// NXFMFC_INVALID_TLV_FIELD for a value that is longer than the option.
pub(super) fn fit(body: &mut Body, bridge: &Bridge) -> Result<(), OfError> {
    match body {
        Body::FlowMod(fm) => fit_match(&mut fm.matching, bridge),
        Body::MultipartRequest(MultipartRequest::Flow(request))
        | Body::MultipartRequest(MultipartRequest::Aggregate(request)) => {
            fit_match(&mut request.matching, bridge)
        }
        Body::BundleAdd(add) => fit(&mut add.message.body, bridge),
        _ => Ok(()),
    }
}

fn fit_match(matching: &mut Match, bridge: &Bridge) -> Result<(), OfError> {
    let matched = matching.mask().0.tunnel.present.get();
    if matched == 0 {
        return Ok(());
    }
    for (n, mapping) in bridge.tlv_table.iter().filter(|(n, _)| matched >> n & 1 != 0) {
        let Some(field) = Field::of_option(n) else { continue };
        let own = Wide::ones(mapping.bytes.into());
        let (value, mask) = (matching.key().tunnel.option(n), matching.mask().0.tunnel.option(n));
        if !value.minus(&own).is_empty() {
            return Err(OfError::NXFMFC_INVALID_TLV_FIELD);
        }
        if matching.key().tunnel.has_option(n) {
            matching.set_wide(field, &value, &mask.and(&own));
        }
    }
    Ok(())
}

/// Checks that the fields of options that a message names are mapped.
///
/// # Errors
///
/// NXFMFC_INVALID_TLV_FIELD for a field that is not.
pub(super) fn check(body: &Body, bridge: &Bridge) -> Result<(), OfError> {
    let of_match = |m: &Match| m.mask().0.tunnel.present.get();
    let named = match body {
        Body::FlowMod(fm) => of_match(&fm.matching) | options(&fm.actions),
        Body::PacketOut(po) => of_match(&po.metadata) | options(&po.actions),
        Body::GroupMod(gm) => gm.buckets.iter().fold(0, |bits, b| bits | options(&b.actions)),
        Body::MultipartRequest(MultipartRequest::Flow(request))
        | Body::MultipartRequest(MultipartRequest::Aggregate(request)) => {
            of_match(&request.matching)
        }
        Body::BundleAdd(add) => return check(&add.message.body, bridge),
        _ => 0,
    };
    if named == 0 || named & !bridge.tlv_table.fields() == 0 {
        Ok(())
    } else {
        Err(OfError::NXFMFC_INVALID_TLV_FIELD)
    }
}
