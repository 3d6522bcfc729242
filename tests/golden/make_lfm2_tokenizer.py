#!/usr/bin/env python3
"""Makes tests/golden/lfm2_tokenizer/: a small tokenizer of LFM2's form, and what Hugging Face's `tokenizers` makes of hard strings.

Needs `pip install tokenizers==0.23.3`; run from anywhere. tokenizer.json has the stages and the control tokens of LFM2's (a
pre-tokenizer that takes up to three digits, no normalizer, <|startoftext|> put before a text), but a vocabulary trained on words
of the demo checkpoint's. Some merges are left out, so that there are tokens which only `ignore_merges` finds.

cases.json: `variants` are changes to the file (JSON patches); a text has the ids of the file as it is, and those of each variant
that makes other ones. `prefix` and `suffix` are what is put around a text. Id lists carry the decoded text, as in
tokenizer_cases.json, and that of each variant which makes another one.
"""

import copy
import json
import random

import tokenizers
from make_tokenizer_cases import DEMO, FIXED, ROOT, SPACES, WORDS, random_ids, random_text
from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers

OUT = ROOT / "tests" / "golden" / "lfm2_tokenizer"
SEED = 2
BOS = "<|startoftext|>"
FIRST = ["<|pad|>", BOS, "<|endoftext|>", "<|fim_pre|>", "<|fim_mid|>", "<|fim_suf|>", "<|im_start|>", "<|im_end|>"]
FIRST += ["<|tool_%s_%s|>" % (what, end) for what in ("list", "call", "response") for end in ("start", "end")]
LAST = ["<|%s_%s|>" % (what, end) for what in ("cot", "review", "file") for end in ("start", "end")] + ["<think>", "</think>"]
NORMALIZED = ["caf\u00e9", "re\u0301s", "<image>"]  # looked for in normalized text; the first is a byte-level spelling, too

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_4 = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s"
POSSESSIVE = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
REGEX_PATH = "/pre_tokenizer/pretokenizers/0/pattern/Regex"

MORE_WORDS = (
    "1 12 123 1234 12345 123456 1234567 1,234.56 \u0661\u0662\u0663\u0664\u0665 \u0967\u0968\u0969\u096a 1\u00bd23 \u4e00\u4e8c\u4e09\u56db 3d 7th x86_64 0xFF "
    "IT'S I'M WE'VE you'LL He'D 'TIS rock'n'roll '\u017fo \u2019s l'\u00e9t\u00e9 \u0645\u0631\u062d\u0628\u0627 \u0628\u0650\u0633\u0652\u0645\u0650 \u05e9\u05dc\u05d5\u05dd \u0e01\u0e34\u0e19\u0e02\u0e49\u0e32\u0e27 "
    "\u1780\u17b6\u1793\u17cb\u178f\u17c2 \u0ba8\u0ba9\u0bcd\u0bb1\u0bbf \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438 Vi\u1ec7t Vie\u0323\u0302t \u6771\u4eac\u90fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 "
    "\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea 1\ufe0f\u20e3 e\u0301\u0302\u0303 \u0301 \u200d \ufe0f \x00\x01\x02 \x1b[0m \u00ad \u2028 \u2029 <|startoftext <|startoftext|>> |im_start|> "
    "<|im_start|><|im_end|> <|<|pad|>|> <think></think> <|tool_call_start|>[f(x=1)]<|tool_call_end|> <image><image> cafe\u0301 caf\u00e9s \u1ef4\u0323x Y\u0323\u0303 re\u0301s r\u00e9s xr\u00e9sx"
).split(" ")
MORE_FIXED = ["1" * n for n in range(1, 20)] + [
    "\u00a0" * 3 + "x" + "\u00a0",
    " \n \r\n\t\r \n\n  \n" * 5,
    " " * 300,
    "\t" * 41 + "if x:",
    "9" * 400 + "." + "0" * 100,
    "ab" * 500,
    "\U0001f600" * 60,
    BOS,
    BOS + BOS + " " + BOS,
    BOS + "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n",
]


def added_token(token_id, content, normalized=False):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": not normalized}
    return {"id": token_id, "content": content, **flags}


def train():
    """A BPE of 3,000 tokens, the first of them FIRST, trained on seeded lines of words."""
    rng = random.Random(SEED)
    demo = json.loads((DEMO / "tokenizer.json").read_text())["model"]["vocab"]
    words = [word.replace("\u0120", " ") for word in sorted(demo) if word.lstrip("\u0120").isalpha() and word.isascii() or word[0] == "\u0120"]
    lines = []
    for _ in range(6000):
        parts = [rng.choice(words) if rng.random() < 0.8 else " " + rng.choice(WORDS + MORE_WORDS) for _ in range(12)]
        parts += [" " + str(rng.randrange(10 ** rng.randrange(1, 7))), rng.choice(SPACES) * rng.randrange(1, 5)]
        lines.append("".join(parts))
    made = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(LLAMA_3), behavior="isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.Sequence([decoders.ByteLevel()])
    template = processors.TemplateProcessing(single=[BOS, "$A"], pair=[BOS, "$A", BOS, "$B"], special_tokens=[(BOS, 1)])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=3000, special_tokens=FIRST, initial_alphabet=alphabet, show_progress=False))
    return json.loads(made.to_str())


def make_file():
    file = train()
    vocab = file["model"]["vocab"]
    merges = file["model"]["merges"]
    file["model"]["merges"] = [merge for i, merge in enumerate(merges) if i < 600 or i % 12 != 0]
    vocab.update({content: len(vocab) + i for i, content in enumerate(LAST + ["<image>"])})
    file["added_tokens"] = [added_token(vocab[content], content) for content in FIRST + LAST]
    file["added_tokens"] += [added_token(vocab.get(content, len(vocab) + i), content, True) for i, content in enumerate(NORMALIZED)]
    return file


def make_variants():
    eos = {"id": "<|im_end|>", "ids": [7], "tokens": ["<|im_end|>"]}
    bos = {"id": BOS, "ids": [1], "tokens": [BOS]}
    around = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {BOS: bos, "<|im_end|>": eos},
    }
    replace = lambda path, value: {"op": "replace", "path": path, "value": value}
    return [
        {"name": "ignore_merges", "patch": [replace("/model/ignore_merges", True)]},
        {"name": "one line break a piece, a token at both ends", "patch": [replace(REGEX_PATH, GPT_4), replace("/post_processor", around)]},
        {"name": "NFC, possessive", "patch": [replace(REGEX_PATH, POSSESSIVE), replace("/normalizer", {"type": "NFC"}), replace("/post_processor", None)]},
    ]


def patched(file, patch):
    """`file` after a JSON patch that only replaces."""
    file = copy.deepcopy(file)
    for change in patch:
        *folders, last = [int(key) if key.isdigit() else key for key in change["path"].split("/")[1:]]
        place = file
        for key in folders:
            place = place[key]
        place[last] = change["value"]
    return file


def encode_all(tokenizer, texts, prefix, suffix):
    all_ids = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text).ids == prefix + ids + suffix
        all_ids.append(ids)
    return all_ids


def decode_both(tokenizer, ids):
    return {"keep": tokenizer.decode(ids, skip_special_tokens=False), "skip": tokenizer.decode(ids, skip_special_tokens=True)}


def make_cases(file, num_texts, num_lists, seed):
    rng = random.Random(seed)
    added = FIRST + LAST + NORMALIZED
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    texts = FIXED + MORE_FIXED + WORDS + MORE_WORDS
    texts += ["".join(rng.choice(MORE_WORDS + added) + rng.choice(SPACES + ["", ""]) for _ in range(rng.randrange(1, 8))) for _ in range(num_texts // 2)]
    texts += [random_text(rng, code_points, added) for _ in range(num_texts - num_texts // 2)]
    plain = tokenizers.Tokenizer.from_str(json.dumps(file))
    cases = [{"text": text, "ids": ids} for text, ids in zip(texts, encode_all(plain, texts, [1], []))]
    num_ids = plain.get_vocab_size()
    id_lists = [[num_ids - 3 + i for i in range(3)]] + [random_ids(rng, plain, num_ids) for _ in range(num_lists)]
    decode = [{"ids": ids, **decode_both(plain, ids)} for ids in id_lists]
    variants = make_variants()
    for variant, (prefix, suffix) in zip(variants, [([1], []), ([1], [7]), ([], [])]):
        variant.update(prefix=prefix, suffix=suffix)
        changed = tokenizers.Tokenizer.from_str(json.dumps(patched(file, variant["patch"])))
        for case, ids in zip(cases, encode_all(changed, texts, prefix, suffix)):
            if ids != case["ids"]:
                case[variant["name"]] = ids
        for case in decode:
            texts_of_ids = decode_both(changed, case["ids"])
            if texts_of_ids != {key: case[key] for key in texts_of_ids}:
                case[variant["name"]] = texts_of_ids
    return {"made_with": "tokenizers " + tokenizers.__version__, "prefix": [1], "suffix": [], "variants": variants, "encode": cases, "decode": decode}


def main():
    OUT.mkdir(exist_ok=True)
    file = make_file()
    cases = make_cases(file, 340, 120, SEED)
    (OUT / "tokenizer.json").write_text(json.dumps(file, separators=(",", ":")) + "\n")
    parts = []
    for key, value in cases.items():
        is_list = key in ("variants", "encode", "decode")
        text = "[\n%s\n]" % ",\n".join(json.dumps(item, separators=(",", ":")) for item in value) if is_list else json.dumps(value)
        parts.append('"%s": %s' % (key, text))
    (OUT / "cases.json").write_text("{%s}\n" % ",\n".join(parts))


if __name__ == "__main__":
    main()
