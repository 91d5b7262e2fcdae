// SPDX-License-Identifier: Apache-2.0
//! Interfaces of internal ports of an earlier run in other network namespaces.
//!
//! A user may move the interface of an internal port into a container's namespace and rename it
//! there. It outlives the switch there like in the switch's own namespace. The next run searches it
//! before it creates a new interface: a second one of that name would have no user.

use crate::link;
use crate::namespace::{self, Identity};
use crate::open_error::OpenError;
use crate::tap_interface::{self, Attached, port_of};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The owner of persistent interfaces, and the interfaces of its earlier runs in other network
/// namespaces. All clones share one search, made when the first internal port is opened whose
/// interface is not in the own namespace. So keep one clone during the whole run.
#[derive(Clone, Debug)]
pub struct Owner {
    name: String,
    orphans: Arc<OnceLock<BTreeMap<String, Orphan>>>,
}

/// The location of an interface.
#[derive(Debug)]
struct Orphan {
    namespace: PathBuf,
    identity: Identity,
    /// Its name there.
    name: String,
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.name == other.name
    }
}

impl Eq for Owner {}

impl<T: Into<String>> From<T> for Owner {
    fn from(name: T) -> Owner {
        Owner { name: name.into(), orphans: Arc::default() }
    }
}

impl Owner {
    /// Returns the name that distinguishes interfaces of several switches. Its last 200 bytes are
    /// significant.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Attaches to the interface of `port` if it is in another network namespace that is reachable
    /// through a process or a name.
    ///
    /// # Errors
    ///
    /// The interface exists and cannot be attached.
    pub(crate) fn attach_orphan(&self, port: &str) -> Result<Option<Attached>, OpenError> {
        let Some(orphan) = self.orphans.get_or_init(|| search(&self.name)).get(port) else {
            return Ok(None);
        };
        let Ok(namespace) = File::open(&orphan.namespace) else { return Ok(None) };
        if namespace::identity(&namespace).ok() != Some(orphan.identity) {
            return Ok(None);
        }
        let name = orphan.name.clone();
        let attach = move || Ok(link::exists(&name).then(|| tap_interface::attach(&name)));
        let attached = namespace::within(namespace.into(), attach)
            .map_err(OpenError::system(port, "entering the network namespace of its interface"))?
            .transpose()?
            .filter(|attached| !attached.created); // it vanished in this moment
        if attached.is_some() {
            tracing::info!(
                target: "netdev_linux",
                "{port}: an earlier daemon's interface is in another network namespace, as {}",
                orphan.name,
            );
        }
        Ok(attached)
    }
}

/// Returns the interfaces of `owner` in all namespaces but the calling thread's, by port.
fn search(owner: &str) -> BTreeMap<String, Orphan> {
    let own = namespace::own().ok();
    let others = namespace::all().filter(|found| Some(found.identity) != own);
    let mut orphans = BTreeMap::new();
    for namespace::FoundNamespace { path, identity, namespace } in others {
        // Namespaces that the process may not enter are skipped.
        for (port, name) in ports_in(namespace, owner).unwrap_or_default() {
            orphans.insert(port, Orphan { namespace: path.clone(), identity, name });
        }
    }
    orphans
}

/// Returns the ports of `owner` in `namespace` and the names of their interfaces.
fn ports_in(namespace: File, owner: &str) -> io::Result<Vec<(String, String)>> {
    let links = namespace::within(namespace.into(), link::list)?;
    let of_owner = links.into_iter().filter_map(|link| {
        let port = port_of(&link, owner)?.to_owned();
        Some((port, link.name))
    });
    Ok(of_owner.collect())
}
