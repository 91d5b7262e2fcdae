// SPDX-License-Identifier: Apache-2.0
//! The rows of the table of errors: one per error, with its encoding in OpenFlow 1.0, 1.1, 1.2,
//! 1.3, 1.4 and 1.5. The parent module defines the encodings.

use super::Encoding::{self, ExpNx, ExpOnf, Nx, Of, Unencodable as No};
use super::{OfError, VERSIONS};

macro_rules! errors {
    ($($name:ident: $encodings:expr;)*) => {
        /// Name and encodings of each error, in the order of [`OfError::index`].
        pub(super) static ROWS: &[(OfError, [Encoding; VERSIONS])] = &[
            $((OfError::$name, $encodings)),*
        ];

        /// Positions in [`ROWS`].
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Index { $($name),* }

        #[allow(missing_docs)]
        impl OfError {
            $(pub const $name: OfError =
                OfError { name: stringify!($name), index: Index::$name as u8 };)*
        }
    };
}

#[rustfmt::skip]
errors! {
    OFPACFC_EPERM: [No, No, No, ExpOnf(2372), Of(15, 2), Of(15, 2)];
    OFPACFC_INVALID: [No, No, No, ExpOnf(2370), Of(15, 0), Of(15, 0)];
    OFPACFC_UNSUPPORTED: [No, No, No, ExpOnf(2371), Of(15, 1), Of(15, 1)];
    OFPBAC_BAD_ARGUMENT: [Of(2, 5); VERSIONS];
    OFPBAC_BAD_LEN: [Of(2, 1); VERSIONS];
    OFPBAC_BAD_METER: [No, No, No, No, No, Of(2, 17)];
    OFPBAC_BAD_OUT_GROUP: [Nx(2, 9), Of(2, 9), Of(2, 9), Of(2, 9), Of(2, 9), Of(2, 9)];
    OFPBAC_BAD_OUT_PORT: [Of(2, 4); VERSIONS];
    OFPBAC_BAD_QUEUE: [Of(2, 8); VERSIONS];
    OFPBAC_BAD_SET_ARGUMENT: [Nx(1, 525), Nx(1, 525), Of(2, 15), Of(2, 15), Of(2, 15), Of(2, 15)];
    OFPBAC_BAD_SET_LEN: [Nx(1, 524), Nx(1, 524), Of(2, 14), Of(2, 14), Of(2, 14), Of(2, 14)];
    OFPBAC_BAD_SET_MASK: [No, No, No, ExpOnf(4250), ExpOnf(4250), Of(2, 16)];
    OFPBAC_BAD_SET_TYPE: [Nx(1, 523), Nx(1, 523), Of(2, 13), Of(2, 13), Of(2, 13), Of(2, 13)];
    OFPBAC_BAD_TAG: [No, Of(2, 12), Of(2, 12), Of(2, 12), Of(2, 12), Of(2, 12)];
    OFPBAC_BAD_TYPE: [Of(2, 0); VERSIONS];
    OFPBAC_BAD_VENDOR: [Of(2, 2); VERSIONS];
    OFPBAC_BAD_VENDOR_TYPE: [Of(2, 3); VERSIONS];
    OFPBAC_EPERM: [Of(2, 6); VERSIONS];
    OFPBAC_MATCH_INCONSISTENT: [Nx(1, 522), Of(2, 10), Of(2, 10), Of(2, 10), Of(2, 10), Of(2, 10)];
    OFPBAC_TOO_MANY: [Of(2, 7); VERSIONS];
    OFPBAC_UNSUPPORTED_ORDER: [No, Of(2, 11), Of(2, 11), Of(2, 11), Of(2, 11), Of(2, 11)];
    OFPBFC_BAD_FLAGS: [No, No, No, ExpOnf(2307), Of(17, 7), Of(17, 7)];
    OFPBFC_BAD_ID: [No, No, No, ExpOnf(2302), Of(17, 2), Of(17, 2)];
    OFPBFC_BAD_TYPE: [No, No, No, ExpOnf(2306), Of(17, 6), Of(17, 6)];
    OFPBFC_BAD_VERSION: [No, No, No, No, ExpNx(22), ExpNx(22)];
    OFPBFC_BUNDLE_CLOSED: [No, No, No, ExpOnf(2304), Of(17, 4), Of(17, 4)];
    OFPBFC_BUNDLE_EXIST: [No, No, No, ExpOnf(2303), Of(17, 3), Of(17, 3)];
    OFPBFC_BUNDLE_IN_PROGRESS: [No, No, No, ExpOnf(2315), Of(17, 15), Of(17, 15)];
    OFPBFC_EPERM: [No, No, No, ExpOnf(2301), Of(17, 1), Of(17, 1)];
    OFPBFC_MSG_BAD_LEN: [No, No, No, ExpOnf(2308), Of(17, 8), Of(17, 8)];
    OFPBFC_MSG_BAD_XID: [No, No, No, ExpOnf(2309), Of(17, 9), Of(17, 9)];
    OFPBFC_MSG_CONFLICT: [No, No, No, ExpOnf(2311), Of(17, 11), Of(17, 11)];
    OFPBFC_MSG_FAILED: [No, No, No, ExpOnf(2313), Of(17, 13), Of(17, 13)];
    OFPBFC_MSG_TOO_MANY: [No, No, No, ExpOnf(2312), Of(17, 12), Of(17, 12)];
    OFPBFC_MSG_UNSUP: [No, No, No, ExpOnf(2310), Of(17, 10), Of(17, 10)];
    OFPBFC_OUT_OF_BUNDLES: [No, No, No, ExpOnf(2305), Of(17, 5), Of(17, 5)];
    OFPBFC_SCHED_FUTURE: [No, No, No, No, No, Of(17, 17)];
    OFPBFC_SCHED_NOT_SUPPORTED: [No, No, No, No, No, Of(17, 16)];
    OFPBFC_SCHED_PAST: [No, No, No, No, No, Of(17, 18)];
    OFPBFC_TIMEOUT: [No, No, No, ExpOnf(2314), Of(17, 14), Of(17, 14)];
    OFPBFC_UNKNOWN: [No, No, No, ExpOnf(2300), Of(17, 0), Of(17, 0)];
    OFPBIC_BAD_EXPERIMENTER: [No, Of(3, 5), Of(3, 5), Of(3, 5), Of(3, 5), Of(3, 5)];
    OFPBIC_BAD_EXP_TYPE: [No, Of(3, 5), Of(3, 6), Of(3, 6), Of(3, 6), Of(3, 6)];
    OFPBIC_BAD_LEN: [No, No, Of(3, 7), Of(3, 7), Of(3, 7), Of(3, 7)];
    OFPBIC_BAD_TABLE_ID: [No, Of(3, 2), Of(3, 2), Of(3, 2), Of(3, 2), Of(3, 2)];
    OFPBIC_DUP_INST: [No, Nx(3, 256), ExpOnf(2600), ExpOnf(2600), Of(3, 9), Of(3, 9)];
    OFPBIC_EPERM: [No, No, Of(3, 8), Of(3, 8), Of(3, 8), Of(3, 8)];
    OFPBIC_UNKNOWN_INST: [No, Of(3, 0), Of(3, 0), Of(3, 0), Of(3, 0), Of(3, 0)];
    OFPBIC_UNSUP_INST: [Nx(2, 257), Of(3, 1), Of(3, 1), Of(3, 1), Of(3, 1), Of(3, 1)];
    OFPBIC_UNSUP_METADATA: [No, Of(3, 3), Of(3, 3), Of(3, 3), Of(3, 3), Of(3, 3)];
    OFPBIC_UNSUP_METADATA_MASK: [No, Of(3, 4), Of(3, 4), Of(3, 4), Of(3, 4), Of(3, 4)];
    OFPBMC_BAD_DL_ADDR_MASK: [No, Of(4, 3), Of(4, 3), Of(4, 3), Of(4, 3), Of(4, 3)];
    OFPBMC_BAD_FIELD: [Nx(0, 263), Of(4, 6), Of(4, 6), Of(4, 6), Of(4, 6), Of(4, 6)];
    OFPBMC_BAD_LEN: [No, Of(4, 1), Of(4, 1), Of(4, 1), Of(4, 1), Of(4, 1)];
    OFPBMC_BAD_MASK: [Nx(1, 259), Nx(1, 259), Of(4, 8), Of(4, 8), Of(4, 8), Of(4, 8)];
    OFPBMC_BAD_NW_ADDR_MASK: [No, Of(4, 4), Of(4, 4), Of(4, 4), Of(4, 4), Of(4, 4)];
    OFPBMC_BAD_PREREQ: [Nx(1, 260), Nx(1, 260), Of(4, 9), Of(4, 9), Of(4, 9), Of(4, 9)];
    OFPBMC_BAD_TAG: [No, Of(4, 2), Of(4, 2), Of(4, 2), Of(4, 2), Of(4, 2)];
    OFPBMC_BAD_TYPE: [No, Of(4, 0), Of(4, 0), Of(4, 0), Of(4, 0), Of(4, 0)];
    OFPBMC_BAD_VALUE: [Nx(1, 258), Of(4, 7), Of(4, 7), Of(4, 7), Of(4, 7), Of(4, 7)];
    OFPBMC_BAD_WILDCARDS: [Nx(1, 262), Of(4, 5), Of(4, 5), Of(4, 5), Of(4, 5), Of(4, 5)];
    OFPBMC_DUP_FIELD: [Nx(1, 261), Nx(1, 261), Of(4, 10), Of(4, 10), Of(4, 10), Of(4, 10)];
    OFPBMC_EPERM: [No, No, Of(4, 11), Of(4, 11), Of(4, 11), Of(4, 11)];
    OFPBPC_BAD_EXPERIMENTER: [Nx(14, 5), Nx(14, 5), ExpNx(30), ExpOnf(4445), Of(14, 5), Of(14, 5)];
    OFPBPC_BAD_EXP_TYPE: [Nx(14, 6), Nx(14, 6), ExpNx(31), ExpOnf(4446), Of(14, 6), Of(14, 6)];
    OFPBPC_BAD_EXP_VALUE: [Nx(14, 7), Nx(14, 7), ExpNx(32), ExpOnf(4447), Of(14, 7), Of(14, 7)];
    OFPBPC_BAD_LEN: [Nx(13, 3), Nx(13, 3), ExpNx(26), Of(13, 3), Of(14, 1), Of(14, 1)];
    OFPBPC_BAD_TYPE: [Nx(13, 2), Nx(13, 2), ExpNx(25), Of(13, 2), Of(14, 0), Of(14, 0)];
    OFPBPC_BAD_VALUE: [Nx(13, 4), Nx(13, 4), ExpNx(27), Of(13, 4), Of(14, 2), Of(14, 2)];
    OFPBPC_DUP_TYPE: [Nx(14, 4), Nx(14, 4), ExpNx(29), ExpOnf(4444), Of(14, 4), Of(14, 4)];
    OFPBPC_EPERM: [Nx(14, 8), Nx(14, 8), ExpNx(33), ExpOnf(4448), Of(14, 8), Of(14, 8)];
    OFPBPC_TOO_MANY: [Nx(14, 3), Nx(14, 3), ExpNx(28), ExpOnf(4443), Of(14, 3), Of(14, 3)];
    OFPBRC_BAD_LEN: [Of(1, 6); VERSIONS];
    OFPBRC_BAD_PACKET: [No, No, Of(1, 12), Of(1, 12), Of(1, 12), Of(1, 12)];
    OFPBRC_BAD_PORT: [Nx(1, 514), Nx(1, 514), Of(1, 11), Of(1, 11), Of(1, 11), Of(1, 11)];
    OFPBRC_BAD_STAT: [Of(1, 2); VERSIONS];
    OFPBRC_BAD_SUBTYPE: [Of(1, 4); VERSIONS];
    OFPBRC_BAD_TABLE_ID: [Nx(1, 512), Of(1, 9), Of(1, 9), Of(1, 9), Of(1, 9), Of(1, 9)];
    OFPBRC_BAD_TYPE: [Of(1, 1); VERSIONS];
    OFPBRC_BAD_VENDOR: [Of(1, 3); VERSIONS];
    OFPBRC_BAD_VERSION: [Of(1, 0); VERSIONS];
    OFPBRC_BUFFER_EMPTY: [Of(1, 7); VERSIONS];
    OFPBRC_BUFFER_UNKNOWN: [Of(1, 8); VERSIONS];
    OFPBRC_EPERM: [Of(1, 5); VERSIONS];
    OFPBRC_IS_SECONDARY: [Of(1, 5), Of(1, 5), Of(1, 10), Of(1, 10), Of(1, 10), Of(1, 10)];
    OFPBRC_MULTIPART_BAD_SCHED: [No, No, No, No, No, Of(1, 16)];
    OFPBRC_MULTIPART_BUFFER_OVERFLOW: [No, No, No, Of(1, 13), Of(1, 13), Of(1, 13)];
    OFPBRC_MULTIPART_REPLY_TIMEOUT: [No, No, No, ExpOnf(2641), Of(1, 15), Of(1, 15)];
    OFPBRC_MULTIPART_REQUEST_TIMEOUT: [No, No, No, ExpOnf(2640), Of(1, 14), Of(1, 14)];
    OFPBRC_PIPELINE_FIELDS_ONLY: [No, No, No, No, No, Of(1, 17)];
    OFPBRC_UNKNOWN: [No, No, No, No, No, Of(1, 18)];
    OFPFMFC_BAD_COMMAND: [Of(3, 4), Of(5, 6), Of(5, 6), Of(5, 6), Of(5, 6), Of(5, 6)];
    OFPFMFC_BAD_EMERG_TIMEOUT: [Of(3, 3), No, No, No, No, No];
    OFPFMFC_BAD_FLAGS: [Nx(3, 258), Nx(5, 258), Of(5, 7), Of(5, 7), Of(5, 7), Of(5, 7)];
    OFPFMFC_BAD_PRIORITY: [No, No, No, ExpOnf(2360), Of(5, 9), Of(5, 9)];
    OFPFMFC_BAD_TABLE_ID: [No, Of(5, 2), Of(5, 2), Of(5, 2), Of(5, 2), Of(5, 2)];
    OFPFMFC_BAD_TIMEOUT: [No, Of(5, 5), Of(5, 5), Of(5, 5), Of(5, 5), Of(5, 5)];
    OFPFMFC_CANT_SYNC: [No, No, No, No, Of(5, 8), Of(5, 8)];
    OFPFMFC_EPERM: [Of(3, 2), Of(5, 4), Of(5, 4), Of(5, 4), Of(5, 4), Of(5, 4)];
    OFPFMFC_IS_SYNC: [No, No, No, No, Of(5, 10), Of(5, 10)];
    OFPFMFC_OVERLAP: [Of(3, 1), Of(5, 3), Of(5, 3), Of(5, 3), Of(5, 3), Of(5, 3)];
    OFPFMFC_TABLE_FULL: [Of(3, 0), Of(5, 1), Of(5, 1), Of(5, 1), Of(5, 1), Of(5, 1)];
    OFPFMFC_UNKNOWN: [No, Of(5, 0), Of(5, 0), Of(5, 0), Of(5, 0), Of(5, 0)];
    OFPFMFC_UNSUPPORTED: [Of(3, 5), No, No, No, No, No];
    OFPGMFC_BAD_BUCKET: [Nx(6, 12), No, Of(6, 12), Of(6, 12), Of(6, 12), Of(6, 12)];
    OFPGMFC_BAD_COMMAND: [Nx(6, 11), No, Of(6, 11), Of(6, 11), Of(6, 11), Of(6, 11)];
    OFPGMFC_BAD_TYPE: [Nx(6, 10), No, Of(6, 10), Of(6, 10), Of(6, 10), Of(6, 10)];
    OFPGMFC_BAD_WATCH: [Nx(6, 13), No, Of(6, 13), Of(6, 13), Of(6, 13), Of(6, 13)];
    OFPGMFC_BUCKET_EXISTS: [Nx(6, 16), No, No, No, No, Of(6, 16)];
    OFPGMFC_CHAINED_GROUP: [Nx(6, 9), No, Of(6, 9), Of(6, 9), Of(6, 9), Of(6, 9)];
    OFPGMFC_CHAINING_UNSUPPORTED: [Nx(6, 5), Of(6, 5), Of(6, 5), Of(6, 5), Of(6, 5), Of(6, 5)];
    OFPGMFC_EPERM: [Nx(6, 14), No, Of(6, 14), Of(6, 14), Of(6, 14), Of(6, 14)];
    OFPGMFC_GROUP_EXISTS: [Nx(6, 0), Of(6, 0), Of(6, 0), Of(6, 0), Of(6, 0), Of(6, 0)];
    OFPGMFC_INVALID_GROUP: [Nx(6, 1), Of(6, 1), Of(6, 1), Of(6, 1), Of(6, 1), Of(6, 1)];
    OFPGMFC_LOOP: [Nx(6, 7), Of(6, 7), Of(6, 7), Of(6, 7), Of(6, 7), Of(6, 7)];
    OFPGMFC_OUT_OF_BUCKETS: [Nx(6, 4), Of(6, 4), Of(6, 4), Of(6, 4), Of(6, 4), Of(6, 4)];
    OFPGMFC_OUT_OF_GROUPS: [Nx(6, 3), Of(6, 3), Of(6, 3), Of(6, 3), Of(6, 3), Of(6, 3)];
    OFPGMFC_UNKNOWN_BUCKET: [Nx(6, 15), No, No, No, No, Of(6, 15)];
    OFPGMFC_UNKNOWN_GROUP: [Nx(6, 8), Of(6, 8), Of(6, 8), Of(6, 8), Of(6, 8), Of(6, 8)];
    OFPGMFC_WATCH_UNSUPPORTED: [Nx(6, 6), Of(6, 6), Of(6, 6), Of(6, 6), Of(6, 6), Of(6, 6)];
    OFPGMFC_WEIGHT_UNSUPPORTED: [Nx(6, 2), Of(6, 2), Of(6, 2), Of(6, 2), Of(6, 2), Of(6, 2)];
    OFPHFC_EPERM: [Of(0, 1); VERSIONS];
    OFPHFC_INCOMPATIBLE: [Of(0, 0); VERSIONS];
    OFPMMFC_BAD_BAND: [No, No, No, Of(12, 8), Of(12, 8), Of(12, 8)];
    OFPMMFC_BAD_BAND_VALUE: [No, No, No, Of(12, 9), Of(12, 9), Of(12, 9)];
    OFPMMFC_BAD_BURST: [No, No, No, Of(12, 7), Of(12, 7), Of(12, 7)];
    OFPMMFC_BAD_COMMAND: [No, No, No, Of(12, 4), Of(12, 4), Of(12, 4)];
    OFPMMFC_BAD_FLAGS: [No, No, No, Of(12, 5), Of(12, 5), Of(12, 5)];
    OFPMMFC_BAD_RATE: [No, No, No, Of(12, 6), Of(12, 6), Of(12, 6)];
    OFPMMFC_INVALID_METER: [No, No, No, Of(12, 2), Of(12, 2), Of(12, 2)];
    OFPMMFC_METER_EXISTS: [No, No, No, Of(12, 1), Of(12, 1), Of(12, 1)];
    OFPMMFC_OUT_OF_BANDS: [No, No, No, Of(12, 11), Of(12, 11), Of(12, 11)];
    OFPMMFC_OUT_OF_METERS: [No, No, No, Of(12, 10), Of(12, 10), Of(12, 10)];
    OFPMMFC_UNKNOWN: [No, No, No, Of(12, 0), Of(12, 0), Of(12, 0)];
    OFPMMFC_UNKNOWN_METER: [No, No, No, Of(12, 3), Of(12, 3), Of(12, 3)];
    OFPMOFC_BAD_COMMAND: [No, No, No, No, Of(16, 4), Of(16, 4)];
    OFPMOFC_BAD_FLAGS: [Nx(1, 518), Nx(1, 518), ExpNx(7), ExpNx(7), Of(16, 5), Of(16, 5)];
    OFPMOFC_BAD_OUT: [No, No, No, No, Of(16, 7), Of(16, 7)];
    OFPMOFC_BAD_TABLE_ID: [No, No, No, No, Of(16, 6), Of(16, 6)];
    OFPMOFC_INVALID_MONITOR: [No, No, No, No, Of(16, 2), Of(16, 2)];
    OFPMOFC_MONITOR_EXISTS: [Nx(1, 517), Nx(1, 517), ExpNx(6), ExpNx(6), Of(16, 1), Of(16, 1)];
    OFPMOFC_UNKNOWN: [No, No, No, No, Of(16, 0), Of(16, 0)];
    OFPMOFC_UNKNOWN_MONITOR: [Nx(1, 519), Nx(1, 519), ExpNx(8), ExpNx(8), Of(16, 3), Of(16, 3)];
    OFPPMFC_BAD_ADVERTISE: [No, Of(7, 3), Of(7, 3), Of(7, 3), Of(7, 3), Of(7, 3)];
    OFPPMFC_BAD_CONFIG: [No, Of(7, 2), Of(7, 2), Of(7, 2), Of(7, 2), Of(7, 2)];
    OFPPMFC_BAD_HW_ADDR: [Of(4, 1), Of(7, 1), Of(7, 1), Of(7, 1), Of(7, 1), Of(7, 1)];
    OFPPMFC_BAD_PORT: [Of(4, 0), Of(7, 0), Of(7, 0), Of(7, 0), Of(7, 0), Of(7, 0)];
    OFPPMFC_EPERM: [No, No, Of(7, 4), Of(7, 4), Of(7, 4), Of(7, 4)];
    OFPQOFC_BAD_PORT: [Of(5, 0), Of(9, 0), Of(9, 0), Of(9, 0), Of(9, 0), Of(9, 0)];
    OFPQOFC_BAD_QUEUE: [Of(5, 1), Of(9, 1), Of(9, 1), Of(9, 1), Of(9, 1), Of(9, 1)];
    OFPQOFC_EPERM: [Of(5, 2), Of(9, 2), Of(9, 2), Of(9, 2), Of(9, 2), Of(9, 2)];
    OFPRRFC_BAD_ROLE: [Nx(1, 513), Nx(1, 513), Of(11, 2), Of(11, 2), Of(11, 2), Of(11, 2)];
    OFPRRFC_ID_IN_USE: [No, No, No, No, No, Of(11, 4)];
    OFPRRFC_ID_UNSUP: [No, No, No, No, No, Of(11, 3)];
    OFPRRFC_STALE: [No, No, Of(11, 0), Of(11, 0), Of(11, 0), Of(11, 0)];
    OFPRRFC_UNSUP: [No, No, Of(11, 1), Of(11, 1), Of(11, 1), Of(11, 1)];
    OFPSCFC_BAD_FLAGS: [No, Of(10, 0), Of(10, 0), Of(10, 0), Of(10, 0), Of(10, 0)];
    OFPSCFC_BAD_LEN: [No, Of(10, 1), Of(10, 1), Of(10, 1), Of(10, 1), Of(10, 1)];
    OFPSCFC_EPERM: [No, No, Of(10, 2), Of(10, 2), Of(10, 2), Of(10, 2)];
    OFPTFFC_BAD_CAPA: [No, No, No, No, No, Of(13, 6)];
    OFPTFFC_BAD_COMMAND: [No, No, No, No, No, Of(13, 9)];
    OFPTFFC_BAD_FEATURES: [No, No, No, No, No, Of(13, 8)];
    OFPTFFC_BAD_MAX_ENT: [No, No, No, No, No, Of(13, 7)];
    OFPTFFC_BAD_METADATA: [No, No, No, Of(13, 1), Of(13, 1), Of(13, 1)];
    OFPTFFC_BAD_TABLE: [No, No, No, Of(13, 0), Of(13, 0), Of(13, 0)];
    OFPTFFC_EPERM: [No, No, No, Of(13, 5), Of(13, 5), Of(13, 5)];
    OFPTFFC_TOO_MANY: [No, No, No, No, No, Of(13, 10)];
    OFPTMFC_BAD_CONFIG: [No, Of(8, 1), Of(8, 1), Of(8, 1), Of(8, 1), Of(8, 1)];
    OFPTMFC_BAD_TABLE: [No, Of(8, 0), Of(8, 0), Of(8, 0), Of(8, 0), Of(8, 0)];
    OFPTMFC_EPERM: [No, No, Of(8, 2), Of(8, 2), Of(8, 2), Of(8, 2)];
    NXBAC_BAD_CONJUNCTION: [Nx(2, 526), Nx(2, 526), ExpNx(15), ExpNx(15), ExpNx(15), ExpNx(15)];
    NXBAC_BAD_ED_PROP: [No, No, No, ExpNx(41), ExpNx(41), ExpNx(41)];
    NXBAC_BAD_HEADER_TYPE: [No, No, No, ExpNx(39), ExpNx(39), ExpNx(39)];
    NXBAC_CT_DATAPATH_SUPPORT: [Nx(1, 265), Nx(1, 265), ExpNx(42), ExpNx(42), ExpNx(42), ExpNx(42)];
    NXBAC_MUST_BE_ZERO: [Nx(2, 256), Nx(2, 256), ExpNx(11), ExpNx(11), ExpNx(11), ExpNx(11)];
    NXBAC_UNKNOWN_ED_PROP: [No, No, No, ExpNx(40), ExpNx(40), ExpNx(40)];
    NXBMC_CT_DATAPATH_SUPPORT: [Nx(1, 264), Nx(1, 264), ExpNx(43), ExpNx(43), ExpNx(43), ExpNx(43)];
    NXBRC_BAD_REASON: [Nx(1, 516), Nx(1, 516), ExpNx(5), ExpNx(5), ExpNx(5), ExpNx(5)];
    NXBRC_FM_BAD_EVENT: [Nx(1, 520), Nx(1, 520), ExpNx(9), ExpNx(9), ExpNx(9), ExpNx(9)];
    NXBRC_MUST_BE_ZERO: [Nx(1, 515), Nx(1, 515), ExpNx(4), ExpNx(4), ExpNx(4), ExpNx(4)];
    NXBRC_NXM_BAD_TYPE: [Nx(1, 257), Nx(1, 257), ExpNx(3), ExpNx(3), ExpNx(3), ExpNx(3)];
    NXBRC_NXM_INVALID: [Nx(1, 256), Nx(1, 256), ExpNx(2), ExpNx(2), ExpNx(2), ExpNx(2)];
    NXBRC_UNENCODABLE_ERROR: [Nx(1, 521), Nx(1, 521), ExpNx(10), ExpNx(10), ExpNx(10), ExpNx(10)];
    NXFMFC_BAD_TABLE_ID: [Nx(5, 257), Nx(5, 257), ExpNx(13), ExpNx(13), ExpNx(13), ExpNx(13)];
    NXFMFC_HARDWARE: [Nx(5, 256), Nx(5, 256), ExpNx(12), ExpNx(12), ExpNx(12), ExpNx(12)];
    NXFMFC_INVALID_TLV_FIELD: [Nx(1, 536), Nx(1, 536), ExpNx(37), ExpNx(37), ExpNx(37), ExpNx(37)];
    NXQOFC_QUEUE_ERROR: [No, No, No, No, ExpNx(23), ExpNx(23)];
    NXST_NOT_CONFIGURED: [Nx(1, 535), Nx(1, 535), ExpNx(36), ExpNx(36), ExpNx(36), ExpNx(36)];
    NXTFFC_DUP_TABLE: [No, No, No, ExpNx(44), ExpNx(44), ExpNx(44)];
    NXTTMFC_ALREADY_MAPPED: [Nx(1, 531), Nx(1, 531), ExpNx(20), ExpNx(20), ExpNx(20), ExpNx(20)];
    NXTTMFC_BAD_COMMAND: [Nx(1, 527), Nx(1, 527), ExpNx(16), ExpNx(16), ExpNx(16), ExpNx(16)];
    NXTTMFC_BAD_FIELD_IDX: [Nx(1, 529), Nx(1, 529), ExpNx(18), ExpNx(18), ExpNx(18), ExpNx(18)];
    NXTTMFC_BAD_OPT_LEN: [Nx(1, 528), Nx(1, 528), ExpNx(17), ExpNx(17), ExpNx(17), ExpNx(17)];
    NXTTMFC_DUP_ENTRY: [Nx(1, 532), Nx(1, 532), ExpNx(21), ExpNx(21), ExpNx(21), ExpNx(21)];
    NXTTMFC_INVALID_TLV_DEL: [Nx(1, 537), Nx(1, 537), ExpNx(38), ExpNx(38), ExpNx(38), ExpNx(38)];
    NXTTMFC_TABLE_FULL: [Nx(1, 530), Nx(1, 530), ExpNx(19), ExpNx(19), ExpNx(19), ExpNx(19)];
}
