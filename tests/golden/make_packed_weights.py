"""What compressed-tensors 0.20.0, AutoAWQ 0.2.9 and AutoRound 0.16.1 make of small matrices: their tensors, their configuration and
the values that they stand for.

Usage: make_packed_weights.py OUT_DIR AUTOAWQ_SOURCE_DIR AUTOROUND_SOURCE_DIR

OUT_DIR gets model.safetensors (NAME.* as stored, values.NAME as float32) and cases.json (per NAME the shape and the
quantization_config). Needs torch, transformers, safetensors, compressed-tensors==0.20.0 and the unpacked sources of autoawq 0.2.9 and
auto-round 0.16.1.
"""

import json
import pathlib
import sys
import types

import torch
from compressed_tensors.compressors.naive_quantized import FloatQuantizationCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

out, awq_source, autoround_source = (pathlib.Path(argument) for argument in sys.argv[1:4])
generator = torch.Generator().manual_seed(20261123)
tensors, cases = {}, {}


def add(name, stored, values, config):
    tensors.update({f"{name}.{key}": value.contiguous() for key, value in stored.items()})
    tensors[f"values.{name}"] = values.float().contiguous()
    cases[name] = {"shape": list(values.shape), "quantization_config": config}


def scales_of(weight, args):
    """One scale and zero point for each row, group of columns or block."""
    n, k = weight.shape
    if args.strategy == "block":
        rows, cols = args.block_structure
        padded = torch.nn.functional.pad(weight, (0, -k % cols, 0, -n % rows))
        parts = padded.reshape(padded.shape[0] // rows, rows, -1, cols).transpose(1, 2).flatten(2)
    else:
        parts = weight.reshape(n, -1, args.group_size or k)
    return calculate_qparams(parts.amin(-1), parts.amax(-1), args)


def compressed(name, compressor, n, k, **kind):
    args = QuantizationArgs(**kind)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    weight = torch.randn(n, k, generator=generator)
    weight[: n // 2] += 0.7  # so that zero points differ
    scale, zero = scales_of(weight, args)
    stored = compressor.compress({"weight": weight, "weight_scale": scale, "weight_zero_point": zero}, scheme)
    format_name = "pack-quantized" if compressor is PackedQuantizationCompressor else "float-quantized"
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=format_name, quantization_status="compressed")
    add(name, stored, compressor.decompress(stored, scheme)["weight"], config.model_dump(mode="json"))


def only_packages(source, *packages):
    """Imports find the modules of these packages under `source` without running the packages' own imports, which need a GPU."""
    for package in packages:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [str(source / package.replace(".", "/"))]


def drawn(n, k, group, bits):
    """scales and zero points [k / group, n] and a Linear [n, k] whose weights they and codes make."""
    scales = (torch.rand(k // group, n, generator=generator) * 0.1 + 0.01).half()
    zeros = torch.randint(0, 1 << bits, (k // group, n), generator=generator)
    codes = torch.randint(0, 1 << bits, (k, n), generator=generator)
    linear = torch.nn.Linear(k, n, bias=False)
    linear.weight.data = (scales.repeat_interleave(group, 0).float() * (codes - zeros.repeat_interleave(group, 0))).t().contiguous()
    return scales, zeros, linear


def awq(name, n, k, group):
    only_packages(awq_source, "awq", "awq.utils", "awq.modules", "awq.modules.linear")
    sys.modules["awq.utils.module"] = types.SimpleNamespace(try_import=lambda _: (None, None))
    sys.modules["awq.utils.utils"] = types.SimpleNamespace(get_best_device=lambda: "cpu")
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    scales, zeros, linear = drawn(n, k, group, 4)
    made = WQLinear_GEMM.from_linear(linear, 4, group, scales=scales, zeros=zeros)
    stored = {"qweight": made.qweight, "qzeros": made.qzeros, "scales": made.scales}
    values = dequantize_gemm(made.qweight, made.qzeros, made.scales.float(), 4, group).t()
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    add(name, stored, values, config)


def autoround(name, packing, n, k, group, bits):
    only_packages(autoround_source, "auto_round", "auto_round_extension", "auto_round_extension.torch")
    sys.modules["auto_round.utils"] = types.ModuleType("auto_round.utils")
    sys.modules["auto_round.utils"].__path__ = [str(autoround_source / "auto_round/utils")]
    sys.modules["auto_round.utils"].get_packing_device = lambda _: "cpu"
    from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp

    scales, zeros, linear = drawn(n, k, group, bits)
    if packing == "auto_round:auto_gptq":  # which is for symmetric weights
        linear.weight.data += (scales.float() * (zeros - (1 << (bits - 1)))).repeat_interleave(group, 0).t()
        zeros = torch.full_like(zeros, 1 << (bits - 1))
    module = qlinear_torch_zp if packing == "auto_round:auto_gptq" else qlinear_torch
    made = module.QuantLinear(bits, group, k, n, bias=False)
    made.device = "cpu"
    made.pack(linear, scales.t().float(), zeros.t())
    config = {"quant_method": "auto-round", "bits": bits, "group_size": group, "data_type": "int", "packing_format": packing}
    add(name, {"qweight": made.qweight, "qzeros": made.qzeros, "scales": made.scales}, linear.weight.data, config)


PACKED, FLOAT = PackedQuantizationCompressor, FloatQuantizationCompressor
compressed("ints4_group", PACKED, 24, 96, num_bits=4, strategy="group", group_size=32, symmetric=True)
compressed("ints4_zeros", PACKED, 21, 96, num_bits=4, strategy="group", group_size=32, symmetric=False)
compressed("ints4_channel", PACKED, 21, 90, num_bits=4, strategy="channel", symmetric=False)
compressed("ints8_channel", PACKED, 21, 90, num_bits=8, strategy="channel", symmetric=True)
compressed("ints8_zeros", PACKED, 21, 96, num_bits=8, strategy="group", group_size=48, symmetric=False)
compressed("floats_channel", FLOAT, 21, 90, num_bits=8, type="float", strategy="channel", symmetric=True)
compressed("floats_block", FLOAT, 40, 72, num_bits=8, type="float", strategy="block", block_structure=[16, 32], symmetric=True)
awq("awq", 64, 96, 32)
autoround("autoround", "auto_round:auto_gptq", 64, 96, 32, bits=4)
autoround("autoround_zeros", "auto_round", 64, 96, 32, bits=4)
autoround("autoround_8", "auto_round", 64, 96, 32, bits=8)
out.mkdir(parents=True, exist_ok=True)
save_file(tensors, out / "model.safetensors")
(out / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
