// SPDX-License-Identifier: Apache-2.0
//! LLDP and auto-attach.

scenarios! {
    lldp_is_announced: r#"
        vsctl set interface p1 lldp:enable=true options:tx_pcap=p1.pcap
        appctl time/warp 6000 500
        await_frame p1.pcap
        # The address of a dummy differs from run to run.
        ovs-pcap p1.pcap | head -1 | sed 's/aa55aa5500../MAC/g'
        appctl autoattach/statistics
        appctl autoattach/status
        appctl autoattach/show-isid
        vsctl -- --id=@aa create AutoAttach system_name=sw system_description=test mappings:100=10 -- set bridge br0 auto_attach=@aa > /dev/null
        appctl time/warp 2000 500
        ovs-vsctl --timeout=10 wait-until port p1 trunks=10 -- get port p1 trunks vlan_mode
        appctl time/warp 6000 500
        appctl autoattach/show-isid
        ovs-vsctl set AutoAttach $(ovs-vsctl get bridge br0 auto_attach) mappings:200=20
        appctl time/warp 2000 500
        ovs-vsctl --timeout=10 wait-until port p1 trunks=10,20 -- get port p1 trunks vlan_mode
        ovs-vsctl remove AutoAttach $(ovs-vsctl get bridge br0 auto_attach) mappings 100
        appctl time/warp 2000 500
        ovs-vsctl --timeout=10 wait-until port p1 trunks=20 -- get port p1 trunks vlan_mode
        appctl autoattach/show-isid
        ovs-vsctl remove AutoAttach $(ovs-vsctl get bridge br0 auto_attach) mappings 200
        appctl time/warp 2000 500
        ovs-vsctl --timeout=10 wait-until port p1 trunks=[] -- get port p1 trunks vlan_mode
    "#;
    lldp_is_received: r#"
        ofctl add-flow br0 actions=2
        vsctl set interface p1 lldp:enable=true
        vsctl -- --id=@aa create AutoAttach mappings:100=10 -- set bridge br0 auto_attach=@aa > /dev/null
        trace in_port=1,dl_type=0x88cc,dl_dst=01:80:c2:00:00:0e
        trace in_port=1,dl_type=0x88cc,dl_dst=50:54:00:00:00:09
        trace in_port=3,dl_type=0x88cc,dl_dst=01:80:c2:00:00:0e
        # A server that answers the mapping: active.
        receive p1 0180c200000e50540000000188cc0207040200000000090403057031060200780c0673657276657208026162fe3200040d0b000000000000000000000000000000000000000000000000000000000000000008000000aabbccddeeff00000000fe2900040d0c0000000000000000000000000000000000000000000000000000000000000000200a0000640000
        appctl autoattach/status
        appctl autoattach/show-isid
        appctl autoattach/statistics
        # The same again, one without its end, and one with a TLV of another organisation.
        receive p1 0180c200000e50540000000188cc0207040200000000090403057031060200780c0673657276657208026162fe3200040d0b000000000000000000000000000000000000000000000000000000000000000008000000aabbccddeeff00000000fe2900040d0c0000000000000000000000000000000000000000000000000000000000000000200a0000640000
        receive p1 0180c200000e50540000000188cc02070402000000000904030570310602007812
        receive p1 0180c200000e50540000000188cc020704020000000009040305703206020078fe0400120f010000
        appctl autoattach/statistics
        appctl autoattach/status br0
        vsctl set interface p1 lldp:enable=false
        appctl autoattach/statistics
        trace in_port=1,dl_type=0x88cc,dl_dst=01:80:c2:00:00:0e
        vsctl set interface p1 lldp:enable=true
        vsctl clear interface p1 lldp
        appctl autoattach/statistics
    "#;
    a_short_answer_in_the_log: r#"
        vsctl set interface p1 lldp:enable=true
        receive p1 0180c200000ef6b426aa5f0088cc020704f6b426aa5f000403057632060200780c504445414442454546444541444245454644454144424545464445414442454546444541444245454644454144424545464445414442454546444541444245454644454144424545464445414442454546fe0500040d0c010000
        for i in $(seq 100); do grep -q 'TLV too short' $OVS_LOGDIR/ovs-vswitchd.log && break; sleep 0.02; done
        grep -o 'ISID_VLAN_ASGNS TLV too short.*' $OVS_LOGDIR/ovs-vswitchd.log
    "#;
}
