// SPDX-License-Identifier: Apache-2.0
//! From a megaflow to the keys and actions of a filter.
//!
//! The filter matches packets of the megaflow only, and its actions have exactly the megaflow's effect;
//! where flower cannot, there is a refusal. The filter matches all packets of the megaflow, except
//! that it leaves out those with VLAN headers where the megaflow matches an Ethernet type and no VLAN.

mod actions;
mod matching;
mod tunnel;

use crate::act::Act;
use crate::keys::Keys;
use crate::policer::Policer;
use datapath::{Megaflow, PortNo, Refusal};

/// Actions that a filter has at most, as in Open vSwitch: an acknowledgement of the kernel still has
/// room for them.
const MOST_ACTS: usize = 16;

/// Why a megaflow has no filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For counters.
    pub refusal: Refusal,
    /// For people: what flower cannot do.
    pub words: &'static str,
}

/// A match that flower cannot express.
fn no_key(words: &'static str) -> Refused {
    Refused { refusal: Refusal::UnsupportedKey, words }
}

/// An action that there is none for.
pub(crate) fn no_action(words: &'static str) -> Refused {
    Refused { refusal: Refusal::UnsupportedAction, words }
}

/// A port of the switch as TC sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A device that packets leave by.
    Device(u32),
    /// A device of the host: packets go to its stack.
    Host(u32),
}

/// The device of the kernel whose packets are those of a tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelDevice {
    /// Its index.
    pub ifindex: u32,
    /// The UDP port of received packets; 0 for kinds without UDP.
    pub udp_port: u16,
}

/// The facts about the switch that an encoder needs.
pub trait Switch {
    /// The device of a port; `None` when it has none that TC can send to.
    fn target(&self, port: PortNo) -> Option<Target>;

    /// The device of a tunnel port; `None` for other ports, and where there is none.
    fn tunnel(&self, port: PortNo) -> Option<TunnelDevice>;

    /// Outer packets of tunnels leave by this port as the host's routes have it, past no table.
    fn is_underlay(&self, port: PortNo) -> bool;

    /// The chain of a recirculation id; `None` when there can be none.
    fn chain(&self, recirc_id: u32) -> Option<u32>;

    /// The policer that does the work of a meter; `None` when there is none.
    fn policer(&self, meter: u32) -> Option<Policer>;

    /// Connections are tracked by the kernel (`openvswitch.ko`), as `act_ct` does it.
    fn tracks_by_kernel(&self) -> bool;

    /// The kernel may run the filter. Its packets may have a mark and a priority, and be aggregates; and
    /// it reads headers in its own way.
    fn runs_in_kernel(&self) -> bool {
        false
    }
}

/// A megaflow's filter, without its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The Ethernet type that filters of its priority have, host integer; 3 (`ETH_P_ALL`) for
    /// all.
    pub protocol: u16,
    /// The chain.
    pub chain: u32,
    /// The keys that it compares.
    pub keys: Keys,
    /// The actions on its packets.
    pub acts: Vec<Act>,
}

/// Encodes a megaflow. The filter belongs at the device of the megaflow's ingress port.
///
/// # Errors
/// When flower cannot match or do what the megaflow does.
pub fn encode(flow: &Megaflow, switch: &dyn Switch) -> Result<Encoded, Refused> {
    let matched = matching::encode(&flow.matching, switch)?;
    let acts = actions::encode(&flow.actions, &flow.matching, switch)?;
    if acts.len() > MOST_ACTS {
        return Err(no_action("the kernel's acknowledgement has room for 16 actions"));
    }
    let matching::Matched { protocol, chain, keys } = matched;
    Ok(Encoded { protocol, chain, keys, acts })
}
