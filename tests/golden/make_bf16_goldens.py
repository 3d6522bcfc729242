"""golden_bf16.safetensors of fixtures that exist: their weights rounded to bfloat16, run in bfloat16 by transformers on the CPU.

Usage: make_bf16_goldens.py FIXTURE_DIR...   (needs torch, transformers, safetensors)
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

torch.set_grad_enabled(False)


def load(folder):
    sees = hasattr(AutoConfig.from_pretrained(folder), "vision_config")
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").eval()


for folder in map(pathlib.Path, sys.argv[1:]):
    model, logits = load(folder), {}
    for i, prompt in enumerate(json.loads((folder / "golden.json").read_text())["prompts"]):
        logits[f"prompt{i}.logits_bf16"] = model(input_ids=torch.tensor([prompt["ids"]])).logits[0].float().contiguous()
    save_file(logits, folder / "golden_bf16.safetensors")
