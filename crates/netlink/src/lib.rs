// SPDX-License-Identifier: Apache-2.0
//! Netlink's attributes, as messages of all families have them. No I/O; all readers are total.

pub mod attribute;
