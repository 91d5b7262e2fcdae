// SPDX-License-Identifier: Apache-2.0
//! The metadata of a tunnel in the fields of a datapath's key.

use crate::metadata::{Erspan, Extension, Gbp, Gtpu, Metadata};
use crate::options::Options;
use flow::{Key, Tunnel};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Metadata {
    /// Returns the metadata in the fields of a datapath's key.
    pub fn of_key(key: &Key) -> Metadata {
        Metadata::of_fields(&key.tunnel)
    }

    /// Returns the metadata in the tunnel fields of a datapath's key.
    pub fn of_fields(fields: &Tunnel) -> Metadata {
        let is_v6 = fields.ipv6_dst != [0; 16] || fields.ipv6_src != [0; 16];
        let (src, dst): (IpAddr, IpAddr) = if is_v6 {
            (Ipv6Addr::from(fields.ipv6_src).into(), Ipv6Addr::from(fields.ipv6_dst).into())
        } else {
            (
                Ipv4Addr::from_bits(fields.src.get()).into(),
                Ipv4Addr::from_bits(fields.dst.get()).into(),
            )
        };
        let (gbp_id, gbp_flags) = (fields.gbp_id.get(), fields.gbp_flags);
        let extension = match fields.erspan_ver {
            1 => Extension::Erspan(Erspan::V1 { index: fields.erspan_idx.get() }),
            2 => Extension::Erspan(Erspan::V2 {
                is_egress: fields.erspan_dir != 0,
                hardware_id: fields.erspan_hwid,
            }),
            _ if (fields.gtpu_flags, fields.gtpu_msgtype) != (0, 0) => {
                Extension::Gtpu(Gtpu { flags: fields.gtpu_flags, msgtype: fields.gtpu_msgtype })
            }
            _ if (gbp_id, gbp_flags) != (0, 0) => {
                Extension::Gbp(Gbp { id: gbp_id, flags: gbp_flags })
            }
            _ => Extension::None,
        };
        Metadata {
            tun_id: fields.id.get(),
            src,
            dst,
            tos: fields.tos,
            ttl: fields.ttl,
            tp_src: fields.tp_src.get(),
            tp_dst: fields.tp_dst.get(),
            flags: fields.flags.get(),
            extension,
            options: Options::new(fields.raw_options()).unwrap_or_default(),
        }
    }

    /// Stores the metadata in the fields of a datapath's key. Group policy of zero has no place of its
    /// own: it reads as none.
    pub fn write_to(&self, key: &mut Key) {
        key.tunnel = self.fields();
    }

    /// Returns the fields of a datapath's key with the metadata.
    pub fn fields(&self) -> Tunnel {
        let mut fields = Tunnel::NONE;
        fields.id.set(self.tun_id);
        fields.set_source(Some(self.src));
        fields.set_destination(self.dst);
        fields.flags.set(self.flags);
        (fields.tos, fields.ttl) = (self.tos, self.ttl);
        fields.tp_src.set(self.tp_src);
        fields.tp_dst.set(self.tp_dst);
        match self.extension {
            Extension::None => {}
            Extension::Gbp(Gbp { id, flags }) => {
                fields.gbp_id.set(id);
                fields.gbp_flags = flags;
            }
            Extension::Erspan(Erspan::V1 { index }) => {
                fields.erspan_ver = 1;
                fields.erspan_idx.set(index);
            }
            Extension::Erspan(Erspan::V2 { is_egress, hardware_id }) => {
                fields.erspan_ver = 2;
                fields.erspan_dir = is_egress.into();
                fields.erspan_hwid = hardware_id;
            }
            Extension::Gtpu(Gtpu { flags, msgtype }) => {
                (fields.gtpu_flags, fields.gtpu_msgtype) = (flags, msgtype);
            }
        }
        // They fit by the type.
        let _ = fields.set_raw_options(self.options.as_bytes());
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;
    use proptest::prelude::*;

    fn extension() -> impl Strategy<Value = Extension> {
        let hardware_id = 0u8..0x40;
        prop_oneof![
            Just(Extension::None),
            (any::<u16>(), 1u8..).prop_map(|(id, flags)| Extension::Gbp(Gbp { id, flags })),
            (0u32..1 << 20).prop_map(|index| Extension::Erspan(Erspan::V1 { index })),
            (any::<bool>(), hardware_id).prop_map(|(is_egress, hardware_id)| {
                Extension::Erspan(Erspan::V2 { is_egress, hardware_id })
            }),
            (1u8.., any::<u8>())
                .prop_map(|(flags, msgtype)| Extension::Gtpu(Gtpu { flags, msgtype })),
        ]
    }

    proptest! {
        #[test]
        fn a_key_holds_the_metadata(
            tun_id: u64, v4: Option<([u8; 4], [u8; 4])>, v6: ([u8; 16], [u8; 16]), tos: u8, ttl: u8,
            ports: (u16, u16), bits: u16, extension in extension(),
            words in proptest::collection::vec(any::<[u8; 4]>(), 0..63),
        ) {
            let (src, dst): (IpAddr, IpAddr) = match v4 {
                Some((src, dst)) => (src.into(), dst.into()),
                None => (v6.0.into(), v6.1.into()),
            };
            prop_assume!(src.is_ipv4() || !dst.is_unspecified());
            let flags = bits & (flags::OAM | flags::DONT_FRAGMENT | flags::CHECKSUM | flags::KEY);
            let (tp_src, tp_dst) = ports;
            let options = Options::new(&words.concat()).expect("at most 62 words");
            let metadata =
                Metadata { tun_id, src, dst, tos, ttl, tp_src, tp_dst, flags, extension, options };
            let mut key = Key::ZERO;
            metadata.write_to(&mut key);
            prop_assert_eq!(Metadata::of_key(&key), metadata);
        }
    }

    #[test]
    fn flags_have_the_bits_of_keys() {
        let ours = [flags::OAM, flags::DONT_FRAGMENT, flags::CHECKSUM, flags::KEY];
        let theirs = [Tunnel::OAM, Tunnel::DONT_FRAGMENT, Tunnel::CSUM, Tunnel::KEY];
        assert_eq!(ours, theirs);
    }
}
