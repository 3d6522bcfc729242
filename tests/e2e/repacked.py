"""The quantised checkpoints of tests/golden as other tools would have stored them: other words and names for the same codes and scales."""

import json
import struct

import ferry_job  # noqa: F401, finds numpy
import numpy as np

GPTQ = ferry_job.ROOT / "tests/golden/gptq_qwen3_5_moe"
FP8 = ferry_job.ROOT / "tests/golden/fp8_qwen3_5_moe"
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the neighbour at each place of a word, from the lowest bits
TYPES = {"I32": np.int32, "I64": np.int64, "F16": np.float16, "F32": np.float32, "BF16": np.uint16, "F8_E4M3": np.uint8}


def read_tensors(folder):
    """{name: (stored type, array)}; bfloat16 and e4m3 as their bits."""
    tensors = {}
    for file in sorted(folder.glob("model.safetensors-*")):
        data = file.read_bytes()
        end = 8 + struct.unpack_from("<Q", data)[0]
        for name, entry in json.loads(data[8:end]).items():
            if name == "__metadata__":
                continue
            begin, stop = (end + offset for offset in entry["data_offsets"])
            array = np.frombuffer(data[begin:stop], TYPES[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = (entry["dtype"], array)
    return tensors


def write_checkpoint(folder, tensors, source, quantization):
    """In one file, with the configuration of `source` but for its quantization_config."""
    folder.mkdir()
    header, blobs, offset = {}, [], 0
    for name, (dtype, array) in tensors.items():
        blobs.append(np.ascontiguousarray(array).tobytes())
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(blobs[-1])]}
        offset += len(blobs[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(b"".join([struct.pack("<Q", len(text)), text, *blobs]))
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def packed(codes, bits, order=range(8)):
    """[n, k] to words of 32 bits along the columns, filled up with zeros."""
    per_word = 32 // bits
    words = np.pad(codes.astype(np.uint32), ((0, 0), (0, -codes.shape[1] % per_word))).reshape(codes.shape[0], -1, per_word)
    places = list(order)[:per_word]
    return sum(words[:, :, neighbour] << (bits * place) for place, neighbour in enumerate(places)).astype(np.uint32).view(np.int32)


def gptq_matrices(tensors):
    """(name, codes [n, k], zero points [n, groups], scales [n, groups], group of each column) of every matrix; takes them out."""
    for name in [name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")]:
        words, zeros, scales, groups = (tensors.pop(f"{name}.{part}")[1] for part in ("qweight", "qzeros", "scales", "g_idx"))
        shifts = np.arange(0, 32, 4, dtype=np.uint32)
        codes = (words.view(np.uint32)[:, None, :] >> shifts[:, None] & 15).reshape(-1, words.shape[1]).T
        zeros = ((zeros.view(np.uint32) + np.uint32(0x11111111))[:, :, None] >> shifts & 15).reshape(zeros.shape[0], -1).T
        yield name, codes, zeros, scales.T, groups


def as_awq(folder):
    tensors = read_tensors(GPTQ)
    for name, codes, zeros, scales, _ in gptq_matrices(tensors):
        tensors[f"{name}.qweight"] = ("I32", packed(codes.T, 4, AWQ_ORDER))
        tensors[f"{name}.qzeros"] = ("I32", packed(zeros.T, 4, AWQ_ORDER))
        tensors[f"{name}.scales"] = ("F16", scales.T)
    return write_checkpoint(
        folder, tensors, GPTQ, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
    )


def compressed_tensors(weights, format_name):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "format": None}
    return {
        "quant_method": "compressed-tensors",
        "format": format_name,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
    }


def as_packed_integers(folder, bits, has_zeros, has_groups=False):
    """Of compressed-tensors; codes of 8 bits are those of 4 about another middle."""
    tensors, middle = read_tensors(GPTQ), 1 << (bits - 1)
    for name, codes, zeros, scales, groups in gptq_matrices(tensors):
        tensors[f"{name}.weight_packed"] = ("I32", packed(codes.astype(np.int64) - 8 + middle, bits))
        tensors[f"{name}.weight_scale"] = ("F16", scales)
        tensors[f"{name}.weight_shape"] = ("I64", np.array(codes.shape, np.int64))
        if has_zeros:
            tensors[f"{name}.weight_zero_point"] = ("I32", packed(zeros.T.astype(np.int64) - 8 + middle, bits).T)
        if has_groups:
            tensors[f"{name}.weight_g_idx"] = ("I32", groups)
    weights = {"type": "int", "num_bits": bits, "strategy": "group", "group_size": 128, "symmetric": not has_zeros}
    weights["actorder"] = "group" if has_groups else None
    return write_checkpoint(folder, tensors, GPTQ, compressed_tensors(weights, "pack-quantized"))


def as_float_quantized(folder):
    tensors = {name.replace("weight_scale_inv", "weight_scale"): tensor for name, tensor in read_tensors(FP8).items()}
    weights = {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [128, 128], "symmetric": True}
    return write_checkpoint(folder, tensors, FP8, compressed_tensors(weights, "float-quantized"))
