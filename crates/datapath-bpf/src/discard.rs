// SPDX-License-Identifier: Apache-2.0
//! Removes the leftovers of a former daemon when the present daemon does not take them over.

use std::os::fd::AsFd;
use std::path::Path;

use crate::attach;
use crate::attachment::{Config, Unavailable};
use crate::layout::{MAX_PORTS, Port};
use crate::maps::Sizes;
use crate::pins::{Part, Pins};
use crate::shared::Shared;
use crate::{ports, sys};

/// Detaches and unpins the objects in `directory`, and removes the directory. Returns false when
/// nothing was pinned there. Loads no program and makes no map.
///
/// # Errors
///
/// Fails when another daemon uses the directory, or it cannot be opened.
pub fn discard(directory: &Path) -> Result<bool, Unavailable> {
    if !directory.exists() {
        return Ok(false);
    }
    Ok(Pins::open(directory)?.discard())
}

impl Pins {
    /// Does [`discard`] with a directory that this daemon has locked. The memory of connections may
    /// stay in use in this process, without pins.
    pub fn discard(&self) -> bool {
        let is_empty = self.is_empty(Part::Flows) && self.is_empty(Part::Connections);
        remove_filters(self);
        self.remove();
        !is_empty
    }

    /// Detaches and unpins the flows in a directory that this daemon has locked, and removes the
    /// directory if no connections are pinned there. Returns false when no flows were pinned.
    pub fn discard_flows(&self) -> bool {
        let is_empty = self.is_empty(Part::Flows);
        clear(self);
        if self.is_empty(Part::Connections) {
            self.remove();
        }
        !is_empty
    }
}

/// Detaches and unpins the flows in a directory that is ours. The connections stay: another layout
/// of flows does not end them.
pub(crate) fn clear(pins: &Pins) {
    remove_filters(pins);
    pins.clear(Part::Flows);
}

/// Removes the filters of a kernel without links. (Links end with their pins.) Only the table of
/// ports lists the interfaces of the filters, so this build must be able to read that table.
fn remove_filters(pins: &Pins) {
    let Ok(map) = sys::open_pin(&pins.map("ports", None)) else { return };
    let sizes = Sizes::new(&Config::default(), 1); // ports are as many in all
    let is_known = sys::map_info(map.as_fd()).is_ok_and(|i| sizes.check("ports", &i).is_ok());
    if !is_known {
        return;
    }
    let Ok(ports) = Shared::<Port>::map(map.as_fd(), MAX_PORTS as usize) else { return };
    for port in (0..ports.len()).map(|at| ports.read(at)).filter(|port| port.ifindex != 0) {
        attach::remove_filter(map.as_fd(), port.ifindex, ports::side_of(port.flags));
    }
}
