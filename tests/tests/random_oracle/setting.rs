// SPDX-License-Identifier: Apache-2.0
//! The configuration of a case's bridges and ports, read from the arguments of `ovs-vsctl` that
//! make them: the part that is fixed for their life, and the columns that can be set at any time.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A table whose rows a case sets columns of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// The one row for the switch.
    OpenVswitch,
    /// The rows of bridges.
    Bridge,
    /// The rows of ports.
    Port,
    /// The rows of tunnel interfaces. Others belong to the shape.
    Interface,
}

/// A column's value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Datum {
    Numbers(Vec<u64>),
    Text(Option<String>),
    Flag(bool),
    Map(BTreeMap<String, String>),
}

/// The columns of a row, by name.
type Row = BTreeMap<&'static str, Datum>;

/// The configuration of bridges and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The bridges and ports, their types and devices. Another shape needs new bridges.
    pub shape: Vec<String>,
    rows: BTreeMap<(Table, String), Row>,
}

impl Table {
    /// Its name in the database.
    fn name(self) -> &'static str {
        match self {
            Table::OpenVswitch => "Open_vSwitch",
            Table::Bridge => "Bridge",
            Table::Port => "Port",
            Table::Interface => "Interface",
        }
    }

    /// All columns that cases set, with their values in a new row.
    fn empty(self) -> Row {
        let map = || Datum::Map(BTreeMap::new());
        let numbers = || Datum::Numbers(Vec::new());
        match self {
            Table::OpenVswitch => [("other_config", map())].into(),
            Table::Bridge => [
                ("fail_mode", Datum::Text(None)),
                ("flood_vlans", numbers()),
                ("mirrors", numbers()),
                ("mcast_snooping_enable", Datum::Flag(false)),
                ("other_config", map()),
            ]
            .into(),
            Table::Interface => {
                [("type", Datum::Text(None)), ("options", map()), ("ofport_request", numbers())]
                    .into()
            }
            Table::Port => [
                ("vlan_mode", Datum::Text(None)),
                ("bond_mode", Datum::Text(None)),
                ("tag", numbers()),
                ("trunks", numbers()),
                ("cvlans", numbers()),
                ("protected", Datum::Flag(false)),
                ("other_config", map()),
            ]
            .into(),
        }
    }
}

impl Datum {
    /// Changes it as `ovs-vsctl set` does with this key, if there is one, and this value.
    fn set(&mut self, key: Option<&str>, text: &str) {
        let number = |word: &str| word.parse().expect("such a column has numbers");
        match (self, key) {
            (Datum::Map(map), Some(key)) => {
                map.insert(key.to_owned(), text.to_owned());
            }
            (Datum::Numbers(numbers), None) => *numbers = text.split(',').map(number).collect(),
            (Datum::Text(value), None) => *value = Some(text.to_owned()),
            (Datum::Flag(value), None) => *value = text == "true",
            (datum, key) => panic!("{text} for {key:?} is nothing for {datum:?}"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Datum::Numbers(numbers) => json!(["set", numbers]),
            Datum::Text(Some(text)) => json!(text),
            Datum::Text(None) => json!(["set", []]),
            Datum::Flag(value) => json!(value),
            Datum::Map(map) => json!(["map", map.iter().collect::<Vec<_>>()]),
        }
    }
}

impl Setting {
    /// The setting that `line` makes: arguments of `ovs-vsctl`, with `--` between commands.
    ///
    /// # Panics
    /// When it has a command or a column that no case has.
    pub fn parse(line: &str) -> Setting {
        let mut setting = Setting::default();
        for command in line.split(" -- ") {
            let words: Vec<&str> = command.split_whitespace().collect();
            match words.as_slice() {
                ["add-br", bridge] => setting.row(Table::Bridge, bridge),
                ["add-port", _, port] => setting.row(Table::Port, port),
                ["add-bond", _, port, _, _, columns @ ..] => {
                    setting.row(Table::Port, port);
                    setting.set(Table::Port, port, columns);
                }
                ["set", "open_vswitch", ".", columns @ ..] => {
                    setting.set(Table::OpenVswitch, "", columns);
                }
                ["set", "bridge", bridge, columns @ ..] => {
                    setting.set(Table::Bridge, bridge, columns);
                }
                ["set", "port", port, columns @ ..] => setting.set(Table::Port, port, columns),
                ["set", "interface", name, columns @ ..] if name.starts_with('t') => {
                    setting.set(Table::Interface, name, columns);
                    continue;
                }
                ["set", "interface", ..] => {}
                [] => continue,
                _ => panic!("no case has {command}"),
            }
            if !matches!(words.as_slice(), ["set", "open_vswitch" | "bridge" | "port", ..]) {
                setting.shape.push(words.join(" "));
            }
        }
        setting.shape.sort();
        setting
    }

    fn row(&mut self, table: Table, name: &str) {
        self.rows.insert((table, name.to_owned()), table.empty());
    }

    fn set(&mut self, table: Table, name: &str, columns: &[&str]) {
        let row = self.rows.entry((table, name.to_owned())).or_insert_with(|| table.empty());
        for word in columns {
            let (column, value) = word.split_once('=').expect("a column is set to something");
            let (column, key) = match column.split_once(':') {
                Some((column, key)) => (column, Some(key)),
                None => (column, None),
            };
            if column == "datapath_type" {
                self.shape.push(format!("{name} {word}"));
                continue;
            }
            let datum = row.get_mut(column).unwrap_or_else(|| panic!("no case has {word}"));
            datum.set(key, value);
        }
    }

    /// The operations that set every column of every row.
    pub fn operations(&self) -> Vec<Value> {
        let operation = |((table, name), row): (&(Table, String), &Row)| {
            let row: serde_json::Map<String, Value> =
                row.iter().map(|(column, datum)| ((*column).to_owned(), datum.json())).collect();
            let of = match table {
                Table::OpenVswitch => json!([]),
                _ => json!([["name", "==", name]]),
            };
            json!({"op": "update", "table": table.name(), "where": of, "row": row})
        };
        self.rows.iter().map(operation).collect()
    }
}

#[test]
fn a_setting_says_every_column() {
    let line = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure -- add-port br0 p1 \
                -- set interface p1 type=dummy";
    let plain = Setting::parse(line);
    let tagged = Setting::parse(&format!("{line} -- set port p1 tag=5 trunks=1,7 protected=true"));
    assert_eq!(plain.shape, tagged.shape);
    assert_ne!(plain, tagged);
    assert_eq!(
        plain.shape,
        ["add-br br0", "add-port br0 p1", "br0 datapath_type=dummy", "set interface p1 type=dummy"]
    );
    let row = |setting: &Setting| setting.operations().last().map(|o| o["row"].to_string());
    let text = r#"{"bond_mode":["set",[]],"cvlans":["set",[]],"other_config":["map",[]],"protected":true,"tag":["set",[5]],"trunks":["set",[1,7]],"vlan_mode":["set",[]]}"#;
    assert_eq!(row(&tagged).as_deref(), Some(text));
    let text = r#"{"bond_mode":["set",[]],"cvlans":["set",[]],"other_config":["map",[]],"protected":false,"tag":["set",[]],"trunks":["set",[]],"vlan_mode":["set",[]]}"#;
    assert_eq!(row(&plain).as_deref(), Some(text));
    assert_ne!(Setting::parse(&line.replace("type=dummy", "type=tap")).shape, plain.shape);
}
