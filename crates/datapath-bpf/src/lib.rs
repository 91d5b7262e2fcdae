// SPDX-License-Identifier: Apache-2.0
//! The BPF datapath: flows in array maps that the daemon and BPF programs share, the programs at
//! the XDP and the skb hook, and the code that attaches and fits them.
//!
//! # Structure
//!
//! `bpf/` holds the programs. `bpf/layout.h` ([`layout`]) is the layout that they share with this
//! crate. The maps are mapped into the process ([`shared`]), so that installing, sweeping and
//! reading flows takes no system call. The rest of the switch uses [`BpfProvider`] over a
//! [`BpfDatapath`]. [`encode`] decides which actions run here, [`keys`] decides which matches do,
//! and `miss` reads the packets that programs send up.
//!
//! [`ct_memory`] is the memory of the table of connections, with a layout and pins of its own
//! (`bpf/ct_layout.h`). The daemon opens [`Pins`], which locks the directory, then this memory, and
//! then the datapath.
//!
//! The daemon needs the items of the crate root, [`fit`] and the ranges in [`maps`]. The other
//! modules are public for the tests and the fuzz targets.
//!
//! # Invariants
//!
//! * No packet is forwarded by a flow that is half written or was used again: [`flows`] documents
//!   the life of a slot, [`grace`] the waiting for programs.
//! * A lookup never matches wider than [`flow::Match::matches`]: a variant of the programs skips
//!   the flows that it cannot compare (`variant`).
//! * A user's own program at XDP ([`object`]) meets no flow beyond its declared
//!   [`Capabilities`].
//! * Bytes from a former daemon (`pins`) and from the miss device are checked before use.
//!
//! # Which side it errs on
//!
//! A flow whose actions cannot be run exactly as the contract requires is refused, and so runs in
//! the userspace datapath. A third flow with an equal 32-bit hash is refused as [`TableFull`].
//!
//! [`TableFull`]: ::datapath::Refusal::TableFull

#![warn(unreachable_pub)]

mod attach;
mod attachment;
mod backend;
mod bonds;
mod capabilities;
mod clsact;
pub mod ct_memory;
mod datapath;
pub mod decode;
mod demand;
mod discard;
pub mod encode;
pub mod fit;
pub mod flows;
pub mod grace;
pub mod hash;
mod index;
mod interned;
pub mod keys;
pub mod layout;
pub mod load;
pub mod maps;
mod masks;
mod meters;
mod miss;
pub mod object;
mod open;
mod options;
mod peer;
mod pins;
mod ports;
mod probe;
mod programs;
mod provider;
mod rx_ownership;
pub mod sets;
pub mod settings;
pub mod shared;
pub mod slot;
mod survey;
pub mod sys;
mod tunnel_headers;
mod variant;

pub use attachment::{
    AttachError, Attachment, Config, Held, HookSet, Hooks, RxOwner, Totals, Unavailable, XdpMode,
};
#[doc(hidden)]
pub use backend::Backend;
pub use backend::unavailable;
pub use capabilities::Capabilities;
pub use datapath::BpfDatapath;
pub use discard::discard;
pub use pins::Pins;
pub use probe::{KernelProber, Prober};
pub use provider::{BpfProvider, about_object, disabled, provider_slot};
pub use survey::{SurveySettings, TierReport, hears_other_ends, survey};
