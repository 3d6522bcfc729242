#!/usr/bin/env python3
"""Records tests/golden/tokenizer_cases.json: what Hugging Face's `tokenizers` makes of a few hundred strings and id lists.

Needs `pip install tokenizers==0.23.3`; run from anywhere. The demo checkpoint's tokenizer.json is the tokenizer.
Text is stored as it is (JSON escapes); id lists carry the decoded text with special tokens kept and skipped.
"""

import json
import random
import unicodedata
from pathlib import Path

import tokenizers

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "launch" / "demo"

WORDS = (
    "don't I'LL we've it'S they'Re o'clock 'Twas hello World FOO_bar printf(\"%d\\n\", x); self.x[0] // 2 <|im_ <think "
    "<||im_end|> </think> \u4f60\u597d \u4e16\u754c \u3053\u3093\u306b\u3061\u306f \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \ud55c\uad6d\uc5b4 \u1112"
    "\u1161\u11ab \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 na\u00efve caf\u00e9 "
    "caf\u00e9 \u017f '\u017f K '\ufb01 \u1e9b\u0323 12345 3.14 \u00bd \u00b2 \u2167 \u0663\u0664 "
    "https://a.b/c?d=e&f=%20 ==> -- ... !!! ??? \x00 \x7f \u0085 \u180e \u200b \ufeff \ufffd \ue000 "
    "\U0010ffff \u0345 \u0301\u0303 \U00031350 \U0002ebf0 \u0711\u0307 n\u0c3c\u0303 \u0898\u0316 \U00010efd"
).split(" ")
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\r", "\x0b", "\x0c", "\u00a0", "\u2003", "\u3000", "\u2028", "\x1c", "\u0085", "\n ", " \n"]
NFD_RANGES = [(0xC0, 0x250), (0x1E00, 0x1FFF), (0xAC00, 0xD7A4), (0x300, 0x370), (0x900, 0xE00)]
FIXED = [
    "",
    " ",
    "a" * 200,
    " " * 100 + "x",
    "\n" * 37 + " y",
    "=" * 150,
    "The quick brown fox jumps over the lazy dog. " * 4,
    "def f(a, b):\n    if a > b:\n        return a\n\treturn b  # done\n\n\n",
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "...<|im_end|>...",
    "<|im_end|><|im_end|>  <|im_end|> ",
    "<tool_call></tool_call><tool_response>x</tool_response>",
]


def random_text(rng, code_points, added):
    kind = rng.randrange(7)
    size = rng.randrange(1, 16)
    if kind == 0:
        return "".join(chr(rng.choice(code_points)) for _ in range(size))
    if kind == 1:
        return "".join(chr(rng.randrange(32, 127)) for _ in range(2 * size))
    if kind == 2:
        return "".join(rng.choice(WORDS) + rng.choice(SPACES + [""]) for _ in range(size))
    if kind == 3:
        return "".join(rng.choice(WORDS + added) + rng.choice(["", " ", "\n"]) for _ in range(size))
    if kind == 4:
        return "".join(rng.choice(SPACES + ["a", "1", "!", "\u0301"]) for _ in range(2 * size))
    if kind == 5:
        text = "".join(chr(rng.randrange(*rng.choice(NFD_RANGES))) for _ in range(size))
        return unicodedata.normalize("NFD", text)
    return "".join(rng.choice([rng.choice(added)[: rng.randrange(1, 15)], rng.choice(WORDS), "'" + rng.choice("stremvldST\u017f")]) for _ in range(size))


def random_ids(rng, tokenizer, num_ids):
    kind = rng.randrange(3)
    size = rng.randrange(1, 24)
    if kind == 0:
        return [rng.randrange(num_ids + 20) for _ in range(size)]
    if kind == 1:
        return [rng.randrange(256) if rng.random() < 0.9 else rng.randrange(num_ids - 26, num_ids) for _ in range(size)]
    ids = []
    for _ in range(size // 3 + 1):
        word = tokenizer.encode(rng.choice(WORDS)).ids
        ids += word[: rng.randrange(len(word) + 1)]
    return ids


def main():
    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    rng = random.Random(20)
    texts = FIXED + WORDS + [random_text(rng, code_points, added) for _ in range(330)]
    id_lists = [random_ids(rng, tokenizer, tokenizer.get_vocab_size()) for _ in range(150)]
    cases = {
        "made_with": "tokenizers " + tokenizers.__version__,
        "encode": [{"text": text, "ids": tokenizer.encode(text).ids} for text in texts],
        "decode": [
            {
                "ids": ids,
                "keep": tokenizer.decode(ids, skip_special_tokens=False),
                "skip": tokenizer.decode(ids, skip_special_tokens=True),
            }
            for ids in id_lists
        ],
    }
    lines = [json.dumps(case) for case in cases["encode"]]
    decode_lines = [json.dumps(case) for case in cases["decode"]]
    text = '{"made_with": %s,\n"encode": [\n%s\n],\n"decode": [\n%s\n]}\n' % (
        json.dumps(cases["made_with"]),
        ",\n".join(lines),
        ",\n".join(decode_lines),
    )
    (ROOT / "tests" / "golden" / "tokenizer_cases.json").write_text(text)


if __name__ == "__main__":
    main()
