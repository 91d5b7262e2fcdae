// SPDX-License-Identifier: Apache-2.0
//! Texts about a session, in Open vSwitch's words.

use super::{ControlPacket, Diagnostic, Session, State};
use clock::Millis;
use std::fmt::Write as _;

/// Importance of a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A line for each packet.
    Debug,
    /// A change of a session's state.
    Info,
    /// Something that a person must act on.
    Warn,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Importance of the line.
    pub level: Level,
    /// The line with the name of the port; it may contain line feeds.
    pub text: String,
}

impl Session {
    /// Returns the text of `bfd/show`, without a heading.
    pub fn details(&mut self, now: Millis) -> String {
        let is_forwarding = self.is_forwarding(now);
        let from_now = |at: Millis| format!("now {:+}ms", at.0.saturating_sub(now.0));
        let remote = &self.remote;
        let blocks: [&[(&str, String)]; 3] = [
            &[
                ("Forwarding", is_forwarding.to_string()),
                ("Detect Multiplier", self.settings.multiplier.to_string()),
                ("Concatenated Path Down", self.settings.is_joined_path_down.to_string()),
                ("TX Interval", format!("Approx {}ms", self.tx_interval())),
                ("RX Interval", format!("Approx {}ms", self.rx_interval())),
                ("Detect Time", from_now(self.detect)),
                ("Next TX Time", from_now(self.next_tx)),
                ("Last TX Time", from_now(self.last_tx)),
            ],
            &[
                ("Local Flags", self.flags.text()),
                ("Local Session State", self.state.name().to_owned()),
                ("Local Diagnostic", self.diagnostic.text().to_owned()),
                ("Local Discriminator", format!("{:#x}", self.discriminator)),
                ("Local Minimum TX Interval", format!("{}ms", self.present_min_tx())),
                ("Local Minimum RX Interval", format!("{}ms", self.min_rx)),
            ],
            &[
                ("Remote Flags", remote.flags.text()),
                ("Remote Session State", remote.state.name().to_owned()),
                ("Remote Diagnostic", remote.diagnostic.text().to_owned()),
                ("Remote Discriminator", format!("{:#x}", remote.discriminator)),
                ("Remote Minimum TX Interval", format!("{}ms", remote.min_tx)),
                ("Remote Minimum RX Interval", format!("{}ms", remote.min_rx)),
                ("Remote Detect Multiplier", remote.multiplier.to_string()),
            ],
        ];
        let text = |block: &[(&str, String)]| {
            block.iter().fold(String::new(), |mut out, (name, value)| {
                let _ = writeln!(out, "  {name}: {value}"); // a String takes all writes
                out
            })
        };
        blocks.map(text).join("\n")
    }

    pub(super) fn warn(&mut self, text: String) {
        self.line(Level::Warn, &text);
    }

    pub(super) fn info(&mut self, text: String) {
        self.line(Level::Info, &text);
    }

    fn line(&mut self, level: Level, text: &str) {
        self.lines.push(Line { level, text: format!("{}: {text}", self.name) });
    }

    /// Adds a line about a packet, with all of the packet and the session.
    pub(super) fn packet_line(
        &mut self,
        level: Level,
        packet: &ControlPacket,
        message: &str,
        now: Millis,
    ) {
        let micros = |name, us: u32| format!("\n  {name}:{us}us ({}ms)", us / 1000);
        let text = format!(
            "{message}.\n  vers:{} diag:\"{}\" state:{} mult:{} length:{}\n  flags: {}\n  \
             my_disc:{:#x} your_disc:{:#x}{}{}{}{}",
            packet.version,
            packet.diagnostic.text(),
            packet.state.name(),
            packet.multiplier,
            packet.len,
            packet.flags.text(),
            packet.own_discriminator,
            packet.your_discriminator,
            micros("min_tx", packet.desired_tx_us),
            micros("min_rx", packet.required_rx_us),
            micros("min_rx_echo", packet.required_echo_us),
            self.details(now),
        );
        self.line(level, &text);
    }

    /// Adds the line about a change to `state`, before the change.
    pub(super) fn state_line(&mut self, state: State, diagnostic: Diagnostic, now: Millis) {
        let text = format!(
            "BFD state change: {}->{} \"{}\"->\"{}\".\n{}",
            self.state.name(),
            state.name(),
            self.diagnostic.text(),
            diagnostic.text(),
            self.details(now),
        );
        self.line(Level::Info, &text);
    }
}
