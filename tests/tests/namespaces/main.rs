// SPDX-License-Identifier: Apache-2.0
//! Real packets between network namespaces on plain veth pairs, nothing switched on or off by
//! hand but where XDP is asked for (`xdp`). Needs root; without it each test says SKIPPED.

mod bfd;
mod bonds;
mod connectivity;
mod conntrack;
mod controllers;
mod explanations;
mod export;
mod fastpath;
mod flood;
mod full;
mod handover;
mod host_nic;
mod in_band;
mod kernel_tunnels;
mod lifecycle;
mod lldp;
mod mirrors;
mod objects;
mod overlay;
mod ovn;
mod path_mtu;
mod peer;
mod qos;
mod segmenter;
mod snooping;
mod spanning_tree;
mod survival;
mod taps;
mod threads;
mod tools;
mod traffic;
mod tunnel_helper;
mod tunnels;
mod tutorial;
mod underlay;
mod xdp;
