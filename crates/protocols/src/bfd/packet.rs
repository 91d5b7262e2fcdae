// SPDX-License-Identifier: Apache-2.0
//! BFD control packets (RFC 5880, 4.1).

/// Bytes of a control packet without authentication.
pub const PACKET_LEN: usize = 24;
/// Protocol version.
pub(super) const VERSION: u8 = 1;

/// State of a session (RFC 5880, 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Taken down by configuration.
    AdminDown = 0,
    /// The other end does not answer.
    #[default]
    Down = 1,
    /// The other end answers, and reports Down.
    Init = 2,
    /// Both ends receive each other.
    Up = 3,
}

impl State {
    /// Returns the state with this number; only the low two bits count.
    fn of(bits: u8) -> State {
        match bits & 3 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        }
    }

    /// Returns the name of the state in `bfd/show` and `bfd_status`.
    pub fn name(self) -> &'static str {
        match self {
            State::AdminDown => "admin_down",
            State::Down => "down",
            State::Init => "init",
            State::Up => "up",
        }
    }
}

/// Reason for the last change of a session (RFC 5880, 4.1): a number of 5 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    /// No reason.
    pub const NONE: Diagnostic = Diagnostic(0);
    /// The detection time has passed.
    pub const EXPIRED: Diagnostic = Diagnostic(1);
    /// The neighbour reported that its session is down.
    pub const NEIGHBOUR_DOWN: Diagnostic = Diagnostic(3);
    /// The path is down.
    pub const PATH_DOWN: Diagnostic = Diagnostic(5);
    /// A path that is joined to this one is down.
    pub const CONCATENATED_PATH_DOWN: Diagnostic = Diagnostic(6);
    /// The session is taken down by configuration.
    pub const ADMIN_DOWN: Diagnostic = Diagnostic(7);
    /// A path that is joined to the reverse of this one is down.
    pub const REVERSE_PATH_DOWN: Diagnostic = Diagnostic(8);

    /// Returns the text of the diagnostic in `bfd/show` and `bfd_status`.
    pub fn text(self) -> &'static str {
        match self.0 {
            0 => "No Diagnostic",
            1 => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            3 => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            5 => "Path Down",
            6 => "Concatenated Path Down",
            7 => "Administratively Down",
            8 => "Reverse Concatenated Path Down",
            _ => "Invalid Diagnostic",
        }
    }
}

/// Flags of a control packet (RFC 5880, 4.1), as the low 6 bits of the second byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender asks for an answer with [`Flags::FINAL`].
    pub const POLL: u8 = 0x20;
    /// The answer to a poll.
    pub const FINAL: u8 = 0x10;
    /// The control plane shares its fate with the data plane.
    pub const CONTROL_INDEPENDENT: u8 = 0x08;
    /// An authentication section follows.
    pub const AUTHENTICATED: u8 = 0x04;
    /// The sender wants no periodic packets.
    pub const DEMAND: u8 = 0x02;
    /// Reserved for point-to-multipoint.
    pub const MULTIPOINT: u8 = 0x01;

    /// Returns true when all bits of `flags` are set.
    pub fn contains(self, flags: u8) -> bool {
        self.0 & flags == flags
    }

    /// Returns true when one of the bits of `flags` is set.
    pub fn intersects(self, flags: u8) -> bool {
        self.0 & flags != 0
    }

    /// Returns the names of the flags, as `bfd/show` has them.
    pub fn text(self) -> String {
        let names = [
            (Flags::MULTIPOINT, "multipoint"),
            (Flags::DEMAND, "demand"),
            (Flags::AUTHENTICATED, "auth"),
            (Flags::CONTROL_INDEPENDENT, "ctl"),
            (Flags::FINAL, "final"),
            (Flags::POLL, "poll"),
        ];
        let set: Vec<&str> =
            names.iter().filter(|(bit, _)| self.contains(*bit)).map(|(_, name)| *name).collect();
        if set.is_empty() { "none".to_owned() } else { set.join(" ") }
    }
}

/// A control packet: the payload of UDP port 3784 (RFC 5881, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlPacket {
    /// Version of the protocol, of 3 bits.
    pub version: u8,
    /// Reason for the sender's last change of state.
    pub diagnostic: Diagnostic,
    /// State of the sender's session.
    pub state: State,
    /// Flags of the packet: `POLL` and `FINAL` are never both set.
    pub flags: Flags,
    /// Number of packets that may be lost in a row before the receiver ends the session.
    pub multiplier: u8,
    /// Bytes of the packet, as its sender gives them.
    pub len: u8,
    /// Discriminator of the sender's session, not 0.
    pub own_discriminator: u32,
    /// Discriminator of the receiver's session; 0 when the sender does not know it.
    pub your_discriminator: u32,
    /// Shortest interval at which the sender would send, in microseconds.
    pub desired_tx_us: u32,
    /// Shortest interval at which the sender can receive, in microseconds; 0 for none at all.
    pub required_rx_us: u32,
    /// Shortest interval of echo packets that the sender supports, in microseconds; 0 for none.
    pub required_echo_us: u32,
}

/// Reason why a packet is ignored (RFC 5880, 6.8.6), in Open vSwitch's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Not version 1.
    #[error("Incorrect version")]
    Version,
    /// The packet is authenticated, and no session is.
    #[error("Authenticated control message with authentication disabled")]
    Authenticated,
    /// The length field is too small.
    #[error("Unexpected length")]
    Length,
    /// The multiplier is 0.
    #[error("Zero multiplier")]
    Multiplier,
    /// The flag for multipoint is set.
    #[error("Unsupported multipoint flag")]
    Multipoint,
    /// The sender's discriminator is 0.
    #[error("NULL my_disc")]
    Discriminator,
    /// The receiver's discriminator is 0 in a state in which the sender must know it.
    #[error("Null your_disc")]
    NoReceiver,
    /// The packet is for another session.
    #[error("Incorrect your_disc")]
    Receiver,
}

fn word(bytes: &[u8; PACKET_LEN], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_be_bytes(word.unwrap_or_default())
}

impl ControlPacket {
    /// Decodes a UDP payload. Bytes after the packet are ignored. `None` when bytes are missing. Any
    /// other bytes are a packet, which [`ControlPacket::check`] may refuse.
    pub fn parse(payload: &[u8]) -> Option<ControlPacket> {
        let (bytes, _) = payload.split_first_chunk::<PACKET_LEN>()?;
        let [first, second, multiplier, len, ..] = *bytes;
        Some(ControlPacket {
            version: first >> 5,
            diagnostic: Diagnostic(first & 0x1f),
            state: State::of(second >> 6),
            flags: Flags(second & 0x3f),
            multiplier,
            len,
            own_discriminator: word(bytes, 4),
            your_discriminator: word(bytes, 8),
            desired_tx_us: word(bytes, 12),
            required_rx_us: word(bytes, 16),
            required_echo_us: word(bytes, 20),
        })
    }

    /// Checks what needs no session (RFC 5880, 6.8.6). As in Open vSwitch the length may be above
    /// that of the payload.
    ///
    /// # Errors
    /// The packet must be ignored, with the reason.
    pub fn check(&self) -> Result<(), PacketError> {
        let may_be_unknown = self.state <= State::Down;
        let faults = [
            (self.version != VERSION, PacketError::Version),
            (self.flags.contains(Flags::AUTHENTICATED), PacketError::Authenticated),
            (usize::from(self.len) < PACKET_LEN, PacketError::Length),
            (self.multiplier == 0, PacketError::Multiplier),
            (self.flags.contains(Flags::MULTIPOINT), PacketError::Multipoint),
            (self.own_discriminator == 0, PacketError::Discriminator),
            (self.your_discriminator == 0 && !may_be_unknown, PacketError::NoReceiver),
        ];
        let fault = faults.into_iter().find(|(is_fault, _)| *is_fault);
        fault.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Returns the packet as a UDP payload.
    pub fn encode(&self) -> [u8; PACKET_LEN] {
        let mut out = [0; PACKET_LEN];
        let head = [
            self.version << 5 | self.diagnostic.0 & 0x1f,
            (self.state as u8) << 6 | self.flags.0 & 0x3f,
            self.multiplier,
            self.len,
        ];
        let words = [
            u32::from_be_bytes(head),
            self.own_discriminator,
            self.your_discriminator,
            self.desired_tx_us,
            self.required_rx_us,
            self.required_echo_us,
        ];
        for (to, word) in out.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet() -> ControlPacket {
        ControlPacket {
            version: 1,
            diagnostic: Diagnostic::EXPIRED,
            state: State::Up,
            flags: Flags(Flags::POLL),
            multiplier: 3,
            len: 24,
            own_discriminator: 0x0a51_27bd,
            your_discriminator: 7,
            desired_tx_us: 100_000,
            required_rx_us: 1_000_000,
            required_echo_us: 0,
        }
    }

    #[test]
    fn a_packet_of_open_vswitch() {
        let bytes = [
            0x20, 0x40, 0x03, 0x18, 0x0a, 0x51, 0x27, 0xbd, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40, 0,
            0x0f, 0x42, 0x40, 0, 0, 0, 0,
        ];
        let want = ControlPacket {
            diagnostic: Diagnostic::NONE,
            state: State::Down,
            flags: Flags(0),
            your_discriminator: 0,
            desired_tx_us: 1_000_000,
            ..packet()
        };
        assert_eq!(ControlPacket::parse(&bytes), Some(want));
        assert_eq!((want.encode(), want.check()), (bytes, Ok(())));
        for len in 0..PACKET_LEN {
            assert_eq!(ControlPacket::parse(&bytes[..len]), None);
        }
    }

    #[test]
    fn invalid_packets_are_refused() {
        let with = |at: usize, value: u8| {
            let mut bytes = packet().encode();
            bytes[at] = value;
            ControlPacket::parse(&bytes).map(|packet| packet.check())
        };
        assert_eq!(with(0, 0x40), Some(Err(PacketError::Version)));
        assert_eq!(with(1, 0xc4), Some(Err(PacketError::Authenticated)));
        assert_eq!(with(1, 0xc1), Some(Err(PacketError::Multipoint)));
        assert_eq!(with(2, 0), Some(Err(PacketError::Multiplier)));
        assert_eq!(with(3, 23), Some(Err(PacketError::Length)));
        assert_eq!(with(3, 25), Some(Ok(())));
        assert_eq!(with(11, 0), Some(Err(PacketError::NoReceiver)));
        let own = ControlPacket { own_discriminator: 0, ..packet() };
        assert_eq!(own.check(), Err(PacketError::Discriminator));
    }

    #[test]
    fn flags_have_names() {
        assert_eq!(Flags(0).text(), "none");
        assert_eq!(Flags(0x3f).text(), "multipoint demand auth ctl final poll");
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            if let Some(packet) = ControlPacket::parse(&bytes) {
                prop_assert_eq!(&packet.encode()[..], &bytes[..PACKET_LEN]);
            }
        }
    }
}
