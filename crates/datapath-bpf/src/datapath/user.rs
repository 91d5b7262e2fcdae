// SPDX-License-Identifier: Apache-2.0
//! Users' own programs at the XDP hook of a port.

use std::os::fd::OwnedFd;
use std::path::Path;

use datapath::{Megaflow, PortNo, Refusal};

use super::{BpfDatapath, lock};
use crate::capabilities::Capabilities;
use crate::layout::MAX_PORTS;
use crate::load::Hook;
use crate::object::{ObjectError, UserObject};

impl BpfDatapath {
    /// Loads the user's object at `path` for the XDP hook of `port`, in place of the built-in
    /// program. `None` selects the built-in program again. Detaches the present program; the next
    /// [`BpfDatapath::attach`] attaches the new one. When this returns, flows that the program
    /// cannot run are at the skb hook. The verifier may take a second.
    ///
    /// # Errors
    ///
    /// Returns the defect of the object. The port is then in the same state as after `None`.
    pub fn use_object(&self, port: PortNo, path: Option<&Path>) -> Result<(), ObjectError> {
        let loaded = path.map(|path| self.load_object(path)).transpose();
        let mut held = lock(&self.ports);
        let mut objects = lock(&self.objects);
        let old = objects.remove(&port.0);
        if old.is_some() || matches!(loaded, Ok(Some(_))) {
            match held.get_mut(&port.0) {
                Some(entry) => {
                    self.leave_hook(Hook::Xdp, port.0, entry);
                    entry.attachment.hooks.xdp = None;
                }
                None => self.release_links(port.0, Hook::Xdp), // a former daemon's
            }
        }
        let object = match loaded {
            Ok(object) => object.filter(|_| port.0 < MAX_PORTS),
            Err(e) => {
                let _ = self.flows.limit(port, None); // nothing to wait for
                return Err(e);
            }
        };
        let limit = object.as_ref().map(|o| o.capabilities);
        self.flows.limit(port, limit).map_err(ObjectError::Wait)?;
        if let Some(object) = object {
            objects.insert(port.0, object);
        }
        Ok(())
    }

    fn load_object(&self, path: &Path) -> Result<UserObject, ObjectError> {
        let station = self.station(Hook::Xdp).ok_or(ObjectError::NoXdp)?;
        UserObject::load(path, &self.variants.full(), &station.maps)
    }

    /// Returns the capabilities that the user's program of a port declares; `None` when the port
    /// has no such program.
    pub fn capabilities(&self, port: PortNo) -> Option<Capabilities> {
        lock(&self.objects).get(&port.0).map(|object| object.capabilities)
    }

    /// Returns the user's program of a port, for tests of the program.
    pub fn user_program(&self, port: PortNo) -> Option<OwnedFd> {
        lock(&self.objects).get(&port.0)?.program.try_clone().ok()
    }

    /// Checks whether XDP can run the flow.
    ///
    /// # Errors
    ///
    /// Refuses for the flow's actions, for missing room, or because a user's program on the ingress
    /// port supports less than the built-in one.
    pub fn suits_xdp(&self, flow: &Megaflow) -> Result<(), Refusal> {
        self.flows.suits_xdp(flow)
    }
}
