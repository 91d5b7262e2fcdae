// SPDX-License-Identifier: Apache-2.0
//! Requests to change the features of tables, well formed and not, whole and in parts.

use slipswitch_tests::harness::Switch;

/// Sends requests with the transaction ids 10 and up, and prints the id, type and code of each error,
/// and `features` for a reply.
const REQUESTS: &str = r#"
import socket, struct
def message(kind, body, xid):
    return struct.pack('!BBHI', 6, kind, 8 + len(body), xid) + body
def part(more, tables, xid):
    return message(18, struct.pack('!HHI', 12, more, 0) + tables, xid)
def table(number, command=1, entries=1000000, size=64, name=b''):
    return struct.pack('!HBBI32sQQII', size, number, command, 0, name, 0, 0, 0, entries)
s = socket.socket(socket.AF_UNIX)
s.connect('br0.mgmt')
s.sendall(message(0, b'', 1))
for xid, tables in enumerate((
    table(3, name=b'one'), table(3) + table(3), table(254), table(255), table(3, 0), table(3, 2),
    table(3, 9), table(3, entries=5), table(3, size=66), table(3, name=b'x') + table(254),
), 10):
    s.sendall(part(0, tables, xid))
s.sendall(part(1, table(4, name=b'four'), 30) + part(0, table(5, name=b'five'), 30))
s.sendall(message(2, b'end', 99))
s.settimeout(10)
seen = b''
while not seen.endswith(b'end'): seen += s.recv(65536)
while seen:
    kind, size, xid = seen[1], *struct.unpack('!HI', seen[2:8])
    if kind == 1: print(xid, *struct.unpack('!HH', seen[8:12]))
    if kind == 19 and not seen[11]: print(xid, 'features')
    seen = seen[size:]
"#;

/// Answers of `ovs-vswitchd` 3.1.
const EXPECTED: &[&str] = &[
    "10 features",
    "11 65535 44",
    "12 13 5",
    "13 13 0",
    "14 13 5",
    "15 13 5",
    "16 13 9",
    "17 13 5",
    "18 14 1",
    "19 13 5",
    "30 features",
];

#[test]
fn requests_in_parts_are_carried_out_whole_or_not_at_all() {
    let switch = Switch::dummy(1);
    switch.vsctl("set bridge br0 protocols=OpenFlow10,OpenFlow15");
    switch.sandbox().write("requests.py", REQUESTS);
    let lines = switch.run("cd $OVS_RUNDIR && python3 requests.py");
    assert_eq!(lines.lines().collect::<Vec<_>>(), EXPECTED);
    let tables = switch.run("ovs-ofctl -O OpenFlow15 dump-table-features br0 | grep '^  table'");
    for name in ["table 3 (\"one\")", "table 4 (\"four\")", "table 5 (\"five\")"] {
        assert!(tables.contains(name), "{tables}");
    }
}
