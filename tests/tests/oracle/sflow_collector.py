# SPDX-License-Identifier: Apache-2.0
"""A collector of sFlow version 5 for one test.

It writes its port to `port`, and the records of the first counters sample with those of LACP to `got`:
the format and the bytes of each, without numbers that depend on the time.
"""

import socket
import struct

COUNTERS_SAMPLE = 2
INTERFACE = 1
LACP = 7
# The place of the number of sent LACPDUs.
SENT = slice(44, 48)

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
            if kind != COUNTERS_SAMPLE:
                continue
            (count,) = struct.unpack_from("!I", sample, 8)
            records = list(parts(sample[12:], count))
            if LACP in dict(records):
                return records


with open("got", "w") as got:
    for kind, value in find():
        if kind == INTERFACE:
            continue
        if kind == LACP:
            assert value[SENT] != bytes(4)
            value = value[: SENT.start] + value[SENT.stop :]
        got.write(f"{kind}: {value.hex(' ', 4)}\n")
