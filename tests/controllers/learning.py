# SPDX-License-Identifier: Apache-2.0
"""A learning switch on os-ken, in the OpenFlow version that the variable VERSION names (1, 3, 4, 5, 6).

It sends each request that os-ken has in that version, and prints a line for each message of the
switch: `reply NAME`, `packet-in`, `port NAME`, `removed`, and `error TYPE CODE` for errors.
"""

import inspect
import os

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_0, ofproto_v1_2, ofproto_v1_3, ofproto_v1_4, ofproto_v1_5

VERSION = int(os.environ["VERSION"])
ANY_STATE = [CONFIG_DISPATCHER, MAIN_DISPATCHER]
# Each reply that os-ken knows, of any version.
REPLIES = [getattr(ofp_event, name) for name in dir(ofp_event) if name.endswith("Reply")]
# These need more than a datapath, or end what others ask for.
LEFT_OUT = {"OFPRequest", "OFPStatsRequest", "OFPMultipartRequest", "OFPVendorStatsRequest",
            "OFPExperimenterStatsRequest", "OFPFeaturesRequest", "OFPFlowMonitorRequest"}


def requests(datapath):
    """Each request of this version, with wildcards where it has arguments."""
    parser, proto = datapath.ofproto_parser, datapath.ofproto
    any_port = proto.OFPP_NONE if VERSION == 1 else proto.OFPP_ANY
    known = {
        "flags": 0, "flags_": 0, "body": [], "match": parser.OFPMatch(), "cookie": 0, "cookie_mask": 0,
        "table_id": 0xFF, "role": 1, "generation_id": 0, "meter_id": getattr(proto, "OFPM_ALL", 0),
        "port_no": any_port, "port": any_port, "out_port": any_port,
        "queue_id": getattr(proto, "OFPQ_ALL", 0), "group_id": getattr(proto, "OFPG_ALL", 0),
        "out_group": getattr(proto, "OFPG_ANY", 0), "data": b"echo", "short_id": 0,
        "feature_request_flags": 0, "properties": [],
    }
    for name, kind in inspect.getmembers(parser, inspect.isclass):
        is_message = issubclass(kind, parser.MsgBase)
        if not is_message or not name.startswith("OFP") or not name.endswith("Request") or name in LEFT_OUT:
            continue
        wanted = list(inspect.signature(kind.__init__).parameters.values())[2:]
        arguments = {p.name: known[p.name] for p in wanted if p.name in known}
        yield name, kind(datapath, **arguments)


class Learning(app_manager.OSKenApp):
    OFP_VERSIONS = [VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        datapath = event.msg.datapath
        if VERSION > 1:
            # From OpenFlow 1.3 on, packets without a rule are dropped.
            proto, parser = datapath.ofproto, datapath.ofproto_parser
            output = parser.OFPActionOutput(proto.OFPP_CONTROLLER, 0xFFFF)
            self.add(datapath, 0, parser.OFPMatch(), [output])
        for name, request in requests(datapath):
            print("request", name, flush=True)
            datapath.send_msg(request)

    def add(self, datapath, priority, match, actions):
        proto, parser = datapath.ofproto, datapath.ofproto_parser
        arguments = {"datapath": datapath, "match": match, "priority": priority,
                     "flags": proto.OFPFF_SEND_FLOW_REM}
        if VERSION == 1:
            arguments.update(actions=actions, cookie=0, command=proto.OFPFC_ADD)
        else:
            apply = parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, actions)
            arguments.update(instructions=[apply])
        datapath.send_msg(parser.OFPFlowMod(**arguments))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        datapath, proto, parser = message.datapath, message.datapath.ofproto, message.datapath.ofproto_parser
        port = message.in_port if VERSION == 1 else message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        print("packet-in", flush=True)
        self.ports[frame.src] = port
        to = self.ports.get(frame.dst, proto.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(to)]
        if to != proto.OFPP_FLOOD:
            if VERSION == 1:
                match = parser.OFPMatch(in_port=port, dl_dst=bytes.fromhex(frame.dst.replace(":", "")))
            else:
                match = parser.OFPMatch(in_port=port, eth_dst=frame.dst)
            self.add(datapath, 1, match, actions)
        if VERSION < 6:
            place = {"in_port": port}
        else:
            place = {"match": parser.OFPMatch(in_port=port)}
        out = parser.OFPPacketOut(datapath=datapath, buffer_id=0xFFFFFFFF,
                                  actions=actions, data=message.data, **place)
        datapath.send_msg(out)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port(self, event):
        name = event.msg.desc.name
        print("port", name.decode() if isinstance(name, bytes) else name, flush=True)

    @set_ev_cls(ofp_event.EventOFPFlowRemoved, MAIN_DISPATCHER)
    def removed(self, event):
        print("removed", flush=True)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, ANY_STATE)
    def error(self, event):
        print("error", event.msg.type, event.msg.code, flush=True)

    @set_ev_cls(REPLIES, ANY_STATE)
    def reply(self, event):
        print("reply", type(event.msg).__name__, flush=True)
