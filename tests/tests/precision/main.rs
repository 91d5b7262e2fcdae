//! How wide megaflows are: for fixed tables and packets, how many there are and what they match.
//! A change that narrows them shows here as a difference of a mask or a number.
//!
//! With `SLIPSWITCH_TEST_ORACLE=1` the real program gets the same; where it differs, its figures
//! stand beside ours with the reason.

mod layer2;
mod layer3;
mod masks;
mod packets;
mod pipelines;
