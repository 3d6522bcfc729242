"""The demo checkpoint with another start of its prompts, for the end-to-end tests."""

import json
import pathlib

DEMO = pathlib.Path(__file__).resolve().parents[2] / "launch/demo"
CHANGED = ("tokenizer.json", "tokenizer_config.json")


def demo_with_bos(folder):
    """Fills `folder`: the post-processor and the chat template put one token before a prompt. Returns its id."""
    folder = pathlib.Path(folder)
    for file in DEMO.iterdir():
        if file.is_file() and file.name not in CHANGED:
            (folder / file.name).symlink_to(file)
    tokenizer, config = (json.loads((DEMO / name).read_text()) for name in CHANGED)
    bos = tokenizer["added_tokens"][0]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "bos", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"bos": {"id": "bos", "ids": [bos["id"]], "tokens": [bos["content"]]}},
    }
    config["bos_token"] = bos["content"]
    config["chat_template"] = "{{- bos_token -}}" + config["chat_template"]
    for name, content in zip(CHANGED, (tokenizer, config)):
        (folder / name).write_text(json.dumps(content))
    return bos["id"]
