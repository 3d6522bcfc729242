#!/usr/bin/env python3
"""Tells where the experts of a running Ferry server are, or moves them to where a file has them.

Usage: placement.py [HOST:PORT] > FILE          prints the placement, in the form that --placement FILE takes
       placement.py [HOST:PORT] FILE            moves experts to it, and returns when steps run by it

(default 127.0.0.1:50051; no TLS; with FERRY_API_KEY in the environment as the key)

A file's n-th worker is rank n. Needs what client.py needs.
"""

import json
import os
import re
import sys
import tempfile

import client
import grpc

SECONDS = 3600  # for workers to read experts


def metadata():
    key = os.environ.get("FERRY_API_KEY")
    return [("authorization", f"Bearer {key}")] if key else []


def write(placement):
    """A GetPlacementResponse as --placement reads it."""
    workers = max(rank.rank for layer in placement.layers for rank in layer.ranks)
    layers = [[[] for _ in range(workers)] for _ in placement.layers]
    for lists, layer in zip(layers, placement.layers):
        for rank in layer.ranks:
            if rank.rank > 0:  # else the coordinator, which has all when it is alone
                lists[rank.rank - 1] = list(rank.experts)
    experts = 1 + max(expert for layer in placement.layers for rank in layer.ranks for expert in rank.experts)
    return json.dumps({"format": "ferry-placement", "version": 1, "num_experts": experts, "num_workers": workers, "layers": layers})


def read(pb, name):
    try:
        layers = json.loads(client.read_file(name))["layers"]
        of_rank = lambda index, experts: pb.GetPlacementResponse.RankExperts(rank=index + 1, experts=experts)
        of_layer = lambda lists: pb.GetPlacementResponse.Layer(ranks=[of_rank(*held) for held in enumerate(lists)])
        return pb.SetPlacementRequest(layers=[of_layer(lists) for lists in layers])
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"placement.py: '{name}' holds no placement: {error}")


def main():
    arguments = sys.argv[1:]
    address = arguments.pop(0) if arguments and re.fullmatch(r"[^/]+:\d+", arguments[0]) else "127.0.0.1:50051"
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="ferry-stubs-") as folder:
        pb, pb_grpc = client.load_stubs(folder, "experts")
    stub = pb_grpc.ExpertsStub(grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)]))
    try:
        if not arguments:
            print(write(stub.GetPlacement(pb.GetPlacementRequest(), timeout=60, metadata=metadata())))
            return
        done = stub.SetPlacement(read(pb, arguments[0]), timeout=SECONDS, metadata=metadata())
        print(f"placement.py: steps run by placement {done.epoch}", file=sys.stderr)
    except grpc.RpcError as error:
        sys.exit(f"placement.py: {error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
