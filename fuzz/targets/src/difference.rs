// SPDX-License-Identifier: Apache-2.0
//! Where two large values differ.

use std::fmt::Debug;

/// Characters that are shown around a difference.
const AROUND: usize = 100;

/// Asserts that both are equal.
///
/// # Panics
/// With the places where their texts begin to differ, and what `about` says.
pub fn same<T: Debug + PartialEq>(got: &T, wanted: &T, about: &dyn Fn() -> String) {
    if got == wanted {
        return;
    }
    let (got, wanted) = (format!("{got:?}"), format!("{wanted:?}"));
    let at = got.chars().zip(wanted.chars()).take_while(|(a, b)| a == b).count();
    let part = |text: &str| -> String {
        text.chars().skip(at.saturating_sub(AROUND / 2)).take(AROUND).collect()
    };
    panic!("got ..{}..\nwanted ..{}..\n{}", part(&got), part(&wanted), about());
}
