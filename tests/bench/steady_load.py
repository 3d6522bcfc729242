"""A gRPC client of Python's standard library alone that keeps a server busy."""

import random
import socket
import struct
import threading


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, payload):
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def generate_request(rng, prompt_tokens, new_tokens, temperature):
    """A framed ferry.v1.GenerateRequest: random ids, sampled (temperature 0: the likeliest tokens), no stop id."""
    ids = b"".join(varint(rng.randrange(10, 2000)) for _ in range(prompt_tokens))
    sampling = varint(1 << 3 | 5) + struct.pack("<f", temperature) + varint(4 << 3) + varint(rng.randrange(1, 1 << 30))
    sampling += varint(5 << 3) + varint(new_tokens) + varint(6 << 3) + b"\1"
    message = field(3, field(1, ids)) + field(4, sampling)
    return b"\0" + struct.pack(">I", len(message)) + message


class Load:
    """Keeps `streams` Generate calls open over one HTTP/2 connection until it is closed."""

    def __init__(self, address, streams, prompt_tokens, new_tokens, temperature=1.0):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        # Else a call waits for what is written to another one, which acknowledges what was sent before.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._authority = address
        self._shape = (prompt_tokens, new_tokens, temperature)
        self._rng = random.Random(7)
        self._next_stream = 1
        self._closing = False
        self.refused = 0
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(4, 0, 0, struct.pack(">HI", 4, 1 << 24)))
        self._socket.sendall(self._frame(8, 0, 0, struct.pack(">I", 1 << 24)))
        for _ in range(streams):
            self._open()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @staticmethod
    def _frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def _open(self):
        headers = b""
        for name, value in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/ferry.v1.Inference/Generate"),
            (":authority", self._authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ):
            headers += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        body = generate_request(self._rng, *self._shape)
        self._socket.sendall(self._frame(1, 4, stream, headers) + self._frame(0, 1, stream, body))

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data

    def _read(self):
        try:
            got_data = set()
            while not self._closing:
                head = self._exactly(9)
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
                payload = self._exactly(size)
                if kind == 0 and size > 0:
                    got_data.add(stream)
                    self._socket.sendall(self._frame(8, 0, 0, struct.pack(">I", size)))
                elif kind == 4 and not flags & 1:
                    self._socket.sendall(self._frame(4, 1, 0, b""))
                elif kind == 6 and not flags & 1:
                    self._socket.sendall(self._frame(6, 1, 0, payload))
                if kind == 3 or (kind in (0, 1) and flags & 1):  # the call has ended
                    self.refused += stream not in got_data
                    got_data.discard(stream)
                    self._open()
        except OSError:
            if not self._closing:
                raise

    def close(self):
        """May be called again."""
        if self._closing:
            return
        self._closing = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)
