//! Real packets between network namespaces on plain veth pairs, nothing switched on or off by
//! hand. Needs root; without it each test says SKIPPED.

mod explanations;
mod fastpath;
mod flood;
mod lifecycle;
mod survival;
mod taps;
mod tools;
mod traffic;
mod tutorial;
