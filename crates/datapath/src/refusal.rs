//! Why a datapath did not take a flow.

/// Why a datapath refused a megaflow. One enumeration feeds the counter, the flow dump and
/// `explain`. A refusal is an ordinary answer: the next tier gets the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The table has no room.
    TableFull,
    /// A megaflow with this identity is there already.
    Exists,
    /// The match has a field that this datapath does not parse.
    UnsupportedKey,
    /// An action that this datapath cannot run.
    UnsupportedAction,
    /// A port of the flow is not on this datapath.
    PortNotHere,
    /// A fault injected by a test's chaos datapath.
    Synthetic,
}

impl Refusal {
    /// All of them, in the order of their counters.
    pub const ALL: [Refusal; 6] = [
        Refusal::TableFull,
        Refusal::Exists,
        Refusal::UnsupportedKey,
        Refusal::UnsupportedAction,
        Refusal::PortNotHere,
        Refusal::Synthetic,
    ];

    /// Text in dumps and counters.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::TableFull => "table-full",
            Refusal::Exists => "exists",
            Refusal::UnsupportedKey => "unsupported-key",
            Refusal::UnsupportedAction => "unsupported-action",
            Refusal::PortNotHere => "port-not-here",
            Refusal::Synthetic => "synthetic",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Refusal {}
