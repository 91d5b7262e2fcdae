// SPDX-License-Identifier: Apache-2.0
//! The configuration, end to end: the real ovsdb-server, ovs-vsctl and ovs-ofctl drive the
//! daemon. Most tests use dummy mode and need no privileges; what the daemon writes is compared
//! with what the real ovs-vswitchd writes. Needs Debian's `openvswitch-switch`.

mod devices;
mod dummies;
mod rig;
mod tls;
