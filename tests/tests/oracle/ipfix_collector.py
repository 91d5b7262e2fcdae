# SPDX-License-Identifier: Apache-2.0
"""A collector of IPFIX (RFC 7011) for one test.

It writes its port to `port`. Once no message has come for 3 seconds after the first record, it writes
all messages to `got`: records with the values of their elements, read by the templates that came.
"""

import os
import socket
import struct

# Elements whose values depend on the time: flowStartDeltaMicroseconds, flowEndDeltaMicroseconds.
TIMES = (158, 159)

collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
collector.bind(("127.0.0.1", 0))
collector.settimeout(30)
with open("port", "w") as port:
    port.write(str(collector.getsockname()[1]))

templates, lines = {}, []
try:
    while True:
        message = collector.recv(65536)
        version, length, _, sequence, domain, kind, size = struct.unpack(">HHIIIHH", message[:20])
        body = message[20:]
        line = f"version={version} whole={length == len(message)} sequence={sequence}"
        line += f" domain={domain} set={kind} size={size}"
        if kind in (2, 3):
            lines.append(f"{line} {body.hex()}")
            while kind == 2 and body:
                number, count = struct.unpack(">HH", body[:4])
                body, elements = body[4:], []
                for _ in range(count):
                    element = struct.unpack(">HH", body[:4])
                    elements.append(element)
                    body = body[8 if element[0] & 0x8000 else 4 :]
                templates[number] = elements
            continue
        collector.settimeout(3)
        for number, size in templates.get(kind, [(0, len(body))]):
            if size == 65535:
                size, body = body[0], body[1:]
            if number not in TIMES:
                line += f" {number}={body[:size].hex()}"
            body = body[size:]
        lines.append(f"{line} left={len(body)}")
except TimeoutError:
    pass
with open("got.part", "w") as got:
    got.write("\n".join(lines) + "\n")
os.rename("got.part", "got")
