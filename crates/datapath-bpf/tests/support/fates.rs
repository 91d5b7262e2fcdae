// SPDX-License-Identifier: Apache-2.0
//! The fates of packets here and in the model datapath.

use std::collections::BTreeMap;
use std::sync::Arc;

use datapath::{Action, Counters, DropReason, Masked, Packets, PortKind, PortNo, PortSpec, Ports};
use datapath_bpf::encode::{self, Effect};
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_model::Model;
use fastrand::Rng;
use flow::extract::key_of;
use packet::Packet;

use super::*;

pub const EXACT: [u64; WORDS] = [u64::MAX; WORDS];
pub const REDIRECT: [u32; 2] = [7 /* TC_ACT_REDIRECT */, 4 /* XDP_REDIRECT */];
pub const DROP: [u32; 2] = [2, 1];
/// At XDP.
pub const PASS: u32 = 2;

/// The programs of a hook.
pub struct Site {
    pub hook: Hook,
    bed: Bed,
}

impl Site {
    pub fn new(hook: Hook) -> Site {
        let bed = Bed::new(hook);
        tunnels::put_port(&bed.maps, u32::MAX - 700); // numbers begin again at 0
        Site { hook, bed }
    }

    /// Returns the model whose packets have the numbers of those that programs have sent last.
    pub fn model(&self) -> Arc<Model> {
        let model = model();
        let numbers = Arc::new(tunnels::LastNumbers(self.bed.maps.clone()));
        model.share_sequence(PortNo(tunnels::TUNNEL_PORT), numbers);
        model
    }
}

impl std::ops::Deref for Site {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

pub fn model() -> Arc<Model> {
    model_with_mtu(1500)
}

pub fn model_with_mtu(mtu: u32) -> Arc<Model> {
    let model = Model::new("model", clock::Clock::new(), 8, 1);
    for n in 1..=OTHER_PORT {
        let spec = PortSpec {
            name: format!("p{n}"),
            kind: PortKind::System,
            options: BTreeMap::new(),
            other_config: BTreeMap::new(),
            wanted: Some(PortNo(n)),
            mac: None,
            mtu: Some(mtu),
        };
        model.add_port(&spec).unwrap();
    }
    let tunnel = PortSpec {
        name: "tunnel".to_owned(),
        kind: PortKind::Tunnel(tunnel::Kind::Vxlan),
        options: BTreeMap::new(),
        other_config: BTreeMap::new(),
        wanted: Some(PortNo(tunnels::TUNNEL_PORT)),
        mac: None,
        mtu: None,
    };
    model.add_port(&tunnel).unwrap();
    model
}

pub fn hex(frame: &[u8]) -> String {
    frame.iter().map(|b| format!("{b:02x}")).collect()
}

/// The fate of a frame: the bytes that were sent, or the drop reason.
pub type Fate = Result<Vec<u8>, DropReason>;

pub fn model_fate(model: &Model, frame: &[u8], actions: &[Action]) -> Fate {
    let before = REASONS.map(|r| model.drops(r));
    let key = key_of(frame, IN_PORT);
    model.execute(Packet::from_slice(frame), &key, actions);
    let mut sent = model.take_sent(PortNo(OUT_PORT));
    let copies = model.take_sent(PortNo(OTHER_PORT));
    if let Some(packet) = sent.pop() {
        assert!(sent.is_empty());
        assert!(copies.iter().all(|copy| copy.data() == packet.data()));
        return Ok(packet.data().to_vec());
    }
    let after = REASONS.map(|r| model.drops(r));
    Err(REASONS.into_iter().zip(before.iter().zip(after)).find(|(_, (b, a))| *b != a).unwrap().0)
}

pub const REASONS: [DropReason; 5] = [
    DropReason::Malformed,
    DropReason::Meter,
    DropReason::OutputTooLong,
    DropReason::RecirculationLimit,
    DropReason::TunnelPush,
];

/// Installs `actions` for the key of `frame`; false where this hook does not run them.
pub fn install(bed: &Site, frame: &[u8], actions: &[Action]) -> bool {
    let Ok(encoded) = encode::encode(actions) else { return false };
    let bit = if bed.hook == Hook::Tc { HOOK_TC } else { HOOK_XDP };
    if encoded.hooks.bits() & bit == 0 {
        return false;
    }
    let mut flow = bed.flow(&key_of(frame, IN_PORT), &EXACT);
    match encoded.effect {
        Effect::Output(port) => flow.output = port.0,
        Effect::Drop(reason) => flow.reason = reason as u32,
        Effect::Program(_) => bed.put_program(&mut flow, actions),
        Effect::Pop(port) => panic!("no tunnel port {port}"),
    }
    bed.install(&flow, &EXACT);
    true
}

/// `None`: not run here.
pub fn bpf_fate(bed: &Site, frame: &[u8], actions: &[Action]) -> Option<Fate> {
    let mut actions = actions.to_vec();
    if bed.hook == Hook::Tc {
        // A run does not return a tag that is stored apart from the frame at its end. One more tag
        // puts it into the frame.
        actions.insert(actions.len() - 1, Action::PushVlan { tpid: 0x8100, tci: 1 });
    }
    if !install(bed, frame, &actions) {
        return None;
    }
    let before = bed.counters().drops;
    let Ok((outcome, _)) = bed.repeat(frame, 1) else { return None };
    if bed.stats().packets == 0 {
        return None; // not parsed
    }
    let at = usize::from(bed.hook == Hook::Xdp);
    let after = bed.counters().drops;
    if outcome.verdict == REDIRECT[at] {
        assert_eq!(before, after);
        return Some(Ok(outcome.frame));
    }
    if bed.hook == Hook::Xdp && outcome.verdict == PASS {
        assert_eq!(outcome.frame, frame, "it left as it arrived");
        return None;
    }
    assert_eq!(outcome.verdict, DROP[at]);
    let upcalls = DropReason::UpcallLimit as usize;
    if before[upcalls] != after[upcalls] {
        return None; // it went up at a push, and there is no miss device
    }
    let reason = REASONS.into_iter().find(|r| before[*r as usize] != after[*r as usize]);
    Some(Err(reason.unwrap_or_else(|| panic!("{before:?} {after:?} {actions:?} {}", hex(frame)))))
}

pub fn check(bed: &Site, model: &Model, frame: &[u8], actions: &[Action]) -> bool {
    let Some(got) = bpf_fate(bed, frame, actions) else { return false };
    assert_same(bed, frame, actions, (got, model_fate(model, frame, actions)));
    true
}

/// Checks that a packet's fate here, the first one, is that in the model.
#[track_caller]
pub fn assert_same(bed: &Site, frame: &[u8], actions: &[Action], (got, expected): (Fate, Fate)) {
    assert!(
        got == expected,
        "{:?} {actions:?}\n     of {}\n    got {:?}\nexpected {:?}",
        bed.hook,
        hex(frame),
        got.map(|f| hex(&f)),
        expected.map(|f| hex(&f))
    );
}

/// Runs a frame whose sum a card has computed (`BPF_F_TEST_SKB_CHECKSUM_COMPLETE`, Linux 6.17). The run
/// fails with EBADMSG when skb->csum is not the sum of the packet any more.
fn run_with_sum(bed: &Site, frame: &[u8]) -> std::io::Result<u32> {
    let flag = libbpf_sys::BPF_F_TEST_SKB_CHECKSUM_COMPLETE;
    bed.test_run(frame, 1, flag).map(|(outcome, _)| outcome.verdict)
}

/// Returns false where the kernel is too old for [`assert_sum_is_kept`].
pub fn has_sums(bed: &Site) -> bool {
    run_with_sum(bed, &frames::sound(&mut Rng::with_seed(1))).is_ok()
}

/// Checks that a frame's sum is right after the installed actions. Returns true when the packet was sent.
#[track_caller]
pub fn assert_sum_is_kept(bed: &Site, frame: &[u8], actions: &[Action]) -> bool {
    match run_with_sum(bed, frame) {
        Ok(verdict) => verdict == REDIRECT[0],
        Err(e) => {
            assert_ne!(e.raw_os_error(), Some(libc::EBADMSG), "{actions:?} {}", hex(frame));
            false
        }
    }
}

pub fn masked<T: Copy, const N: usize>(rng: &mut Rng, of: fn([u8; N]) -> T) -> Masked<T> {
    let mask: [u8; N] = match rng.u8(..4) {
        0 => [0; N],
        1 => std::array::from_fn(|_| rng.u8(..)),
        _ => [0xff; N],
    };
    let zero = rng.u8(..5) == 0;
    let value = mask.map(|m| if zero { 0 } else { rng.u8(..) & m });
    Masked { value: of(value), mask: of(mask) }
}
