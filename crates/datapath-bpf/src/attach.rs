// SPDX-License-Identifier: Apache-2.0
//! Attaches the entry programs to interfaces.
//!
//! The skb hook is a tcx link (Linux 6.6); where the kernel has none, a filter on a clsact
//! qdisc. XDP is a link. Links are pinned; a filter stays by itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use datapath::Side;
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};

use crate::attachment::{AttachError, XdpMode};
use crate::{clsact, sys};

/// Handle and priority of our filter; seldom taken by others.
const FILTER_HANDLE: u32 = 0x736c;
const FILTER_PRIORITY: u32 = 0x736c;

/// One program on one interface.
pub(crate) enum Attached {
    /// A link; detached when it is dropped, if it is not pinned.
    Link {
        /// Descriptor of the link.
        link: OwnedFd,
        /// Path where the link is pinned.
        pin: Option<PathBuf>,
    },
    /// A filter on a clsact qdisc.
    Filter {
        /// Index of the interface.
        ifindex: u32,
        /// Side of the interface.
        side: Side,
    },
}

/// A program, and the interface and hook that it attaches to.
pub(crate) struct AttachPoint<'a> {
    /// Descriptor of the program.
    pub(crate) program: BorrowedFd<'a>,
    /// Index of the interface.
    pub(crate) ifindex: u32,
    /// Path where the link is pinned.
    pub(crate) pin: Option<PathBuf>,
}

/// False once the kernel turned out to have no tcx links.
static TCX: AtomicBool = AtomicBool::new(true);

impl AttachPoint<'_> {
    fn refused(&self, hook: &'static str) -> impl Fn(io::Error) -> AttachError + use<> {
        let ifindex = self.ifindex;
        move |source| AttachError::Kernel { ifindex, hook, source }
    }

    /// Attaches to the skb hook, by a tcx link or, before Linux 6.6, a filter.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses, or the link cannot be pinned.
    pub(crate) fn tc(self, side: Side) -> Result<Attached, AttachError> {
        let (hook, kind) = match side {
            Side::Device | Side::Underlay => ("tcx ingress", libbpf_sys::BPF_TCX_INGRESS),
            Side::Stack => ("tcx egress", libbpf_sys::BPF_TCX_EGRESS),
        };
        if let Some(link) = self.adopt() {
            return Ok(link);
        }
        if TCX.load(Ordering::Relaxed) {
            match sys::create_link(self.program, self.ifindex, kind, 0) {
                Ok(link) => return self.keep(link),
                // EINVAL: no such kind of link. An interface that is not there is ENODEV.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    if TCX.swap(false, Ordering::Relaxed) {
                        tracing::info!(target: "dpif", "this kernel has no tcx links: clsact filters are used");
                    }
                }
                Err(e) => return Err(self.refused(hook)(e)),
            }
        }
        self.filter(side)
    }

    /// Attaches a filter on a clsact qdisc, in place of one of ours that was there.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses.
    pub(crate) fn filter(self, side: Side) -> Result<Attached, AttachError> {
        let (name, point) = match side {
            Side::Device | Side::Underlay => ("clsact ingress", TC_INGRESS),
            Side::Stack => ("clsact egress", TC_EGRESS),
        };
        let refused = self.refused(name);
        let hook = || {
            let mut builder = TcHookBuilder::new(self.program);
            builder.ifindex(self.ifindex as i32).replace(true);
            builder.handle(FILTER_HANDLE).priority(FILTER_PRIORITY);
            builder.hook(point)
        };
        if let Err(e) = hook().create()
            && e.kind() != libbpf_rs::ErrorKind::AlreadyExists
        {
            return Err(refused(system(&e)));
        }
        hook().attach().map_err(|e| refused(system(&e)))?;
        Ok(Attached::Filter { ifindex: self.ifindex, side })
    }

    /// Attaches to XDP in this mode.
    ///
    /// # Errors
    ///
    /// Fails when the driver or the kernel refuses, or the link cannot be pinned.
    pub(crate) fn xdp(self, mode: XdpMode) -> Result<Attached, AttachError> {
        // include/uapi/linux/if_link.h: XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE.
        let (hook, flags) = match mode {
            XdpMode::Driver => ("XDP in the driver", 1 << 2),
            XdpMode::Generic => ("generic XDP", 1 << 1),
        };
        if let Some(link) = self.adopt() {
            return Ok(link);
        }
        match sys::create_link(self.program, self.ifindex, libbpf_sys::BPF_XDP, flags) {
            Ok(link) => self.keep(link),
            Err(e) => Err(self.refused(hook)(e)),
        }
    }

    /// Returns the pinned link, if it is on this interface, after putting this program into it.
    fn adopt(&self) -> Option<Attached> {
        let path = self.pin.as_deref()?;
        let link = sys::open_pin(path).ok()?;
        if sys::link_ifindex(link.as_fd()).ok() == Some(self.ifindex)
            && sys::update_link(link.as_fd(), self.program).is_ok()
        {
            return Some(Attached::Link { link, pin: self.pin.clone() });
        }
        release_pin(path);
        None
    }

    fn keep(self, link: OwnedFd) -> Result<Attached, AttachError> {
        if let Some(path) = &self.pin {
            sys::pin(link.as_fd(), path)
                .map_err(|source| AttachError::Pin { path: path.clone(), source })?;
        }
        Ok(Attached::Link { link, pin: self.pin })
    }
}

/// Detaches and unpins the link at `path`, if there is one.
pub(crate) fn release_pin(path: &Path) {
    let Ok(link) = sys::open_pin(path) else { return };
    let _ = sys::detach_link(link.as_fd()); // its device may be gone
    if let Err(e) = std::fs::remove_file(path) {
        tracing::warn!(target: "dpif", "could not unpin {} ({e})", path.display());
    }
}

/// Removes our filter from an interface, if it is there, and with the last filter its qdisc. `any`
/// is any descriptor: the library requires one, but uses it only to attach.
pub(crate) fn remove_filter(any: BorrowedFd<'_>, ifindex: u32, side: Side) {
    let mut hook = TcHook::new(any);
    let point = if side == Side::Stack { TC_EGRESS } else { TC_INGRESS };
    hook.ifindex(ifindex as i32).attach_point(point);
    hook.handle(FILTER_HANDLE).priority(FILTER_PRIORITY);
    if hook.detach().is_err() {
        return; // gone with its interface, or there was none
    }
    if let Err(e) = clsact::remove_unused(any, ifindex) {
        tracing::debug!(target: "dpif", "the clsact qdisc of interface index {ifindex} stays ({e})");
    }
}

impl Attached {
    /// Unpins the program. The kernel detaches it some time later. A filter stays.
    pub(crate) fn unpin(self) {
        let Attached::Link { link, pin } = self else { return };
        drop(link); // the pin's is the last reference, and the kernel drops it on a thread of its own
        remove_pin(pin);
    }

    /// Detaches and unpins. `program` is any descriptor, as in [`remove_filter`].
    pub(crate) fn detach(self, program: BorrowedFd<'_>) {
        match self {
            Attached::Link { link, pin } => {
                let _ = sys::detach_link(link.as_fd()); // its device may be gone
                remove_pin(pin);
            }
            Attached::Filter { ifindex, side } => remove_filter(program, ifindex, side),
        }
    }
}

fn remove_pin(pin: Option<PathBuf>) {
    if let Some(path) = pin
        && let Err(e) = std::fs::remove_file(&path)
    {
        tracing::warn!(target: "dpif", "could not unpin {} ({e})", path.display());
    }
}

/// Converts an error of libbpf to one of the system.
fn system(error: &libbpf_rs::Error) -> io::Error {
    use libbpf_rs::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::PermissionDenied => io::ErrorKind::PermissionDenied,
        Kind::NotFound => io::ErrorKind::NotFound,
        Kind::AlreadyExists => io::ErrorKind::AlreadyExists,
        Kind::OutOfMemory => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::Config;
    use crate::load::{self, Hook};
    use crate::maps::Sizes;
    use crate::settings::VariantSettings;
    use std::collections::HashMap;
    use std::process::Command;

    fn tc(line: &str) -> String {
        let output = Command::new("tc").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "tc {line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn filters(direction: &str) -> usize {
        tc(&format!("filter show dev lo {direction}")).matches("0x736c").count()
    }

    fn has_qdisc() -> bool {
        tc("qdisc show dev lo").contains("clsact")
    }

    fn filters_come_and_go() {
        let sizes = Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 1);
        let settings = VariantSettings::full(&sizes, &[1; _], 1, false);
        let name = "entry_tc_ingress";
        let loaded = load::load(Hook::Tc, Some(name), &settings, &sizes, &HashMap::new()).unwrap();
        let fd = loaded.program(name).unwrap();
        let point = || AttachPoint { program: fd.as_fd(), ifindex: 1, pin: None };
        for (side, direction) in [(Side::Device, "ingress"), (Side::Stack, "egress")] {
            let first = point().filter(side).unwrap();
            point().filter(side).unwrap(); // a new daemon's, in its place
            assert_eq!(filters(direction), 1);
            first.detach(fd.as_fd());
            assert!(!has_qdisc());
        }
        // The last filter takes the qdisc with it, and no other one's filter.
        let ingress = point().filter(Side::Device).unwrap();
        point().filter(Side::Stack).unwrap().detach(fd.as_fd());
        assert_eq!((filters("ingress"), filters("egress")), (1, 0));
        let mut others = TcHookBuilder::new(fd.as_fd());
        let mut other = others.ifindex(1).handle(1).priority(7).hook(TC_EGRESS).attach().unwrap();
        ingress.detach(fd.as_fd());
        assert_eq!(filters("ingress"), 0);
        assert!(has_qdisc());
        other.detach().unwrap();
        // Nor one that was never ours.
        remove_filter(fd.as_fd(), 1, Side::Device);
        assert!(has_qdisc());
    }

    fn ip(line: &str) {
        let output = Command::new("ip").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {line}: {output:?}");
    }

    /// A program without support for frames in several buffers is refused where such frames exist.
    fn large_mtus_take_a_program_for_them() {
        ip("link add big mtu 9000 type veth peer name large mtu 9000");
        // SAFETY: a string that ends with NUL.
        let ifindex = unsafe { libc::if_nametoindex(c"big".as_ptr()) };
        let sizes = Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 1);
        let attach = |frags| {
            let settings = VariantSettings::full(&sizes, &[1; _], 1, frags);
            let name = "entry_xdp";
            let loaded = load::load(Hook::Xdp, Some(name), &settings, &sizes, &HashMap::new());
            let fd = loaded.unwrap().program(name).unwrap();
            AttachPoint { program: fd.as_fd(), ifindex, pin: None }.xdp(XdpMode::Driver).map(drop)
        };
        match attach(false) {
            Err(AttachError::Kernel { source, .. }) => {
                assert_eq!(source.raw_os_error(), Some(libc::ERANGE));
            }
            other => panic!("{other:?}"),
        }
        if load::have_frags() {
            attach(true).unwrap();
        }
    }

    #[test]
    fn a_program_for_one_buffer_is_refused_at_a_large_mtu() {
        testing::in_namespace_as_root(large_mtus_take_a_program_for_them);
    }

    #[test]
    fn where_there_is_no_tcx() {
        testing::in_namespace_as_root(filters_come_and_go);
    }
}
