// SPDX-License-Identifier: Apache-2.0
//! Headers in front of packets come and go as in the model datapath. Needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // other tests use the rest
mod support;

use datapath::{Action, Masked, PortNo, PushedNsh, Set};
use datapath_bpf::load::Hook;
use fastrand::Rng;
use flow::Nsh;
use support::fates::*;
use support::*;
use testing::without_root;

/// Actions on headers in front of a packet, and some on those in a frame.
fn front_list(rng: &mut Rng) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut is_bare = rng.bool();
    if is_bare {
        actions.push(Action::PopEth);
    }
    for _ in 0..rng.usize(1..5) {
        let mpls = if rng.bool() { 0x8847 } else { 0x8848 };
        let action = match rng.u8(..12) {
            0 => Action::PopEth,
            1 => Action::PushEth { src: [2; 6], dst: [4; 6] },
            2 | 3 => Action::PushNsh(Box::new(pushed_nsh(rng))),
            4..=6 => Action::PopNsh,
            7 => Action::AddMpls { lse: rng.u32(..), ethertype: mpls },
            8 => Action::PushMpls { lse: rng.u32(..), ethertype: mpls },
            9 => Action::PopMpls { ethertype: [0x6558, mpls, 0x800][rng.usize(..3)] },
            10 => Action::PushVlan { tpid: 0x8100, tci: rng.u16(..) | 0x1000 },
            _ => Action::Set(nsh(rng)),
        };
        is_bare = match &action {
            Action::PopEth | Action::PushNsh(_) | Action::AddMpls { .. } => true,
            Action::PushEth { .. } => false,
            Action::PopNsh | Action::PopMpls { .. } => rng.bool(),
            _ => is_bare,
        };
        actions.push(action);
    }
    if is_bare {
        actions.push(Action::PushEth { src: [6; 6], dst: [8; 6] });
    }
    actions.push(Action::Output(PortNo(OUT_PORT)));
    actions
}

fn pushed_nsh(rng: &mut Rng) -> PushedNsh {
    let mdtype = rng.u8(1..3);
    let context = std::array::from_fn(|_| if mdtype == 1 { rng.u32(..).into() } else { 0.into() });
    let (flags, ttl) = (rng.u8(..4), rng.u8(..64));
    let fields = Nsh { flags, ttl, mdtype, np: 3, path: rng.u32(..).into(), context };
    let bytes = if mdtype == 2 { 4 * rng.usize(..8) } else { 0 };
    PushedNsh { fields, metadata: (0..bytes).map(|_| rng.u8(..)).collect() }
}

fn nsh(rng: &mut Rng) -> Set {
    let octet = |rng: &mut Rng| masked(rng, |[byte]: [u8; 1]| byte);
    Set::Nsh {
        flags: octet(rng),
        ttl: octet(rng),
        path: masked(rng, u32::from_be_bytes),
        context: match rng.bool() {
            true => std::array::from_fn(|_| masked(rng, u32::from_be_bytes)),
            false => [Masked::default(); 4],
        },
    }
}

#[test]
fn headers_in_front_of_packets_come_and_go_as_in_the_model() {
    if without_root() {
        return;
    }
    for (hook, seed, make) in [
        (Hook::Tc, 31, frames::sound as fn(&mut Rng) -> Vec<u8>),
        (Hook::Xdp, 32, frames::sound),
        (Hook::Tc, 33, frames::mangled),
        (Hook::Xdp, 34, frames::mangled),
    ] {
        let (bed, model) = (Site::new(hook), model());
        let mut rng = Rng::with_seed(seed);
        let (mut ran, mut sent) = (0, 0);
        for _ in 0..10_000 {
            let frame = make(&mut rng);
            let actions = front_list(&mut rng);
            if !check(&bed, &model, &frame, &actions) {
                continue;
            }
            ran += 1;
            sent += usize::from(model_fate(&model, &frame, &actions).is_ok());
        }
        eprintln!("{hook:?}: {ran} lists ran here, {sent} packets were sent");
        assert!(ran > 4_000 && sent > 500, "{ran} {sent}");
    }
}

/// Pushes headers of tunnels after headers in front came or went.
fn pushes(hook: Hook, seed: u64, make: fn(&mut Rng) -> Vec<u8>, with_checksum: bool) {
    let bed = Site::new(hook);
    let model = bed.model();
    let (mut rng, mut ran, mut sent) = (Rng::with_seed(seed), [0; 2], [0; 2]);
    for _ in 0..10_000 {
        let frame = make(&mut rng);
        let mut actions = front_list(&mut rng);
        let has_checksum = with_checksum && rng.bool();
        let is_bare = rng.bool();
        actions.pop();
        if is_bare && rng.bool() {
            actions = vec![Action::PopEth, Action::CtClear]; // two instructions take it off
        } else if is_bare && matches!(actions.last(), Some(Action::PushEth { .. })) {
            actions.pop();
        }
        actions.push(tunnels::push(match is_bare {
            true => tunnels::bare_header(&mut rng, has_checksum),
            false => tunnels::header(&mut rng, has_checksum),
        }));
        actions.push(Action::Output(PortNo(OUT_PORT)));
        let Some(got) = bpf_fate(&bed, &frame, &actions) else { continue };
        let mut expected = model_fate(&model, &frame, &actions);
        if let (Ok(expected), Ok(got)) = (&mut expected, &got) {
            tunnels::take_identification(expected, got);
            sent[usize::from(is_bare)] += 1;
        }
        assert_same(&bed, &frame, &actions, (got, expected));
        ran[usize::from(is_bare)] += 1;
    }
    eprintln!("{hook:?}: {ran:?} lists ran here, {sent:?} packets were sent");
    assert!(ran.iter().chain(&sent).all(|n| *n > 20), "{ran:?} {sent:?}");
}

#[test]
fn packets_with_headers_in_front_enter_tunnels_as_in_the_model() {
    if without_root() {
        return;
    }
    pushes(Hook::Tc, 41, frames::sound, true);
    pushes(Hook::Xdp, 42, frames::sound, true);
    pushes(Hook::Tc, 43, frames::mangled, false);
    pushes(Hook::Xdp, 44, frames::mangled, false);
}

#[test]
fn headers_in_front_keep_the_sum_that_a_card_computed() {
    if without_root() {
        return;
    }
    let bed = Site::new(Hook::Tc);
    let mut rng = Rng::with_seed(51);
    if !has_sums(&bed) {
        return; // an older kernel
    }
    let mut ran = 0;
    for _ in 0..20_000 {
        let (frame, actions) = (frames::sound(&mut rng), front_list(&mut rng));
        // The sum after the kernel has moved a tag into or out of the frame, and that of labels within a frame,
        // are not examined here.
        let is_within = |a: &Action| {
            matches!(a, Action::PushMpls { .. } | Action::PopMpls { .. } | Action::PushVlan { .. })
        };
        if matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8])
            || actions.iter().any(is_within)
            || !install(&bed, &frame, &actions)
        {
            continue;
        }
        ran += usize::from(assert_sum_is_kept(&bed, &frame, &actions));
    }
    eprintln!("{ran} packets were sent");
    assert!(ran > 500, "{ran}");
}
