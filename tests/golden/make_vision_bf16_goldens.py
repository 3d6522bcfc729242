#!/usr/bin/env python3
"""Writes golden_bf16.safetensors beside the goldens of vision towers: what transformers makes of the same pictures in bfloat16.

    make_vision_bf16_goldens.py CHECKPOINT_DIR PICTURE_DIR GOLDEN_DIR PICTURE...

`image{i}.merged_bf16` [tokens, hidden] f32. Written with transformers 5.23.0 (torch 2.15.0).
"""

import json
import pathlib
import sys

import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5VisionModel
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeVisionModel

PREFIX = "model.visual."


def load_tower(folder):
    config = AutoConfig.from_pretrained(folder)
    tower_class = Qwen3_5MoeVisionModel if config.model_type == "qwen3_5_moe" else Qwen3_5VisionModel
    tower = tower_class._from_config(config.vision_config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    weights = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            weights |= {name.removeprefix(PREFIX): file.get_tensor(name) for name in file.keys() if name.startswith(PREFIX)}
    tower.load_state_dict(weights)
    return tower


def main(checkpoint, pictures, golden, names):
    tower = load_tower(checkpoint)
    size = json.loads((checkpoint / "preprocessor_config.json").read_text())["size"]
    processor = Qwen2VLImageProcessor(size=size, patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    out = {}
    for i, name in enumerate(names):
        inputs = processor(images=[Image.open(pictures / name)], return_tensors="pt")
        with torch.no_grad():
            result = tower(inputs["pixel_values"].to(torch.bfloat16), grid_thw=inputs["image_grid_thw"])
        out[f"image{i}.merged_bf16"] = result.pooler_output.float().contiguous()
    save_file(out, golden / "golden_bf16.safetensors")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:4]), sys.argv[4:])
