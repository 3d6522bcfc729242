#!/usr/bin/env python3
"""Asks a running Ferry server one question, perhaps about a picture, and prints the answer as it comes.

Usage: client.py QUESTION [HOST:PORT] [PICTURE…]      (default 127.0.0.1:50051; no TLS)

The environment's FERRY_API_KEY is the key for a server that asks for one.

Needs grpcio and grpcio-tools, which launch/setup.sh installs in .venv. The stubs are made from proto/ on the fly.
"""

import importlib
import os
import pathlib
import re
import sys
import tempfile

try:
    import grpc
    from grpc_tools import protoc
except ImportError as missing:
    sys.exit(f"client.py: {missing}; run launch/setup.sh --no-build once, and then this with .venv/bin/python")

PROTO = pathlib.Path(__file__).resolve().parents[1] / "proto"


def load_stubs(folder, service="inference"):
    """The messages and the client of proto/ferry/v1/SERVICE.proto."""
    name = f"ferry/v1/{service}.proto"
    if protoc.main(["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}", name]) != 0:
        sys.exit(f"client.py: proto/{name} does not compile")
    sys.path.insert(0, folder)
    return importlib.import_module(f"ferry.v1.{service}_pb2"), importlib.import_module(f"ferry.v1.{service}_pb2_grpc")


def read_file(name):
    try:
        return pathlib.Path(name).read_bytes()
    except OSError as error:
        sys.exit(f"client.py: '{name}' cannot be read: {error.strerror}")


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="ferry-stubs-") as folder:
        pb, pb_grpc = load_stubs(folder)
    arguments = sys.argv[2:]
    address = arguments.pop(0) if arguments and re.fullmatch(r"[^/]+:\d+", arguments[0]) else "127.0.0.1:50051"
    stub = pb_grpc.InferenceStub(grpc.insecure_channel(address))
    pictures = [pb.Part(picture=pb.Picture(data=read_file(name))) for name in arguments]
    message = pb.ChatMessage(role="user", parts=[*pictures, pb.Part(text=sys.argv[1])])
    request = pb.GenerateRequest(chat=pb.Chat(messages=[message]))
    key = os.environ.get("FERRY_API_KEY")
    metadata = [("x-api-key", key)] if key else []
    try:
        # A server that takes none receives no message as large as a picture, and gRPC alone would not say why.
        if pictures and not stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=300, metadata=metadata).takes_media:
            sys.exit("client.py: this server takes no pictures: its model has no vision tower, or --picture-tokens is 0")
        for response in stub.Generate(request, timeout=300, metadata=metadata):
            print(response.text, end="", flush=True)
        print()
    except grpc.RpcError as error:
        sys.exit(f"client.py: {error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
