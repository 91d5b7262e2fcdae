// SPDX-License-Identifier: Apache-2.0
//! Tests against messages from Open vSwitch 3.1, and of totality.

use super::*;

mod printed;
mod robust;
mod round_trip;
mod vectors;
