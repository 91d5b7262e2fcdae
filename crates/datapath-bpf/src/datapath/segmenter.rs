// SPDX-License-Identifier: Apache-2.0
//! Devices that segment packets whose segments get outer headers (`bpf/segmenter.h`).

use super::{BpfDatapath, lock};
use crate::attach::{AttachPoint, Attached};
use crate::attachment::AttachError;
use crate::layout::ConfigEntry;
use datapath::Side;
use datapath::offload::Segmenter;
use std::mem::offset_of;

/// Name of the program at the device.
const PROGRAM: &str = "entry_tc_segment";

/// The program that takes segments. It stays attached while this exists, so that none leaves by the device.
pub(super) struct Segments {
    /// `None`: the devices get no more packets.
    segmenter: Option<Segmenter>,
    _attached: Attached,
}

impl BpfDatapath {
    /// Gives `segmenter` the packets that cannot have outer headers while they are whole; `None`: such packets
    /// go up. The caller deletes the devices after that.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses the program; the devices get no packets then.
    pub fn set_segmenter(&self, segmenter: Option<&Segmenter>) -> Result<(), AttachError> {
        let mut held = lock(&self.segmenter);
        if segmenter.is_some()
            && held.as_ref().and_then(|held| held.segmenter.as_ref()) == segmenter
        {
            return Ok(());
        }
        let pin = self.pins.as_ref().map(|pins| pins.segmenter());
        self.maps().config.store_half(0, offset_of!(ConfigEntry, segmenter), 0);
        let Some(&segmenter) = segmenter else {
            if let Some(held) = &mut *held {
                held.segmenter = None;
            }
            pin.iter().filter(|path| path.exists()).for_each(|path| crate::pins::unpin(path));
            return Ok(());
        };
        let ifindex = segmenter.exit;
        let program = self.program(PROGRAM).ok_or_else(|| super::missing(ifindex, "tc"))?;
        let _attached = AttachPoint { program, ifindex, pin }.tc(Side::Stack)?;
        *held = Some(Segments { segmenter: Some(segmenter), _attached });
        let entrance = segmenter.entrance;
        self.maps().config.store_half(0, offset_of!(ConfigEntry, segmenter), entrance);
        Ok(())
    }
}
