// SPDX-License-Identifier: Apache-2.0
//! Lookups of single routes by the kernel itself, with a cache.
//!
//! The kernel judges every rule, VRF, multipath choice and path MTU. The cache makes that affordable
//! for each translation.

use super::route::parse_answer;
use super::{RTM_GETROUTE, RTM_NEWROUTE, bytes_of, family_of};
use crate::link::LinkClient;
use crate::netlink::{NLM_F_ACK, Request};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use underlay::RouteKind;

// include/uapi/linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_MARK: u16 = 16;
const RTA_UID: u16 = 25;
/// Bytes of `struct rtmsg`.
const FIXED: usize = 12;

/// How long an answer counts. The kernel reports no change of a path MTU.
const LIFETIME: Duration = Duration::from_secs(10);
/// Most answers that are kept.
const MOST: usize = 16_384;

/// A question for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteQuestion {
    /// The destination.
    pub destination: IpAddr,
    /// The source address, when it is given.
    pub source: Option<IpAddr>,
    /// The packet's mark.
    pub mark: u32,
}

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoute {
    /// The kernel's index of the device.
    pub index: u32,
    /// The router; `None`: the destination is at the device's link.
    pub gateway: Option<IpAddr>,
    /// The source address that the kernel would use.
    pub source: Option<IpAddr>,
    /// True when the destination is an address of this host.
    pub is_local: bool,
    /// The MTU of the path, in bytes of an IP packet, when it is less than the device's.
    pub mtu: Option<u32>,
}

/// Asks the kernel for routes, and keeps the answers for a short time. It works in the network
/// namespace of the thread that created it. One thread at a time uses it.
#[derive(Debug)]
pub struct HostRoutes {
    client: LinkClient,
    answers: HashMap<RouteQuestion, (Option<HostRoute>, Instant)>,
    questions: u64,
}

impl HostRoutes {
    /// Creates a cache without answers.
    ///
    /// # Errors
    ///
    /// No netlink socket can be created.
    pub fn new() -> io::Result<HostRoutes> {
        Ok(HostRoutes { client: LinkClient::new()?, answers: HashMap::new(), questions: 0 })
    }

    /// Returns the kernel's route; `None` when it has none, or refuses such packets.
    ///
    /// # Errors
    ///
    /// The socket is broken.
    pub fn lookup(
        &mut self,
        question: RouteQuestion,
        now: Instant,
    ) -> io::Result<Option<HostRoute>> {
        let known = self.answers.get(&question);
        if let Some((answer, asked)) = known
            && now.saturating_duration_since(*asked) < LIFETIME
        {
            return Ok(*answer);
        }
        let answer = self.ask(question)?;
        if self.answers.len() >= MOST {
            self.answers.clear();
        }
        self.answers.insert(question, (answer, now));
        Ok(answer)
    }

    /// Forgets all answers: a route, rule, address or interface has changed.
    pub fn invalidate(&mut self) {
        self.answers.clear();
    }

    /// Returns the number of questions that the kernel has answered.
    pub fn questions(&self) -> u64 {
        self.questions
    }

    fn ask(&mut self, question: RouteQuestion) -> io::Result<Option<HostRoute>> {
        self.questions += 1;
        let RouteQuestion { destination, source, mark } = question;
        let length = |address: IpAddr| if address.is_ipv6() { 128 } else { 32 };
        let mut fixed = [0; FIXED];
        fixed[0] = family_of(destination);
        fixed[1] = length(destination);
        fixed[2] = source.map_or(0, length);
        let mut request = Request::new(RTM_GETROUTE, NLM_F_ACK, &fixed)
            .attribute(RTA_DST, &bytes_of(destination))
            .attribute(RTA_MARK, &mark.to_ne_bytes())
            .attribute(RTA_UID, &0u32.to_ne_bytes());
        if let Some(source) = source {
            request = request.attribute(RTA_SRC, &bytes_of(source));
        }
        let mut found = None;
        let result = self.client.request(request, |kind, payload| {
            if kind == RTM_NEWROUTE {
                found = parse_host_route(payload);
            }
        });
        match result {
            Ok(()) => Ok(found),
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn parse_host_route(payload: &[u8]) -> Option<HostRoute> {
    let route = parse_answer(payload)?;
    let hop = route.hop?;
    Some(HostRoute {
        index: hop.index,
        gateway: hop.gateway,
        source: route.source,
        is_local: route.kind == RouteKind::Local,
        mtu: route.mtu,
    })
}

/// True for the errors of routes that refuse packets, of no route, and of a source address that is
/// not this host's.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EACCES
                | libc::EINVAL
                | libc::EADDRNOTAVAIL
                | libc::ENODEV
        )
    )
}
