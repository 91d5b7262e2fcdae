// SPDX-License-Identifier: Apache-2.0
//! The datapath of bridges of the type `system`: the switch's own, or `openvswitch.ko` where
//! `other_config:system-datapath` is `kernel`.

use super::context::Context;
use super::desired::{Desired, DesiredBridge, DesiredInterface};
use super::device::{self, Form};
use super::state::SwitchState;
use crate::args::DummyLevel;
use bridge::tunnel::{self, PacketTypeMode};
use datapath::PortKind;
use datapath_kernel::{KernelDatapath, NUMBERING};
use std::sync::Arc;

/// The name of the kernel's datapath, as of Open vSwitch.
const NAME: &str = "ovs-system";

/// The datapath of bridges of the type `system`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum SystemDatapath {
    /// The switch's own.
    #[default]
    Own,
    /// The kernel's.
    Kernel,
    /// The kernel's, which cannot be used for this reason.
    Unavailable(String),
}

impl SystemDatapath {
    /// Returns the way to make a port of an interface of `bridge`.
    ///
    /// # Errors
    ///
    /// The interface asks for a port that cannot be made. The text is for the `error` column.
    pub(super) fn form(
        &self,
        row: &DesiredInterface,
        bridge: &DesiredBridge,
        dummy: DummyLevel,
    ) -> Result<Form, String> {
        let form = device::form(row, &bridge.name, &bridge.datapath_type, dummy)?;
        if !is_system(bridge) {
            return Ok(form);
        }
        match self {
            SystemDatapath::Own => Ok(form),
            SystemDatapath::Kernel => in_kernel(&row.name, form),
            SystemDatapath::Unavailable(why) => Err(format!("{}: {why}", row.name)),
        }
    }
}

fn is_system(bridge: &DesiredBridge) -> bool {
    matches!(&*bridge.datapath_type, "" | "system")
}

/// Returns a name for tunnels with these options when the kernel's datapath has none such.
fn not_in_kernel(config: &tunnel::Config) -> Option<String> {
    if !datapath_kernel::has_tunnels(config.kind) {
        return Some(format!("tunnels of type {}", PortKind::Tunnel(config.kind)));
    }
    if config.extensions.gpe || config.mode != PacketTypeMode::LegacyL2 {
        return Some("tunnels of packets without an Ethernet header".to_owned());
    }
    config.sequence.then(|| "GRE tunnels with sequence numbers".to_owned())
}

/// Returns the form of the same port in the kernel's datapath.
fn in_kernel(name: &str, form: Form) -> Result<Form, String> {
    let (kind, shown, options) = match form {
        Form::Device { kind, shown, options } => (kind, shown, options),
        Form::Patch { peer } => return Ok(Form::Patch { peer }),
        Form::Tunnel { config, complaints } => {
            if let Some(what) = not_in_kernel(&config) {
                return Err(format!(
                    "{name}: {what} are not made on openvswitch.ko: set the bridge's \
                     datapath_type to netdev"
                ));
            }
            let config = tunnel::Config { is_kernel: true, ..Arc::unwrap_or_clone(config) };
            return Ok(Form::Tunnel { config: Arc::new(config), complaints });
        }
    };
    let kind = match kind {
        PortKind::System => PortKind::Vport,
        PortKind::Internal => PortKind::InternalVport,
        other => {
            return Err(format!(
                "{name}: interfaces of type {other} are not made on openvswitch.ko: set the \
                 bridge's datapath_type to netdev"
            ));
        }
    };
    Ok(Form::Device { kind, shown, options })
}

/// Puts `system-datapath` into force; before the ports.
pub(super) fn sync(context: &mut Context<'_>, state: &mut SwitchState, new: &Desired) {
    let Some(coupled) = context.coupled else { return };
    if !new.tunables.kernel_datapath {
        state.system_datapath = SystemDatapath::Own;
        if new.bridges.values().any(|bridge| bridge.datapath_type == "system") {
            state.remarks.info(
                "bridges of datapath_type system run on Slipswitch's own datapath: \
                 other_config:system-datapath=kernel has them run on openvswitch.ko",
            );
        }
        return;
    }
    if context.disable_system {
        let why = "the daemon was started with --disable-system".to_owned();
        state.remarks.warn(format!("system@{NAME}: {why}"));
        state.system_datapath = SystemDatapath::Unavailable(why);
        return;
    }
    if coupled.kernel().is_none() && new.bridges.values().any(is_system) {
        match KernelDatapath::open(NAME, context.clock.clone(), NUMBERING) {
            Ok(kernel) => {
                tracing::info!(
                    target: "dpif_netlink",
                    "system@{NAME}: bridges of datapath_type system run on openvswitch.ko",
                );
                coupled.begin(kernel);
            }
            Err(error) => {
                state.remarks.warn(format!("system@{NAME}: {error}"));
                state.system_datapath = SystemDatapath::Unavailable(error.to_string());
                return;
            }
        }
    }
    state.system_datapath = SystemDatapath::Kernel;
}

/// Removes the ports that an earlier daemon left and that no bridge has; after the ports were made.
pub(super) fn finish(context: &Context<'_>) {
    if let Some(kernel) = context.coupled.and_then(|coupled| coupled.kernel()) {
        kernel.remove_unclaimed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bridge::tunnel::OrFlow;
    use datapath::TunnelKind;

    fn device(kind: PortKind) -> Form {
        Form::Device { kind, shown: kind, options: Default::default() }
    }

    #[test]
    fn ports_of_the_kernel_are_shown_as_their_types() {
        for (kind, expected) in
            [(PortKind::System, PortKind::Vport), (PortKind::Internal, PortKind::InternalVport)]
        {
            let form = in_kernel("p", device(kind)).unwrap();
            let Form::Device { kind: made, shown, .. } = form else { panic!("{form:?}") };
            assert_eq!((made, shown), (expected, kind));
        }
        let why = in_kernel("p", device(PortKind::AfXdp)).unwrap_err();
        assert!(why.contains("type afxdp"), "{why}");
        let tunnel = |config: tunnel::Config| {
            in_kernel("p", Form::Tunnel { config: Arc::new(config), complaints: None })
        };
        let remote = OrFlow::Fixed([10, 0, 0, 2].into());
        let plain = tunnel::Config::new(TunnelKind::Geneve, remote);
        let form = tunnel(plain.clone()).unwrap();
        let Form::Tunnel { config, .. } = form else { panic!("{form:?}") };
        assert_eq!(config.backing_kind(), PortKind::TunnelVport(TunnelKind::Geneve));
        let why = tunnel(tunnel::Config::new(TunnelKind::Srv6, remote)).unwrap_err();
        assert!(why.contains("tunnels of type srv6 are not"), "{why}");
        let why = tunnel(tunnel::Config { mode: PacketTypeMode::Aware, ..plain }).unwrap_err();
        assert!(why.contains("without an Ethernet header"), "{why}");
        let patch = Form::Patch { peer: "q".to_owned() };
        assert_eq!(in_kernel("p", patch), Ok(Form::Patch { peer: "q".to_owned() }));
    }
}
