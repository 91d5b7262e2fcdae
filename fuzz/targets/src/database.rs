// SPDX-License-Identifier: Apache-2.0
//! The part of the Open_vSwitch database that the daemon reads, as a schema for tests.

use serde_json::{Map, Value, json};

/// Table, column, and type of the column: the key's type, after a colon the value's, and a star where
/// any number of them is allowed.
const COLUMNS: &[(&str, &[(&str, &str)])] = &[
    (
        "Open_vSwitch",
        &[
            ("bridges", "uuid*"),
            ("ssl", "uuid*"),
            ("other_config", "string:string*"),
            ("next_cfg", "integer"),
            ("cur_cfg", "integer"),
        ],
    ),
    (
        "SSL",
        &[
            ("private_key", "string"),
            ("certificate", "string"),
            ("ca_cert", "string"),
            ("bootstrap_ca_cert", "boolean"),
        ],
    ),
    (
        "Bridge",
        &[
            ("name", "string"),
            ("datapath_type", "string"),
            ("ports", "uuid*"),
            ("controller", "uuid*"),
            ("protocols", "string*"),
            ("fail_mode", "string*"),
            ("other_config", "string:string*"),
            ("flood_vlans", "integer*"),
            ("flow_tables", "integer:uuid*"),
            ("mirrors", "uuid*"),
            ("stp_enable", "boolean"),
            ("datapath_id", "string*"),
        ],
    ),
    (
        "Port",
        &[
            ("name", "string"),
            ("interfaces", "uuid*"),
            ("tag", "integer*"),
            ("trunks", "integer*"),
            ("cvlans", "integer*"),
            ("vlan_mode", "string*"),
            ("protected", "boolean"),
            ("other_config", "string:string*"),
            ("bond_mode", "string*"),
            ("bond_updelay", "integer"),
            ("bond_downdelay", "integer"),
            ("lacp", "string*"),
            ("qos", "uuid*"),
        ],
    ),
    (
        "Interface",
        &[
            ("name", "string"),
            ("type", "string"),
            ("options", "string:string*"),
            ("other_config", "string:string*"),
            ("ofport_request", "integer*"),
            ("mac", "string*"),
            ("mtu_request", "integer*"),
            ("ingress_policing_rate", "integer"),
            ("ingress_policing_burst", "integer"),
            ("ingress_policing_kpkts_rate", "integer"),
            ("bfd", "string:string*"),
            ("cfm_mpid", "integer*"),
            ("lldp", "string:string*"),
            ("ofport", "integer*"),
            ("statistics", "string:integer*"),
        ],
    ),
    (
        "Controller",
        &[
            ("target", "string"),
            ("type", "string*"),
            ("connection_mode", "string*"),
            ("local_ip", "string*"),
            ("max_backoff", "integer*"),
            ("inactivity_probe", "integer*"),
            ("enable_async_messages", "boolean*"),
            ("controller_queue_size", "integer*"),
            ("controller_rate_limit", "integer*"),
            ("controller_burst_limit", "integer*"),
        ],
    ),
    (
        "Flow_Table",
        &[
            ("name", "string*"),
            ("flow_limit", "integer*"),
            ("overflow_policy", "string*"),
            ("groups", "string*"),
            ("prefixes", "string*"),
        ],
    ),
];

/// Returns the schema as a server sends it.
pub fn schema() -> Value {
    let mut tables = Map::new();
    for (table, columns) in COLUMNS {
        let columns: Map<String, Value> = columns
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), json!({"type": of(kind)})))
            .collect();
        tables.insert((*table).to_owned(), json!({"columns": columns}));
    }
    json!({"name": "Open_vSwitch", "version": "8.3.0", "tables": tables})
}

fn of(kind: &str) -> Value {
    let (kind, many) = kind.strip_suffix('*').map_or((kind, false), |k| (k, true));
    let (key, value) = kind.split_once(':').map_or((kind, None), |(k, v)| (k, Some(v)));
    let mut members = Map::from_iter([("key".to_owned(), json!(key))]);
    if let Some(value) = value {
        members.insert("value".to_owned(), json!(value));
    }
    if many {
        members.insert("min".to_owned(), json!(0));
        members.insert("max".to_owned(), json!("unlimited"));
    }
    Value::Object(members)
}

/// Names of all columns, for a fuzzer's dictionary.
pub fn names() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().flat_map(|(table, columns)| {
        std::iter::once(*table).chain(columns.iter().map(|(name, _)| *name))
    })
}
