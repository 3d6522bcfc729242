"""The TCP ports of a process, strangers who connect to them, and addresses that nobody else takes."""

import os
import pathlib
import random
import re
import socket


def listeners(process_id):
    """[(address, port)] on which the process listens for TCP connections."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{process_id}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
        except OSError:
            continue
        if found:
            inodes.add(found[1])
    result = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/{process_id}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or fields[9] not in inodes:
                continue
            address, port = fields[1].split(":")
            words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
            result.append((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return result


def connect(address, port, seconds=240.0):
    host = "::1" if address in ("::1", "::") else "127.0.0.1"
    return socket.create_connection((host, port), timeout=seconds)


def own_host():
    """An address of loopback that no other test listens on."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"


def keep_port(address=":0"):
    """Keeps the port of `address`, on which a process listens that is to come again, or any: the socket to hold on to. Whoever asks
    the system for any port of all addresses gets another one meanwhile, and no other test listens on the host of own_host()."""
    keeper = socket.socket()
    keeper.bind((own_host(), int(address.rsplit(":", 1)[1])))
    return keeper
