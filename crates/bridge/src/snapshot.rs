// SPDX-License-Identifier: Apache-2.0
//! The immutable state that translation reads.
//!
//! The control thread publishes one `Arc<Snapshot>` after each change or batch of changes. It
//! shares all large parts with the snapshot before: tables are persistent structures, and the views
//! of unchanged bridges are the same `Arc`.

pub use crate::ids::{BridgeIndex, INTERNAL_TABLE};

use crate::bond::BondView;
use crate::export::Exports;
use crate::group::Group;
use crate::mac_table::MacTable;
use crate::mirror::Mirrors;
use crate::multicast_table::{MulticastTable, SnoopingRole};
use crate::protocol::Protocol;
use crate::rule::Rule;
use crate::spanning_tree::PortState as TreeState;
use crate::tunnel::{self, Tunnels};
use classifier::Classifier;
use datapath::{PortNo as DpPort, QueueNumbering, TunnelKind};
use hashbrown::HashMap;
use openflow::PortNo;
use openflow::message::PortConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of tables: 0 to 254.
pub(crate) const TABLES: usize = 255;

/// All bridges of the switch that share one datapath.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Bridges by [`BridgeIndex`]. A removed bridge leaves `None`.
    pub bridges: Vec<Option<Arc<BridgeView>>>,
    /// Bridge and OpenFlow port of each datapath port that is no tunnel's.
    pub ports: Arc<HashMap<DpPort, (BridgeIndex, PortNo)>>,
    /// Tunnel ports of all bridges.
    pub tunnels: Arc<Tunnels>,
    /// Number of the timeout policy of connections, by zone. Zones without a row use policy 0, the
    /// default.
    pub timeout_policies: Arc<HashMap<u16, u16>>,
    /// How packets name the queues of ports.
    pub queues: QueueNumbering,
    /// Megaflows that only sample their packets end with a drop (`explicit-sampled-drops`).
    pub has_sampled_drops: bool,
    /// Features of the datapath that translation does without.
    pub withheld: Withheld,
}

/// Features of the datapath that translation does without, although the datapath has them
/// (`dpif/set-dp-features`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    /// Lists on a copy of a packet are samples that are always taken.
    pub clone: bool,
    /// Levels to which samples nest; `None` for those of the datapath. Copies without `clone` need
    /// [`Withheld::SAMPLE_LEVELS`].
    pub sample_nesting: Option<u32>,
    /// Each packet whose length is compared needs an upcall.
    pub check_pkt_len: bool,
    /// Each packet that gets or loses a label in front of all headers needs an upcall.
    pub add_mpls: bool,
    /// Each packet that is cut off needs an upcall.
    pub trunc: bool,
}

impl Withheld {
    /// Levels of nested samples below which no list on a copy becomes a sample, as in Open vSwitch.
    pub const SAMPLE_LEVELS: u32 = 4;

    /// Returns the action that runs a list on a copy of the packet; `None` when there is none.
    pub(crate) fn copy(self, actions: Vec<datapath::Action>) -> Option<datapath::Action> {
        if !self.clone {
            return Some(datapath::Action::Clone(actions));
        }
        let nests = self.sample_nesting.is_none_or(|levels| levels >= Withheld::SAMPLE_LEVELS);
        nests.then_some(datapath::Action::Sample { probability: u32::MAX, actions })
    }
}

impl Snapshot {
    /// Returns the bridge at `index`.
    pub fn bridge(&self, index: BridgeIndex) -> Option<&Arc<BridgeView>> {
        self.bridges.get(index.0)?.as_ref()
    }

    /// Returns the bridge called `name`.
    pub fn bridge_by_name(&self, name: &str) -> Option<(BridgeIndex, &Arc<BridgeView>)> {
        self.bridges
            .iter()
            .enumerate()
            .find_map(|(i, b)| b.as_ref().filter(|b| b.name == name).map(|b| (BridgeIndex(i), b)))
    }

    /// Returns the kind of the tunnel ports that have this number in the datapath. Looks at all ports.
    pub(crate) fn tunnel_kind(&self, number: DpPort) -> Option<TunnelKind> {
        let ports = self.bridges.iter().flatten().flat_map(|bridge| bridge.ports.values());
        let mut tunnels = ports.filter(|port| port.dp_port == Some(number));
        tunnels.find_map(|port| port.tunnel.as_ref().map(|config| config.kind))
    }
}

/// One bridge.
#[derive(Clone, Debug)]
pub struct BridgeView {
    /// Name of the bridge in the database, unique in the switch.
    pub name: String,
    /// OpenFlow tables 0 to 254.
    pub tables: TableArray,
    /// Ports by OpenFlow number.
    pub ports: Arc<HashMap<PortNo, PortView>>,
    /// Bundles (rows of the Port table), that NORMAL forwards between.
    pub bundles: Arc<Vec<BundleView>>,
    /// Groups by OpenFlow group id.
    pub groups: Arc<HashMap<u32, Arc<Group>>>,
    /// OpenFlow meter id to datapath meter id.
    pub meters: Arc<HashMap<u32, u32>>,
    /// Learned MAC addresses, shared by all snapshots of the bridge.
    pub macs: Arc<MacTable>,
    /// Multicast groups; `None` without multicast snooping.
    pub multicast: Option<Arc<MulticastTable>>,
    /// Fields of the options of Geneve headers.
    pub tlv_table: Arc<flow::TlvTable>,
    /// Port mirrors.
    pub mirrors: Arc<Mirrors>,
    /// Export of traffic to collectors.
    pub exports: Exports,
    /// Settings of the bridge from the database.
    pub config: BridgeConfig,
}

impl PortView {
    /// Returns true when the spanning tree lets packets through the port.
    pub(crate) fn forwards(&self) -> bool {
        self.tree_state.is_none_or(TreeState::forwards)
    }

    /// Returns true when the spanning tree lets the rules see packets from the port.
    pub(crate) fn learns(&self) -> bool {
        self.tree_state.is_none_or(TreeState::learns)
    }

    /// Returns true when the spanning tree lets BPDUs leave by the port.
    pub(crate) fn sends_bpdus(&self) -> bool {
        self.tree_state.is_none_or(TreeState::sends_bpdus)
    }
}

impl BridgeView {
    /// Returns the datapath port from which a packet that the switch itself sends as from port
    /// `number` seems to come. There is none for a tunnel port: the packet has no outer header, and
    /// its megaflows must not hold for packets that come out of a tunnel.
    pub(crate) fn origin_of(&self, number: PortNo) -> DpPort {
        let port = self.ports.get(&number).filter(|port| port.tunnel.is_none());
        port.and_then(|port| port.dp_port).unwrap_or(DpPort::NONE)
    }
}

/// All tables of a bridge. A clone shares them, and a change copies only the few tables next to the
/// changed one, as a snapshot is made for each flow mod that a barrier follows. Three levels keep
/// the number of neighbours low: a copy counts a reference to each of them.
#[derive(Clone, Debug)]
pub struct TableArray(Vec<Block>);

/// Tables that are copied together.
type Chunk = Arc<[TableView]>;
/// Chunks whose references are copied together.
type Block = Arc<[Chunk]>;

/// Tables of a chunk.
const CHUNK: usize = 4;
/// Tables of a block.
const BLOCK: usize = 32;

// A table's place in its chunk does not depend on the block.
const _: () = assert!(BLOCK.is_multiple_of(CHUNK));

impl TableArray {
    /// Returns table `id`.
    pub fn get(&self, id: usize) -> Option<&TableView> {
        self.0.get(id / BLOCK)?.get(id % BLOCK / CHUNK)?.get(id % CHUNK)
    }

    /// Returns table `id` for changes that only this copy sees.
    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut TableView> {
        let block = Arc::make_mut(self.0.get_mut(id / BLOCK)?);
        Arc::make_mut(block.get_mut(id % BLOCK / CHUNK)?).get_mut(id % CHUNK)
    }

    /// Returns the number of tables.
    pub fn len(&self) -> usize {
        self.0.iter().flat_map(|block| block.iter()).map(|chunk| chunk.len()).sum()
    }

    /// Returns true when there are no tables.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<TableView> for TableArray {
    fn from_iter<I: IntoIterator<Item = TableView>>(tables: I) -> TableArray {
        let tables: Vec<TableView> = tables.into_iter().collect();
        let block = |tables: &[TableView]| tables.chunks(CHUNK).map(Chunk::from).collect::<Block>();
        TableArray(tables.chunks(BLOCK).map(block).collect())
    }
}

/// One OpenFlow table.
#[derive(Clone, Debug)]
pub struct TableView {
    /// Rules of the table.
    pub rules: Classifier<Rule>,
    /// Lookups in the table.
    pub stats: Arc<TableStats>,
    /// Handling of a packet that no rule of the table matches.
    pub miss: TableMiss,
}

pub use openflow::message::TableMiss;

/// Counters of a table.
#[derive(Debug, Default)]
pub struct TableStats {
    /// Packets that found a rule.
    pub matched: AtomicU64,
    /// Packets that did not.
    pub missed: AtomicU64,
}

impl TableStats {
    /// Adds lookups.
    pub(crate) fn credit(&self, matched: bool, packets: u64) {
        let counter = if matched { &self.matched } else { &self.missed };
        counter.fetch_add(packets, Ordering::Relaxed);
    }
}

/// Settings of a bridge that translation reads.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BridgeConfig {
    /// Address of the bridge's own port. The datapath id derives from it, unless one is configured.
    pub mac: [u8; 6],
    /// NORMAL forwards frames to reserved destination addresses (`other_config:forward-bpdu`).
    pub forward_bpdu: bool,
    /// A table miss goes to controllers, else it is dropped; see
    /// `Connections::wants_packet_in_on_miss`.
    pub miss_to_controller: bool,
    /// Multicast packets of unknown groups go to routers only
    /// (`other_config:mcast-snooping-disable-flood-unregistered`).
    pub unregistered_to_routers: bool,
    /// `OFPC_FRAG_*`: 0 normal, 1 drop, 2 reassemble (refused), 3 nx-match.
    pub frag_handling: u16,
    /// Bytes of a miss sent to controllers.
    pub miss_send_len: u16,
    /// Packets with an expired TTL go to controllers (OFPC_INVALID_TTL_TO_CONTROLLER).
    pub invalid_ttl_to_controller: bool,
    /// The spanning tree protocol of the bridge, if any, is RSTP.
    pub is_rapid: bool,
    /// The bridge has in-band control: DHCP replies always reach its own port.
    pub in_band: bool,
}

impl BridgeConfig {
    /// Returns the name of the bridge's spanning tree protocol.
    pub(crate) fn tree_name(&self) -> &'static str {
        if self.is_rapid { "RSTP" } else { "STP" }
    }
}

/// One OpenFlow port.
#[derive(Clone, Debug)]
pub struct PortView {
    /// OpenFlow number.
    pub number: PortNo,
    /// Interface name.
    pub name: String,
    /// Number in the datapath; `None` for patch ports. Several tunnel ports may share one.
    pub dp_port: Option<DpPort>,
    /// For a patch port: the bridge and port to which it leads, when both exist.
    pub peer: Option<(BridgeIndex, PortNo)>,
    /// True for a patch port, also without a peer.
    pub is_patch: bool,
    /// Options of a tunnel port.
    pub tunnel: Option<Arc<tunnel::Config>>,
    /// Index of the port's bundle in [`BridgeView::bundles`].
    pub bundle: Option<usize>,
    /// Port configuration bits as controllers set them (OFPPC_*).
    pub config: PortConfig,
    /// True when the port may carry traffic: administratively up, with a link.
    pub up: bool,
    /// True when buckets that watch the port are live.
    pub live: bool,
    /// State in the spanning tree; `None` for a port that is not in one.
    pub tree_state: Option<TreeState>,
    /// Control protocols that take packets from the port, in the order in which they are asked.
    pub protocols: Arc<[Arc<dyn Protocol>]>,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// Index of the interface for collectors; 0 when there is none.
    pub ifindex: u32,
    /// The DSCP that packets of some queues of the port get (`Queue:dscp`), as six bits.
    pub queue_dscp: Arc<BTreeMap<u32, u8>>,
    /// Packets through a patch or tunnel port: rx, tx. The devices of other ports count theirs.
    pub virtual_stats: Arc<[crate::group::Count; 2]>,
}

/// VLAN mode of a bundle (`Port:vlan_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VlanMode {
    /// `access`: all packets are in the VLAN `tag`, and have no header for it.
    Access,
    /// `trunk`: packets have a header for their VLAN.
    #[default]
    Trunk,
    /// `native-tagged`: as `trunk`; packets received without a header are in the VLAN `tag`.
    NativeTagged,
    /// `native-untagged`: as `native-tagged`; packets of the VLAN `tag` leave without a header.
    NativeUntagged,
    /// `dot1q-tunnel`: packets get one more header, for the VLAN `tag`.
    Dot1qTunnel,
}

/// When a bundle's packets in VLAN 0 carry a tag (`Port:other_config:priority-tags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PriorityTags {
    /// `never`: no tag is added for the priority.
    #[default]
    Never,
    /// `if-nonzero`: they have one when the priority is not 0.
    IfNonzero,
    /// `always`: as `if-nonzero`, and a tag with priority 0 stays, too.
    Always,
}

/// A row of the Port table: one interface, or several in a bond.
#[derive(Clone, Debug, Default)]
pub struct BundleView {
    /// Name of the row of the Port table.
    pub name: String,
    /// VLAN mode of the port (`vlan_mode` in the database).
    pub mode: VlanMode,
    /// Access, native or tunnel VLAN; 0 for none.
    pub tag: u16,
    /// VLANs that are trunked; empty for all. Sorted.
    pub trunks: Arc<[u16]>,
    /// Customer VLANs of a dot1q-tunnel; empty for all. Sorted.
    pub cvlans: Arc<[u16]>,
    /// TPID that a dot1q-tunnel pushes: 0x88a8 or 0x8100.
    pub qinq_tpid: u16,
    /// Whether packets in VLAN 0 leave with a tag for their priority.
    pub priority_tags: PriorityTags,
    /// `Port:protected`: no traffic between protected ports.
    pub protected: bool,
    /// OpenFlow ports of the bundle.
    pub members: Vec<PortNo>,
    /// The choice among several members; `None` for a single one.
    pub bond: Option<Arc<BondView>>,
    /// Floods include the bundle: no member has NO_FLOOD, and the spanning tree lets all forward.
    pub floodable: bool,
    /// Role in multicast snooping.
    pub snooping: SnoopingRole,
}
