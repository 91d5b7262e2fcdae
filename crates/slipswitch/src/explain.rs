// SPDX-License-Identifier: Apache-2.0
//! `slipswitch explain`: the fate of a packet, the tier where it runs, and the reason.

use crate::switch_dirs::SwitchDirs;
use anyhow::Result;
use clap::Args;

#[derive(Args)]
#[command(after_help = AFTER)]
pub struct Options {
    /// The bridge where the packet comes in; left out for a flow in datapath syntax
    #[arg(long, value_name = "BRIDGE")]
    bridge: Option<String>,
    /// A flow, as ovs-ofctl or as dpctl/dump-flows writes it
    #[arg(value_name = "FLOW")]
    flow: String,
    /// The packet in hexadecimal digits; the flow then says where it comes in
    #[arg(value_name = "PACKET")]
    packet: Option<String>,
}

const AFTER: &str = "\
Examples:
  slipswitch explain --bridge br0 in_port=p1,tcp,nw_dst=10.0.0.2,tp_dst=80
  slipswitch explain --bridge br0 in_port=p1 5054000000075054000000050800...
  slipswitch explain 'in_port(p1),eth_type(0x0800),ipv4(dst=10.0.0.2)'";

pub fn run(dirs: &SwitchDirs, options: &Options) -> Result<()> {
    let mut words = vec!["--names"];
    words.extend(options.bridge.as_deref());
    words.push(&options.flow);
    words.extend(options.packet.as_deref());
    print!("{}", dirs.appctl("slipswitch/explain", &words)?);
    Ok(())
}
