// SPDX-License-Identifier: Apache-2.0
//! Placement over a model of the base, and over providers that the tests control.

mod adoption;
mod card;
mod fakes;
mod flows;
mod migration;
mod misses;
mod moved;
mod peer;
mod ports;
mod rx_ownership;
