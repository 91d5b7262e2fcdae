// SPDX-License-Identifier: Apache-2.0
//! The page of a run: goals, machine, tables and plots.

pub mod goals;
pub mod machine;
pub mod markdown;
pub mod number;
pub mod plot;
pub mod results;
pub mod table;
