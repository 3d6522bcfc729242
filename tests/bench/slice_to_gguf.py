#!/usr/bin/env python3
"""Writes a checkpoint folder, such as one of ferry_slice, as one GGUF file, so that llama.cpp is measured on the same numbers.

    tests/bench/slice_to_gguf.py FOLDER FILE.gguf

Needs numpy and the gguf package of PyPI. It knows the layers of Qwen3.5-MoE, Qwen3-Next and LFM2-MoE; heads of a gated delta layer must
be as wide for values as for keys, since llama.cpp takes no others. The tokenizer is a dummy with as many tokens as the embedding has rows.

What GGUF wants otherwise than Hugging Face:
- Qwen's norms are stored as 1 + w, but for the one inside a gated delta layer, which is stored as it is in both.
- A_log is stored as -exp(A_log).
- Qwen3.5's value heads, which follow their key head (k0v0 k0v1 k1v0 k1v1), are tiled over the key heads (k0v0 k1v0 k0v1 k1v1).
- Qwen3-Next's in_proj_qkvz, where each key head has its own q, k, v and z, is a tensor of all q, k and v and one of all z; the heads
  keep their order, and in_proj_ba is as it was.
- Experts are three tensors a layer: gate, up and down.
- Vectors, kernels of convolutions and routers are float32.
"""

import argparse
import json
import pathlib
import re
import struct

import gguf
import numpy as np


class Tensors:
    """The tensors of a checkpoint folder, mapped; bfloat16 as uint16."""

    STORED = {"BF16": np.uint16, "F32": np.float32}

    def __init__(self, folder):
        self.entries = {}  # name -> file, offset of its values, entry of the header
        for file in sorted(folder.glob("*.safetensors")):
            with file.open("rb") as f:
                header_bytes = struct.unpack("<Q", f.read(8))[0]
                header = json.loads(f.read(header_bytes))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                self.entries[name] = (file, 8 + header_bytes + entry["data_offsets"][0], entry)

    def read(self, name):
        file, offset, entry = self.entries[name]
        return np.memmap(file, self.STORED[entry["dtype"]], "r", offset, tuple(entry["shape"]))


def same(x):
    return x


def as_float(x):
    return x if x.dtype == np.float32 else (x.astype(np.uint32) << 16).view(np.float32)


def one_more(x):
    return as_float(x) + np.float32(1)


def flat(x):
    return as_float(x).reshape(-1)


def kernel(x):
    """[channels, 1, taps] -> [channels, taps]"""
    return as_float(x)[:, 0]


def decay(x):
    return -np.exp(as_float(x))


def gate_rows(x):
    """Of gate_up_proj [experts, 2 * inner, hidden]."""
    return x[:, : x.shape[1] // 2]


def up_rows(x):
    return x[:, x.shape[1] // 2 :]


class DeltaHeads:
    """Rows of a gated delta layer, which depend on its heads."""

    def __init__(self, text):
        self.num_k_heads, self.num_v_heads = text["linear_num_key_heads"], text["linear_num_value_heads"]
        self.head_dim = text["linear_key_head_dim"]
        if text["linear_value_head_dim"] != self.head_dim:
            raise SystemExit("value heads are not as wide as key heads: llama.cpp cannot run them")

    def tiled(self, x, width):
        """Rows of value heads, `width` each, from key-head-major to tiled."""
        grouped = x.reshape(self.num_k_heads, -1, width, *x.shape[1:])
        return grouped.swapaxes(0, 1).reshape(x.shape)

    def tiled_heads(self, x):
        return self.tiled(x, self.head_dim)

    def tiled_scalars(self, x):
        return self.tiled(x, 1)

    def tiled_values(self, x):
        """Rows of q, k and v: those of v are tiled."""
        num_qk = 2 * self.num_k_heads * self.head_dim
        return np.concatenate([x[:num_qk], self.tiled_heads(x[num_qk:])])

    def parted(self, x):
        """Rows of in_proj_qkvz, as q, k, v and z of all heads."""
        values = self.num_v_heads // self.num_k_heads * self.head_dim
        own = x.reshape(self.num_k_heads, -1, x.shape[1])
        parts = np.split(own, np.cumsum([self.head_dim, self.head_dim, values]), axis=1)
        return [part.reshape(-1, x.shape[1]) for part in parts]

    def qkv(self, x):
        return np.concatenate(self.parted(x)[:3])

    def z(self, x):
        return self.parted(x)[3]


def renamed(change, names):
    return {f"{name}.weight": [(f"{to}.weight", change)] for name, to in names.items()}


# Name in the checkpoint, without the prefix of the model and of the layer -> [(name in GGUF, what becomes of the values)].
# "experts.*." stands for the tensors of all experts, stacked.
ATTENTION = {f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"}

QWEN = {
    **renamed(same, ATTENTION),
    **renamed(same, {"self_attn.o_proj": "attn_output", "embed_tokens": "token_embd", "lm_head": "output"}),
    **renamed(one_more, {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}),
    **renamed(one_more, {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "norm": "output_norm"}),
    **renamed(as_float, {"linear_attn.norm": "ssm_norm", "mlp.gate": "ffn_gate_inp"}),
    **renamed(flat, {"mlp.shared_expert_gate": "ffn_gate_inp_shexp"}),
    **renamed(same, {f"mlp.shared_expert.{name}_proj": f"ffn_{name}_shexp" for name in ("gate", "up", "down")}),
    **renamed(same, {f"mlp.experts.*.{name}_proj": f"ffn_{name}_exps" for name in ("gate", "up", "down")}),
    "mlp.experts.gate_up_proj": [("ffn_gate_exps.weight", gate_rows), ("ffn_up_exps.weight", up_rows)],
    "mlp.experts.down_proj": [("ffn_down_exps.weight", same)],
}

LFM2_NETWORK = {"w1": "gate", "w3": "up", "w2": "down"}
LFM2 = {
    **renamed(same, ATTENTION),
    **renamed(same, {"self_attn.out_proj": "attn_output", "embed_tokens": "token_embd"}),
    **renamed(as_float, {"embedding_norm": "token_embd_norm", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm"}),
    **renamed(as_float, {"self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm"}),
    **renamed(same, {"conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj"}),
    **renamed(kernel, {"conv.conv": "shortconv.conv"}),
    **renamed(as_float, {"feed_forward.gate": "ffn_gate_inp"}),
    **renamed(same, {f"feed_forward.{name}": f"ffn_{to}" for name, to in LFM2_NETWORK.items()}),
    **renamed(same, {f"feed_forward.experts.*.{name}": f"ffn_{to}_exps" for name, to in LFM2_NETWORK.items()}),
    "feed_forward.expert_bias": [("exp_probs_b.bias", as_float)],
}


def qwen35_delta(heads):
    return {
        "linear_attn.in_proj_qkv.weight": [("attn_qkv.weight", heads.tiled_values)],
        "linear_attn.in_proj_z.weight": [("attn_gate.weight", heads.tiled_heads)],
        "linear_attn.in_proj_b.weight": [("ssm_beta.weight", heads.tiled_scalars)],
        "linear_attn.in_proj_a.weight": [("ssm_alpha.weight", heads.tiled_scalars)],
        "linear_attn.conv1d.weight": [("ssm_conv1d.weight", lambda x: heads.tiled_values(kernel(x)))],
        "linear_attn.dt_bias": [("ssm_dt.bias", lambda x: heads.tiled_scalars(as_float(x)))],
        "linear_attn.A_log": [("ssm_a", lambda x: heads.tiled_scalars(decay(x)))],
        "linear_attn.out_proj.weight": [("ssm_out.weight", lambda x: heads.tiled_heads(x.T).T)],
    }


def qwen_next_delta(heads):
    return {
        "linear_attn.in_proj_qkvz.weight": [("attn_qkv.weight", heads.qkv), ("attn_gate.weight", heads.z)],
        "linear_attn.in_proj_ba.weight": [("ssm_ba.weight", same)],
        "linear_attn.conv1d.weight": [("ssm_conv1d.weight", kernel)],
        "linear_attn.dt_bias": [("ssm_dt.bias", as_float)],
        "linear_attn.A_log": [("ssm_a", decay)],
        "linear_attn.out_proj.weight": [("ssm_out.weight", same)],
    }


def architecture(text):
    """The architecture's name in GGUF and the table of its tensors."""
    kind = text["model_type"]
    if kind == "lfm2_moe":
        return "lfm2moe", LFM2
    if kind == "qwen3_next":
        return "qwen3next", QWEN | qwen_next_delta(DeltaHeads(text))
    if kind == "qwen3_5_moe_text":
        return "qwen35moe", QWEN | qwen35_delta(DeltaHeads(text))
    raise SystemExit(f"no architecture of GGUF is known here for {kind}")


def groups_of(names):
    """{name with a star for the number of an expert: names it stands for, in the experts' order}"""
    groups = {}
    for name in names:
        expert = re.search(r"\.experts\.(\d+)\.", name)
        key = name.replace(expert[0], ".experts.*.") if expert else name
        groups.setdefault(key, []).append((int(expert[1]) if expert else 0, name))
    return {key: [name for _, name in sorted(members)] for key, members in groups.items()}


def converted(tensors, table):
    """(name in GGUF, values) of every tensor. Values are read when asked for, so only one tensor is in memory."""
    for key, members in groups_of(tensors.entries).items():
        layer, short = re.fullmatch(r"(?:model\.)?(?:language_model\.)?(?:layers\.(\d+)\.)?(.*)", key).groups()
        x = np.stack([tensors.read(name) for name in members]) if "*" in key else tensors.read(key)
        for name, change in table[short]:
            yield (f"blk.{layer}.{name}" if layer else name), change(x)


def common_keys(text):
    rope = text["rope_parameters"]
    return {
        "block_count": text["num_hidden_layers"],
        "context_length": text["max_position_embeddings"],
        "embedding_length": text["hidden_size"],
        "vocab_size": text["vocab_size"],
        "attention.head_count": text["num_attention_heads"],
        "expert_count": text["num_experts"],
        "expert_used_count": text["num_experts_per_tok"],
        "expert_feed_forward_length": text["moe_intermediate_size"],
        "rope.freq_base": float(rope["rope_theta"]),
    }


def qwen_keys(text):
    rope, head_dim = text["rope_parameters"], text["head_dim"]
    keys = {
        "attention.head_count_kv": text["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(text["rms_norm_eps"]),
        "rope.dimension_count": int(head_dim * rope["partial_rotary_factor"]),
        "expert_shared_feed_forward_length": text["shared_expert_intermediate_size"],
        "ssm.conv_kernel": text["linear_conv_kernel_dim"],
        "ssm.state_size": text["linear_key_head_dim"],
        "ssm.group_count": text["linear_num_key_heads"],
        "ssm.time_step_rank": text["linear_num_value_heads"],
        "ssm.inner_size": text["linear_num_value_heads"] * text["linear_value_head_dim"],
        "full_attention_interval": [*text["layer_types"], "full_attention"].index("full_attention") + 1,
    }
    if "mrope_section" in rope:
        keys["rope.dimension_sections"] = [*rope["mrope_section"], 0]
    return keys


def lfm2_keys(text):
    return {
        # A layer without heads of keys is a convolution.
        "attention.head_count_kv": [text["num_key_value_heads"] * (kind == "full_attention") for kind in text["layer_types"]],
        "attention.layer_norm_rms_epsilon": float(text["norm_eps"]),
        "feed_forward_length": text["intermediate_size"],
        "leading_dense_block_count": text["num_dense_layers"],
        "expert_gating_func": int(gguf.ExpertGatingFuncType.SIGMOID),
        "shortconv.l_cache": text["conv_L_cache"],
    }


def add_tokenizer(writer, num_tokens):
    """Byte-level BPE of tokens t0, t1, ...; the loader asks for at least one merge."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{i}" for i in range(num_tokens)])
    writer.add_token_types([int(gguf.TokenType.NORMAL)] * num_tokens)
    writer.add_token_merges(["t 0"])


def write(folder, file):
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    arch, table = architecture(text)
    tensors = Tensors(folder)
    writer = gguf.GGUFWriter(file, arch)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    add = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
    for key, value in (common_keys(text) | (lfm2_keys(text) if arch == "lfm2moe" else qwen_keys(text))).items():
        add[type(value)](f"{arch}.{key}", value)
    add_tokenizer(writer, text["vocab_size"])
    for name, x in converted(tensors, table):
        raw = gguf.GGMLQuantizationType.BF16 if x.dtype == np.uint16 else None
        writer.add_tensor_info(name, x.shape, x.dtype, x.nbytes, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, x in converted(tensors, table):
        writer.write_tensor_data(np.ascontiguousarray(x))
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    write(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
