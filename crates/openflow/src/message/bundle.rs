// SPDX-License-Identifier: Apache-2.0
//! Bundles: changes that happen together (1.4+, and the ONF extension for 1.3).

use super::{GroupMod, Message, MeterMod};

bitflags::bitflags! {
    /// Flags of a bundle (OFPBF_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BundleFlags: u16 {
        /// All or nothing, also towards packets.
        const ATOMIC = 1 << 0;
        /// In the order of the messages.
        const ORDERED = 1 << 1;
    }
}

/// Type of an OFPT_BUNDLE_CONTROL message (OFPBCT_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum BundleControlKind {
    /// Open a bundle.
    OpenRequest = 0,
    /// It is open.
    OpenReply = 1,
    /// No more messages.
    CloseRequest = 2,
    /// It is closed.
    CloseReply = 3,
    /// Carry it out.
    CommitRequest = 4,
    /// It is carried out.
    CommitReply = 5,
    /// Forget it.
    DiscardRequest = 6,
    /// It is forgotten.
    DiscardReply = 7,
}

/// OFPT_BUNDLE_CONTROL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// The controller's number for the bundle.
    pub bundle_id: u32,
    /// The requested step, or in a reply the step that was done.
    pub kind: BundleControlKind,
    /// How the bundle is committed (OFPBF_*).
    pub flags: BundleFlags,
}

/// OFPT_BUNDLE_ADD_MESSAGE.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle_id: u32,
    /// As in the request that opened it.
    pub flags: BundleFlags,
    /// The change: a flow mod, group mod, port mod or packet-out.
    pub message: Message,
    /// The beginning of the change as it came (64 bytes at most), for the error message when
    /// the commit fails at it. Empty where the message was not decoded.
    pub raw: Vec<u8>,
}

/// OFPT_REQUESTFORWARD: a change that another controller made (OFPRFR_*).
#[derive(Clone, Debug, PartialEq)]
pub struct RequestForward {
    /// Transaction id of the other controller's message.
    pub xid: u32,
    /// The change.
    pub change: ForwardedChange,
}

/// See [`RequestForward`].
#[derive(Clone, Debug, PartialEq)]
pub enum ForwardedChange {
    /// A group mod.
    Group(GroupMod),
    /// A meter mod.
    Meter(MeterMod),
}

/// Numbers of reasons of OFPT_REQUESTFORWARD (OFPRFR_*), as bits of the asynchronous
/// configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestForwardReason {
    /// A group mod.
    GroupMod = 0,
    /// A meter mod.
    MeterMod = 1,
}
