// SPDX-License-Identifier: Apache-2.0
//! How wide megaflows are: for fixed tables and packets, how many there are and what they match.
//! A change that narrows them shows here as a difference of a mask or a number.
//!
//! Open vSwitch 3.1 makes the same megaflows of these; `SLIPSWITCH_TEST_ORACLE=1` runs the tests on
//! the real program.

mod layer2;
mod layer3;
mod masks;
mod packets;
mod pipelines;
