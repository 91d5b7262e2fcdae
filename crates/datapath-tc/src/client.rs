// SPDX-License-Identifier: Apache-2.0
//! [`TrafficControl`] by rtnetlink.

use crate::filter::{FIXED, Filter, Hook, KIND, Place, Shown, tcmsg};
use crate::kernel::{Existing, Facts, IngressQdisc, TrafficControl};
use netdev::ethtool::Ethtool;
use netdev::{NetlinkProtocol, Offload, open_netlink};
use netlink::attribute::{array, find};
use netlink::message::{NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, text};
use netlink::{Error, Request, Socket};
use std::io;

// include/uapi/linux/rtnetlink.h
const RTM_GETLINK: u16 = 18;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
/// Bytes of `struct ifinfomsg`.
const LINK_FIXED: usize = 16;
/// `IFLA_PHYS_SWITCH_ID`
const SWITCH_ID: u16 = 36;
/// `TCA_INGRESS_BLOCK`
const INGRESS_BLOCK: u16 = 13;
/// `TC_H_INGRESS`, which is `TC_H_CLSACT`, too.
const INGRESS: u32 = 0xffff_fff1;
/// The handle of the qdisc there.
const INGRESS_HANDLE: u32 = 0xffff_0000;
/// The feature by which a driver takes filters (`ethtool -k`).
const HW_TC_OFFLOAD: &str = "hw-tc-offload";

const ENOENT: i32 = 2;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;

/// A client in the network namespace of the thread that opened it.
pub struct Client {
    socket: Socket,
    ethtool: Ethtool,
}

impl Client {
    /// Opens a client in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// No socket can be opened.
    pub fn open() -> io::Result<Client> {
        let socket = Socket::new(open_netlink(NetlinkProtocol::Route)?);
        Ok(Client { socket, ethtool: Ethtool::new()? })
    }

    /// Calls `each` for every qdisc at an ingress: device and qdisc.
    fn qdiscs(&mut self, mut each: impl FnMut(u32, IngressQdisc)) -> Result<(), Error> {
        let request = Request::new(RTM_GETQDISC, 0, &[0; FIXED]);
        self.socket.dump(request, |_, payload| {
            if let Some((ifindex, qdisc)) = ingress_qdisc(payload) {
                each(ifindex, qdisc);
            }
        })?;
        Ok(())
    }

    fn dump(&mut self, ifindex: u32, hook: Hook, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        let request = Request::new(RTM_GETTFILTER, 0, &hook.fixed(ifindex));
        match self.socket.dump(request, |_, payload| each(payload)) {
            // The device or its qdisc is gone, and its filters with it.
            Err(error) if matches!(error.errno(), Some(ENODEV | ENOENT)) => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Sends a request about one filter and returns the filter of the answer, and the kernel's warning.
    fn one(&mut self, request: Request) -> Result<(Option<Shown>, Option<String>), Error> {
        let mut shown = None;
        let note = |_, payload: &[u8]| shown = shown.take().or(Shown::parse(payload));
        let warning = self.socket.transact(request, note)?;
        Ok((shown, warning))
    }
}

/// Reads a message about a qdisc: the device, and its qdisc at the ingress. `None` for one at another
/// place.
pub fn ingress_qdisc(message: &[u8]) -> Option<(u32, IngressQdisc)> {
    let (fixed, attributes) = message.split_at_checked(FIXED)?;
    let word = |at: usize| fixed.get(at..).and_then(array).map(u32::from_ne_bytes);
    let kind = text(find(attributes, KIND)?);
    if word(12)? != INGRESS || !["clsact", "ingress"].contains(&&*kind) {
        return None;
    }
    let block = find(attributes, INGRESS_BLOCK).and_then(array).map_or(0, u32::from_ne_bytes);
    let qdisc = if block == 0 { IngressQdisc::Own } else { IngressQdisc::Shared(block) };
    Some((word(4)?, qdisc))
}

/// Returns the request about the qdisc `clsact` of a device.
fn clsact(kind: u16, flags: u16, ifindex: u32) -> Request {
    let fixed = tcmsg([0, ifindex, INGRESS_HANDLE, INGRESS, 0]);
    Request::new(kind, flags, &fixed).attribute(KIND, b"clsact\0")
}

/// Takes the answer that there is no such filter for none. A device that is gone has none.
fn or_none(result: Result<(Option<Shown>, Option<String>), Error>) -> Result<Option<Shown>, Error> {
    match result {
        Err(error) if matches!(error.errno(), Some(ENOENT | ENODEV | EINVAL)) => Ok(None),
        result => result.map(|(shown, _)| shown),
    }
}

impl TrafficControl for Client {
    fn facts(&mut self, ifindex: u32, device: &str) -> Result<Facts, Error> {
        let mut fixed = Vec::new();
        fixed.extend([0; 4]);
        fixed.extend(ifindex.to_ne_bytes());
        fixed.resize(LINK_FIXED, 0);
        let mut switch = Vec::new();
        self.socket.transact(Request::new(RTM_GETLINK, 0, &fixed), |_, payload| {
            let attributes = payload.get(LINK_FIXED..).unwrap_or_default();
            switch = find(attributes, SWITCH_ID).unwrap_or_default().to_vec();
        })?;
        Ok(Facts { offload: self.ethtool.offload(device, HW_TC_OFFLOAD)?, switch })
    }

    fn enable_offload(&mut self, device: &str) -> Result<Offload, Error> {
        Ok(self.ethtool.enable(device, HW_TC_OFFLOAD)?)
    }

    fn ingress_qdisc(&mut self, ifindex: u32) -> Result<IngressQdisc, Error> {
        let mut found = IngressQdisc::None;
        self.qdiscs(|device, qdisc| {
            if device == ifindex {
                found = qdisc;
            }
        })?;
        Ok(found)
    }

    fn add_clsact(&mut self, ifindex: u32) -> Result<(), Error> {
        let request = clsact(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, ifindex);
        self.socket.transact(request, |_, _| {}).map(|_| ())
    }

    fn remove_clsact(&mut self, ifindex: u32) -> Result<(), Error> {
        self.socket.transact(clsact(RTM_DELQDISC, 0, ifindex), |_, _| {}).map(|_| ())
    }

    fn install(
        &mut self,
        filter: &Filter,
        existing: Existing,
    ) -> Result<(Shown, Option<String>), Error> {
        let existing = match existing {
            Existing::Refuse => NLM_F_EXCL,
            Existing::Replace => NLM_F_REPLACE,
        };
        let flags = NLM_F_CREATE | NLM_F_ECHO | existing;
        let request = Request::new(RTM_NEWTFILTER, flags, &filter.message());
        let (shown, warning) = self.one(request)?;
        let shown = shown.ok_or_else(|| io::Error::other("the kernel does not show the filter"))?;
        Ok((shown, warning))
    }

    fn read(&mut self, place: &Place) -> Result<Option<Shown>, Error> {
        or_none(self.one(Request::new(RTM_GETTFILTER, 0, &place.message())))
    }

    fn remove(&mut self, place: &Place) -> Result<Option<Shown>, Error> {
        or_none(self.one(Request::new(RTM_DELTFILTER, NLM_F_ECHO, &place.message())))
    }

    fn filters(
        &mut self,
        ifindex: u32,
        hook: Hook,
        each: &mut dyn FnMut(Shown),
    ) -> Result<(), Error> {
        self.dump(ifindex, hook, |payload| {
            if let Some(shown) = Shown::parse(payload) {
                each(shown);
            }
        })
    }

    fn count(&mut self, ifindex: u32, hook: Hook) -> Result<usize, Error> {
        let mut count = 0;
        self.dump(ifindex, hook, |_| count += 1)?;
        Ok(count)
    }

    fn devices(&mut self) -> Result<Vec<u32>, Error> {
        let mut devices = Vec::new();
        self.qdiscs(|ifindex, qdisc| {
            if qdisc == IngressQdisc::Own {
                devices.push(ifindex);
            }
        })?;
        Ok(devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::attribute::put;

    #[test]
    fn qdiscs_at_the_ingress_are_told_apart() {
        let message = |parent: u32, kind: &str, block: Option<u32>| {
            let words = [0, 7, INGRESS_HANDLE, parent, 1];
            let mut bytes: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_ne_bytes()).collect();
            put(&mut bytes, KIND, format!("{kind}\0").as_bytes());
            if let Some(block) = block {
                put(&mut bytes, INGRESS_BLOCK, &block.to_ne_bytes());
            }
            bytes
        };
        let own = Some((7, IngressQdisc::Own));
        assert_eq!(ingress_qdisc(&message(INGRESS, "clsact", None)), own);
        assert_eq!(ingress_qdisc(&message(INGRESS, "ingress", None)), own);
        let shared = Some((7, IngressQdisc::Shared(3)));
        assert_eq!(ingress_qdisc(&message(INGRESS, "ingress", Some(3))), shared);
        assert_eq!(ingress_qdisc(&message(u32::MAX, "fq_codel", None)), None);
        assert_eq!(ingress_qdisc(&[0; 19]), None);
    }

    #[test]
    fn a_qdisc_comes_and_goes() {
        testing::in_namespace(|| {
            let mut client = Client::open().unwrap();
            let facts = client.facts(1, "lo").unwrap();
            assert_eq!(facts, Facts { offload: Offload::Fixed, switch: Vec::new() });
            assert_eq!(client.ingress_qdisc(1).unwrap(), IngressQdisc::None);
            client.add_clsact(1).unwrap();
            assert_eq!(client.add_clsact(1).unwrap_err().errno(), Some(17)); // EEXIST
            assert_eq!(client.ingress_qdisc(1).unwrap(), IngressQdisc::Own);
            assert_eq!(client.devices().unwrap(), [1]);
            assert_eq!(client.count(1, Hook::Ingress).unwrap(), 0);
            client.remove_clsact(1).unwrap();
            assert_eq!(client.ingress_qdisc(1).unwrap(), IngressQdisc::None);
            assert!(client.facts(999, "none").is_err());
        });
    }
}
