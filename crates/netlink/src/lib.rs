// SPDX-License-Identifier: Apache-2.0
//! Netlink: attributes and messages of all families, and a socket for requests, dumps and events.
//!
//! - [`attribute`]: attributes are written and read.
//! - [`message`]: messages, and the acknowledgements of the kernel with its explanations.
//! - [`socket`]: requests and answers. `netdev::open_netlink` opens the descriptor.
//!
//! Follows include/uapi/linux/netlink.h. All integers are in host byte order. All readers are total:
//! a message that is cut short ends the iteration.
#![forbid(unsafe_code)]

pub mod attribute;
pub mod message;
pub mod socket;

pub use message::{Message, Request};
pub use socket::{Error, Events, Socket};
