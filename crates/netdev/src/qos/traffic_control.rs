// SPDX-License-Identifier: Apache-2.0
//! Requests of rtnetlink for the root discipline of an interface and its classes (tc(8),
//! include/uapi/linux/rtnetlink.h).

use crate::filter::{RTM_DELQDISC, RTM_GETQDISC, RTM_NEWQDISC, TCA_KIND, TCMSG};
use crate::link::LinkClient;
use crate::netlink::{NLM_F_ACK, NLM_F_DUMP, Request, attributes, text_of, u32_of};
use ::netlink::message::{NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use std::io;

const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const RTM_GETTCLASS: u16 = 42;

const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;

/// `TC_H_ROOT`
const ROOT: u32 = u32::MAX;
/// The switch's discipline, `1:0`.
const HANDLE: u32 = 1 << 16;
/// `1:fffe`, the parent of the classes of all queues.
pub(super) const ROOT_CLASS: u32 = HANDLE | 0xfffe;

/// Returns the class of a queue.
pub(super) fn class_of(queue: u32) -> u32 {
    HANDLE | (queue + 1)
}

/// Returns the queue of a class; `None` for the root class and classes of others.
pub(super) fn queue_of(class: u32) -> Option<u32> {
    let minor = class.checked_sub(HANDLE)?;
    (1..=super::QUEUES).contains(&minor).then(|| minor - 1)
}

/// Counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) drops: u64,
}

impl Counts {
    /// Parses the attributes of a class (include/uapi/linux/gen_stats.h).
    pub(super) fn parse(bytes: &[u8]) -> Counts {
        let mut counts = Counts::default();
        let stats = attributes(bytes).filter(|(kind, _)| *kind == TCA_STATS2);
        for (kind, value) in stats.flat_map(|(_, value)| attributes(value)) {
            match kind {
                // struct gnet_stats_basic: bytes(8) packets(4)
                TCA_STATS_BASIC => {
                    if let Some(bytes) = value.first_chunk() {
                        counts.bytes = u64::from_ne_bytes(*bytes);
                    }
                    if let Some(packets) = value.get(8..).and_then(u32_of) {
                        counts.packets = counts.packets.max(packets.into());
                    }
                }
                TCA_STATS_PKT64 => {
                    if let Some(packets) = value.first_chunk() {
                        counts.packets = u64::from_ne_bytes(*packets);
                    }
                }
                // struct gnet_stats_queue: qlen(4) backlog(4) drops(4)
                TCA_STATS_QUEUE => {
                    counts.drops = value.get(8..).and_then(u32_of).unwrap_or(0).into();
                }
                _ => {}
            }
        }
        counts
    }
}

/// The traffic control of an interface.
pub(super) struct TrafficControl<'a> {
    pub(super) client: &'a LinkClient,
    pub(super) index: u32,
}

impl TrafficControl<'_> {
    fn request(&self, kind: u16, flags: u16, handle: u32, parent: u32) -> Request {
        // struct tcmsg: family, pad(3), ifindex(4), handle(4), parent(4), info(4)
        let words = [0, self.index, handle, parent, 0];
        Request::new(kind, flags | NLM_F_ACK, &words.map(u32::to_ne_bytes).concat())
    }

    fn send(&self, request: Request) -> io::Result<()> {
        self.client.request(request, |_, _| {})
    }

    /// Returns the kind of the root discipline if that is `1:0`; `None` if it is another.
    pub(super) fn root(&self) -> io::Result<Option<String>> {
        let mut found = None;
        // Before Linux 6.13 the answer comes by the echo alone.
        // A child of another program's root may have the handle, so the root is asked for.
        let request = self.request(RTM_GETQDISC, NLM_F_ECHO, HANDLE, ROOT);
        let answer = self.client.request(request, |kind, payload| {
            if kind == RTM_NEWQDISC {
                let bytes = payload.get(TCMSG..).unwrap_or_default();
                found = attributes(bytes).find(|(k, _)| *k == TCA_KIND).map(|(_, v)| text_of(v));
            }
        });
        match answer {
            Ok(()) => Ok(found),
            // The kernel answers EINVAL where the root has another handle.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the root discipline: the kernel's default stands from now on.
    pub(super) fn delete_root(&self) -> io::Result<()> {
        match self.send(self.request(RTM_DELQDISC, 0, 0, ROOT)) {
            // The root is the default already.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn add_root(&self, kind: &str, options: &[u8]) -> io::Result<()> {
        let request = self.request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, HANDLE, ROOT);
        self.send(with_options(request, kind, options))
    }

    /// Makes or changes a class; `None`: its parent is the discipline.
    pub(super) fn set_class(
        &self,
        kind: &str,
        class: u32,
        parent: Option<u32>,
        options: &[u8],
    ) -> io::Result<()> {
        let request = self.request(RTM_NEWTCLASS, NLM_F_CREATE, class, parent.unwrap_or(HANDLE));
        self.send(with_options(request, kind, options))
    }

    pub(super) fn delete_class(&self, class: u32) -> io::Result<()> {
        self.send(self.request(RTM_DELTCLASS, 0, class, 0))
    }

    /// Returns the handles of all classes.
    pub(super) fn classes(&self) -> io::Result<Vec<u32>> {
        let mut classes = Vec::new();
        let request = self.request(RTM_GETTCLASS, NLM_F_DUMP, 0, 0);
        self.client.request(request, |kind, payload| {
            if kind == RTM_NEWTCLASS {
                classes.extend(payload.get(8..).and_then(u32_of));
            }
        })?;
        Ok(classes)
    }

    /// Reads the counters of a class; `None` when there is none.
    pub(super) fn class_counts(&self, class: u32) -> io::Result<Option<Counts>> {
        let mut counts = None;
        let request = self.request(RTM_GETTCLASS, NLM_F_ECHO, class, 0);
        let answer = self.client.request(request, |kind, payload| {
            if kind == RTM_NEWTCLASS {
                counts = payload.get(TCMSG..).map(Counts::parse);
            }
        });
        match answer {
            Ok(()) => Ok(counts),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn with_options(request: Request, kind: &str, options: &[u8]) -> Request {
    let kind = [kind.as_bytes(), b"\0"].concat();
    request.attribute(TCA_KIND, &kind).attribute(TCA_OPTIONS, options)
}
