// SPDX-License-Identifier: Apache-2.0
//! Controllers that listen to the changes of others, in each version of OpenFlow.

use slipswitch_tests::harness::Switch;

/// Connects in each version, asks for forwarded requests and role messages, becomes primary (which
/// demotes the connection before it), and prints the messages that came after a group and a meter
/// were added.
const LISTENERS: &str = r#"
import socket, struct
from subprocess import run
def message(version, kind, body, xid=9):
    return struct.pack('!BBHI', version, kind, 8 + len(body), xid) + body
def vendor(version, subtype, body):
    return message(version, 4, struct.pack('!II', 0x2320, subtype) + body)
def read(s, until):
    out = b''
    while not out.endswith(until): out += s.recv(65536)
    return out
reasons = b''.join(struct.pack('!HHI', kind, 8, mask) for kind, mask in ((6, 7), (7, 7), (10, 3), (11, 3)))
listeners = []
for version in range(1, 7):
    s = socket.socket(socket.AF_UNIX)
    s.connect('br0.mgmt')
    s.sendall(message(version, 0, b''))
    s.sendall(message(version, 28, reasons) if version > 4 else vendor(version, 27, reasons))
    if version > 2: s.sendall(message(version, 24, struct.pack('!IIQ', 2, 0, version)))
    else: s.sendall(vendor(version, 10, struct.pack('!I', 1)))
    s.sendall(message(version, 2, b'ready'))
    listeners.append((version, s, read(s, b'ready')))
ofctl = ['ovs-ofctl', '-O', 'OpenFlow13']
run(ofctl + ['add-group', 'br0', 'group_id=7,type=all,bucket=output:2'])
run(ofctl + ['add-meter', 'br0', 'meter=5,kbps,band=type=drop,rate=10'])
for version, s, seen in listeners:
    s.sendall(message(version, 2, b'final'))
    rest = seen + read(s, b'final')
    while rest:
        size = struct.unpack('!H', rest[2:4])[0]
        # Neither hellos nor answers to echo requests and role requests.
        if rest[1] not in (0, 3) and not (rest[1] == 25 or rest[12:16] == bytes((0, 0, 0, 11))):
            text = run(['ovs-ofctl', 'ofp-print', rest[:size].hex()], capture_output=True, text=True)
            print(version, ' '.join(text.stdout.split()))
        rest = rest[size:]
"#;

/// Messages that `ovs-vswitchd` 3.1 sends to the listeners, each after the wire number of its version.
const EXPECTED: &[&str] = &[
    "1 NXT_REQUESTFORWARD (xid=0x0): reason=group_mod ADD group_id=7,type=all,bucket=bucket_id:0,actions=output:2",
    "2 NXT_REQUESTFORWARD (OF1.1) (xid=0x0): reason=group_mod ADD group_id=7,type=all,bucket=actions=output:2",
    "3 NXT_REQUESTFORWARD (OF1.2) (xid=0x0): reason=group_mod ADD group_id=7,type=all,bucket=actions=output:2",
    "4 ONFT_ROLE_STATUS (OF1.3) (xid=0x0): role=secondary generation_id=5 reason=primary_request",
    "4 ONFT_REQUESTFORWARD (OF1.3) (xid=0x0): reason=group_mod ADD group_id=7,type=all,bucket=actions=output:2",
    "4 ONFT_REQUESTFORWARD (OF1.3) (xid=0x0): reason=meter_mod ADD meter=5 kbps bands= type=drop rate=10",
    "5 OFPT_ROLE_STATUS (OF1.4) (xid=0x0): role=secondary generation_id=6 reason=primary_request",
    "5 OFPT_REQUESTFORWARD (OF1.4) (xid=0x0): reason=group_mod ADD group_id=7,type=all,bucket=actions=output:2",
    "5 OFPT_REQUESTFORWARD (OF1.4) (xid=0x0): reason=meter_mod ADD meter=5 kbps bands= type=drop rate=10",
    "6 OFPT_REQUESTFORWARD (OF1.5) (xid=0x0): reason=group_mod ADD group_id=7,type=all,bucket=bucket_id:0,actions=output:2",
    "6 OFPT_REQUESTFORWARD (OF1.5) (xid=0x0): reason=meter_mod ADD meter=5 kbps bands= type=drop rate=10",
];

#[test]
fn changes_of_others_and_lost_roles_are_reported_in_the_form_of_each_version() {
    let switch = Switch::dummy(2);
    switch.vsctl(
        "set bridge br0 protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
    );
    switch.sandbox().write("listeners.py", LISTENERS);
    let lines = switch.run("cd $OVS_RUNDIR && python3 listeners.py");
    assert_eq!(lines.lines().collect::<Vec<_>>(), EXPECTED);
}
