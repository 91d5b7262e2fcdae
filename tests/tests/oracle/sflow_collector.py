# SPDX-License-Identifier: Apache-2.0
"""A collector of sFlow version 5 for one test: sflow_collector.py SAMPLE RECORD

It writes its port to `port`, and the records of the first sample of this format that has such a record
to `got`: the format and the bytes of each, without numbers that depend on the time.
"""

import socket
import struct
import sys

COUNTERS_SAMPLE = 2
INTERFACE = 1
LACP = 7
# The place of the number of sent LACPDUs.
SENT = slice(44, 48)
# The places of the number of records in samples.
COUNT_AT = {1: 28, COUNTERS_SAMPLE: 8}

wanted, record = int(sys.argv[1]), int(sys.argv[2])
collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
collector.bind(("127.0.0.1", 0))
collector.settimeout(30)
with open("port", "w") as port:
    port.write(str(collector.getsockname()[1]))


def parts(data, count):
    """The parts of a list: format and value."""
    for _ in range(count):
        kind, size = struct.unpack_from("!II", data)
        yield kind, data[8 : 8 + size]
        data = data[8 + size :]


def find():
    while True:
        datagram = collector.recv(9999)
        (count,) = struct.unpack_from("!I", datagram, 24)  # the agent has an address of IPv4
        for kind, sample in parts(datagram[28:], count):
            if kind != wanted:
                continue
            at = COUNT_AT[kind]
            (count,) = struct.unpack_from("!I", sample, at)
            records = list(parts(sample[at + 4 :], count))
            if record in dict(records):
                return records


with open("got", "w") as got:
    for kind, value in find():
        if wanted == COUNTERS_SAMPLE and kind == INTERFACE:
            continue
        if wanted == COUNTERS_SAMPLE and kind == LACP:
            assert value[SENT] != bytes(4)
            value = value[: SENT.start] + value[SENT.stop :]
        got.write(f"{kind}: {value.hex(' ', 4)}\n")
