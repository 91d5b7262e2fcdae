// SPDX-License-Identifier: Apache-2.0
//! Interfaces of internal ports that an earlier run left, in other network namespaces.
//!
//! Who uses an internal port may move it into a container's namespace, and call it something else
//! there. It outlives the switch there as it would at home. The next run looks for it before it
//! makes one: a second one by that name would have no user.

use crate::link;
use crate::namespace::{self, Identity};
use crate::open_error::OpenError;
use crate::tap_interface::{self, Attached, port_of};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Whose the interfaces are that outlive a run of the switch, and what an earlier run of his left
/// elsewhere. Clones look there once together, when the first internal port is opened that is not
/// at home; so keep one for as long as the run lasts.
#[derive(Clone, Debug)]
pub struct Owner {
    name: String,
    orphans: Arc<OnceLock<BTreeMap<String, Orphan>>>,
}

/// Where an interface is.
#[derive(Debug)]
struct Orphan {
    namespace: PathBuf,
    identity: Identity,
    /// What it is called there.
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
    /// The name that tells this switch's interfaces from another's; the last 200 bytes count.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface that was made for `port`, when it is in another namespace that a process or
    /// a name leads to.
    ///
    /// # Errors
    ///
    /// It is there and cannot be had.
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
            .filter(|attached| !attached.created); // it has gone in this moment
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

/// Interfaces of `owner` in all namespaces but the calling thread's, by their ports.
fn search(owner: &str) -> BTreeMap<String, Orphan> {
    let own = namespace::own().ok();
    let others = namespace::all().filter(|found| Some(found.identity) != own);
    let mut orphans = BTreeMap::new();
    for namespace::Found { path, identity, namespace } in others {
        // Some are not for us to enter.
        for (port, name) in ports_in(namespace, owner).unwrap_or_default() {
            orphans.insert(port, Orphan { namespace: path.clone(), identity, name });
        }
    }
    orphans
}

/// Ports of `owner`, and what their interfaces are called there.
fn ports_in(namespace: File, owner: &str) -> io::Result<Vec<(String, String)>> {
    let links = namespace::within(namespace.into(), link::list)?;
    let of_owner = links.into_iter().filter_map(|link| {
        let port = port_of(&link, owner)?.to_owned();
        Some((port, link.name))
    });
    Ok(of_owner.collect())
}
