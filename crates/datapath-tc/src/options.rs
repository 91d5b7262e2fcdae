// SPDX-License-Identifier: Apache-2.0
//! Options in the headers of tunnels. The key of a filter (`TCA_FLOWER_KEY_ENC_OPTS_*`) and the action
//! `tunnel_key` (`TCA_TUNNEL_KEY_ENC_OPTS_*`) have the same attributes.

use netlink::attribute::{nest, put, read};

const GENEVE: u16 = 1;
const VXLAN: u16 = 2;
/// Of an option of Geneve.
const CLASS: u16 = 1;
const TYPE: u16 = 2;
const DATA: u16 = 3;
/// Of VXLAN.
const GROUP_POLICY: u16 = 1;
/// The bits of the group policy that the kernel keeps: identifier, "do not learn", "policy applied".
const GROUP_POLICY_BITS: u32 = 0x0048_ffff;

/// Appends an option of Geneve: class in network order, type, and data, which is not empty.
pub fn put_geneve(bytes: &mut Vec<u8>, class: [u8; 2], kind: u8, data: &[u8]) {
    nest(bytes, GENEVE, |bytes| {
        put(bytes, CLASS, &class);
        put(bytes, TYPE, &[kind]);
        put(bytes, DATA, data);
    });
}

/// Appends the group policy of VXLAN: identifier, and flags as in the header's second byte.
pub fn put_group_policy(bytes: &mut Vec<u8>, id: u16, flags: u8) {
    let word = (u32::from(flags) << 16 | u32::from(id)) & GROUP_POLICY_BITS;
    nest(bytes, VXLAN, |bytes| put(bytes, GROUP_POLICY, &word.to_ne_bytes()));
}

/// Returns options as this module writes them: the kernel shows all of Geneve's in one attribute, and
/// takes each in one of its own. Attributes of other kinds are kept as they are.
pub fn settled(bytes: &[u8]) -> Vec<u8> {
    let mut settled = Vec::new();
    for (kind, value) in read(bytes) {
        if kind != GENEVE {
            nest(&mut settled, kind, |bytes| {
                read(value).for_each(|(kind, value)| put(bytes, kind, value));
            });
            continue;
        }
        let (mut class, mut of_type) = ([0; 2], 0);
        for (kind, value) in read(value) {
            match (kind, value) {
                (CLASS, [high, low]) => class = [*high, *low],
                (TYPE, [number]) => of_type = *number,
                (DATA, data) => put_geneve(&mut settled, class, of_type, data),
                _ => {}
            }
        }
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_as_the_kernel_shows_them_are_those_that_were_asked_for() {
        let mut asked = Vec::new();
        put_geneve(&mut asked, [1, 2], 0x80, &[1; 4]);
        put_geneve(&mut asked, [1, 2], 0x81, &[2; 8]);
        assert_eq!(settled(&asked), asked);
        let mut shown = Vec::new();
        nest(&mut shown, GENEVE, |bytes| {
            for (kind, data) in [(0x80, &[1; 4][..]), (0x81, &[2; 8])] {
                put(bytes, CLASS, &[1, 2]);
                put(bytes, TYPE, &[kind]);
                put(bytes, DATA, data);
            }
        });
        // Without the flag "nested".
        shown[2..4].copy_from_slice(&GENEVE.to_ne_bytes());
        assert_eq!(settled(&shown), asked);
    }

    #[test]
    fn a_group_policy_has_the_bits_that_the_kernel_keeps() {
        let mut bytes = Vec::new();
        put_group_policy(&mut bytes, 0xffff, 0xff);
        assert_eq!(settled(&bytes), bytes);
        let (_, nested) = read(&bytes).next().unwrap();
        assert_eq!(read(nested).next().unwrap().1, 0x0048_ffffu32.to_ne_bytes());
    }
}
