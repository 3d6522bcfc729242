"""Requests that no honest client sends, and honest ones between them: what hostile_load.py puts on the wire.

Everything is drawn from one random.Random, so that a seed names a run. One of twelve requests is right, the others have one or
more fields of a wrong kind, size or value, and half of those are broken as JSON or HTTP as well.
"""

import copy
import dataclasses
import json

ROUTES = (
    ("/v1/completions", 40),
    ("/v1/chat/completions", 35),
    ("/tokenize", 5),
    ("/detokenize", 5),
    ("/apply-template", 5),
    ("/v1/models", 2),
    ("/v1/models/demo", 1),
    ("/load", 1),
    ("/version", 1),
    ("/metrics", 1),
    ("/health", 1),
    ("/ping", 1),
    ("/nowhere", 1),
    ("/v1/completions/../models", 1),
)
GENERATING = ("/v1/completions", "/v1/chat/completions")

WORDS = ("The kernel", "What does river mean?", "a", " ", "\n", "\0", "\u00e9", "e\u0301", "\U0001f600", "\u200d", "<|im_end|>", "<think>")
MARKERS = ("<|im_start|>", "<|endoftext|>", "</think>", "<tool_call>", "<|image_pad|>", "</function>", "{{ 7 * 7 }}", "{% raw %}", "\ufffd")
NUMBERS = (0, 1, -1, 2, 16, 20, 21, 127, 128, 129, 6143, 6144, 8191, 8192, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63))
NUMBERS += (0.0, -0.0, 0.5, 1e-5, 9e-6, 1e-45, 1e-320, 3e38, 1e39, 1.7e308, -1e308, 1.5, 1e16)
NAMES = ("weather", "a", "x" * 128, "x" * 129, "", "a b", "<>", "\u00e9", "function", "__class__", "\0")
PATTERNS = ("[0-9]{1,4}", "^a|b$", "(a|aa)+", "(", "[", "a{3,1}", ".*", "\\d+\\s", "(a*)*b", "[^\\x00]{2}", "\\ud800", "(?=a)", "a{4097}")
EBNF = (
    'root ::= "yes" | "no"',
    "root ::= root",
    'root ::= a\na ::= b\nb ::= a | ""',
    'root ::= s\ns ::= s s | s s s | [a-z ] | ""',
    "root ::= " + "(" * 300 + '"a"' + ")" * 300,
    'root ::= "a"{1000000}',
    "root ::= Token(99999)",
    "foo",
    "",
)

# Fields of a generating request, each with values that are right.
FIELDS = {
    "model": ("demo",),
    "temperature": (0, 0.7, 1),
    "top_p": (1, 0.9),
    "top_k": (0, -1, 40),
    "min_p": (0, 0.1),
    "repetition_penalty": (1, 1.1),
    "presence_penalty": (0, -2, 2),
    "frequency_penalty": (0, 1),
    "seed": (0, 7, -1),
    "stop": ("e", ["the", "\n"], []),
    "stop_token_ids": ([5], []),
    "min_tokens": (0, 1),
    "ignore_eos": (True, False),
    "include_stop_str_in_output": (True, False),
    "skip_special_tokens": (True, False),
    "logit_bias": ({"5": -100}, {"17": 3.5, "18": 100}, {}),
    "allowed_token_ids": ([5, 6, 7],),
    "bad_words": (["the"], [" is", "not"]),
    "prompt_logprobs": (0, 2),
    "return_token_ids": (True,),
    "return_tokens_as_token_ids": (True,),
    "truncate_prompt_tokens": (2, -1),
    "truncation_side": ("left", "right"),
    "add_special_tokens": (True, False),
    "cache_salt": ("salt", "pepper"),
    "request_id": ("mine",),
    "user": ("somebody",),
    "stream": (True, False),
    "stream_options": ({"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}),
    "echo": (True, False),
    "response_format": ({"type": "text"}, {"type": "json_object"}),
    "structured_outputs": ({"choice": ["yes", "no"]}, {"regex": "[a-z]{1,5}"}),
    "guided_choice": (["a", "b"],),
    "priority": (0,),
    "suffix": (None,),
    "unknown_field": (1, {"a": []}),
}
COMPLETION_FIELDS = {"logprobs": (0, 1, 5)}
CHAT_FIELDS = {
    "logprobs": (True, False),
    "top_logprobs": (0, 3),
    "max_completion_tokens": (1, 3),
    "reasoning_effort": ("none", "low"),
    "chat_template_kwargs": ({"enable_thinking": False}, {"add_vision_id": True, "own": [1, {}]}),
    "tool_choice": ("auto", "none", "required", {"type": "function", "function": {"name": "weather"}}),
    "parallel_tool_calls": (True, False),
    "include_reasoning": (True, False),
    "continue_final_message": (True, False),
    "add_generation_prompt": (True, False),
    "documents": ([{"title": "a", "text": "b"}],),
}
NAMED = sorted({**FIELDS, **COMPLETION_FIELDS, **CHAT_FIELDS}) + ["prompt", "messages", "tokens", "tools", "n", "max_tokens"]
LEAVES = ({}, {"type": "null"}, {"$ref": "#"}, {"enum": ["a", 1, None]}, {"type": "integer", "multipleOf": 0}, True, False)
INSERTED = (b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b'"', b"\0", b"[" * 100, b'{"a":' * 80, b"1e999", b"-")
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


@dataclasses.dataclass
class Hostile:
    """One request: what is on the wire and what may come back."""

    head: bytes  # request line and headers, with the empty line
    body: bytes
    is_http: bool = True  # otherwise an answer, silence and the end of the connection are all right
    generates: bool = False
    streams: bool = False

    def wire(self):
        return self.head + self.body


class HostileRequests:
    def __init__(self, random, host, key=None):
        self._random, self._host, self._key = random, host, key

    def next(self):
        choose = self._random
        path = choose.choices([route for route, _ in ROUTES], [weight for _, weight in ROUTES])[0]
        fields = copy.deepcopy(self._body_of(path))  # it holds constants
        manner = choose.random()
        if fields is not None and manner > 0.08:
            for _ in range(choose.choice((1, 1, 1, 2, 5))):
                self._spoil(fields)
        body = b"" if fields is None else json.dumps(fields, ensure_ascii=choose.random() < 0.5).encode("utf-8", "surrogatepass")
        if body and manner > 0.5:
            body = self._mutated(body)
        streams = isinstance(fields, dict) and fields.get("stream") is True
        hostile = Hostile(self._head(path, body), body, generates=path in GENERATING, streams=streams)
        return self._break_http(hostile, path) if manner > 0.94 else hostile

    def _head(self, path, body, extra=()):
        lines = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", f"Host: {self._host}"]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return ("\r\n".join([*lines, *extra]) + "\r\n\r\n").encode("latin-1", "replace")

    def _body_of(self, path):
        choose = self._random
        if path == "/v1/completions":
            fields = {"prompt": self._prompt(), "max_tokens": choose.choice((1, 1, 1, 2, 8))}
            return self._with_fields(fields, {**FIELDS, **COMPLETION_FIELDS})
        if path == "/v1/chat/completions":
            fields = {"messages": self._messages(), "max_tokens": choose.choice((1, 1, 1, 3))}
            if choose.random() < 0.2:
                fields["tools"] = [TOOL, self._tool()]
            return self._with_fields(fields, {**FIELDS, **CHAT_FIELDS})
        if path == "/tokenize":
            return {"prompt": self._text()} if choose.random() < 0.5 else {"messages": self._messages(), "return_token_strs": True}
        if path == "/detokenize":
            return {"tokens": [choose.randrange(6144) for _ in range(choose.randrange(20))]}
        if path == "/apply-template":
            return {"messages": self._messages(), "tools": [TOOL]}
        return None

    def _with_fields(self, fields, all_fields):
        choose = self._random
        for name in choose.sample(sorted(all_fields), choose.choice((0, 1, 2, 3, 8))):
            fields[name] = choose.choice(all_fields[name])
        if fields.get("temperature") and choose.random() < 0.2:
            fields["n"] = choose.choice((2, 3))
        return fields

    def _text(self):
        choose = self._random
        if choose.random() < 0.002:
            return choose.choice(WORDS + MARKERS) * choose.choice((100, 3000, 40000))
        return "".join(choose.choice(WORDS + MARKERS if choose.random() < 0.1 else WORDS[:6]) for _ in range(choose.randrange(1, 6)))

    def _prompt(self):
        choose = self._random
        kind = choose.random()
        if kind < 0.6:
            return self._text()
        ids = [choose.randrange(6143) for _ in range(choose.randrange(1, 80))]
        if kind < 0.8:
            return ids
        return [self._text(), "b"] if kind < 0.9 else [ids, [1, 2]]

    def _messages(self):
        choose = self._random
        messages = [{"role": "user", "content": self._text()}]
        if choose.random() < 0.3:
            messages.insert(0, {"role": "system", "content": "You are a helpful assistant. " * choose.choice((1, 1, 12))})
        if choose.random() < 0.2:
            function = {"name": "weather", "arguments": choose.choice(('{"city": "Oslo"}', "{}", "", "["))}
            call = {"id": "c", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": "c", "content": "rain"})
        if choose.random() < 0.1:
            messages.append({"role": choose.choice(("assistant", "user", "developer", "")), "content": [{"type": "text", "text": "a"}]})
        return messages

    def _tool(self):
        choose = self._random
        parameters = self._schema(2) if choose.random() < 0.5 else self._value(2)
        return {"type": "function", "function": {"name": choose.choice(NAMES), "parameters": parameters, "strict": choose.random() < 0.5}}

    def _value(self, depth=3):
        """Any value of JSON."""
        choose = self._random
        kind = choose.randrange(9 if depth > 0 else 6)
        if kind < 2:
            return choose.choice(NUMBERS)
        if kind == 2:
            return self._text()
        if kind == 3:
            return choose.choice((None, True, False))
        if kind == 4:
            return choose.choice(("", "\0", "\ud800", "x" * choose.choice((10, 200, 5000))))
        if kind == 5:
            return choose.choice(([], {}, [[]], "NaN"))  # made anew by each call
        if kind == 6:
            return [self._value(depth - 1) for _ in range(choose.randrange(5))]
        if kind == 7:
            return [choose.choice((0, "a", None, {}, 1e308))] * choose.choice((3, 17, 1100))
        return {choose.choice(NAMES) + str(i): self._value(depth - 1) for i in range(choose.randrange(5))}

    def _schema(self, depth=3):
        choose = self._random
        if depth == 0 or choose.random() < 0.1:
            return copy.deepcopy(choose.choice(LEAVES))
        kind = choose.randrange(8)
        if kind == 0:
            return {"type": "string", "pattern": choose.choice(PATTERNS)}
        if kind == 1:
            return {"type": choose.choice(("integer", "number")), "minimum": choose.choice(NUMBERS), "maximum": choose.choice(NUMBERS)}
        if kind == 2:
            return {"type": "array", "items": self._schema(depth - 1), "minItems": choose.choice((0, 1, 4096, 4097, -1))}
        if kind == 3:
            return {choose.choice(("anyOf", "oneOf", "allOf")): [self._schema(depth - 1) for _ in range(choose.randrange(4))]}
        if kind == 4:
            return {choose.choice(("const", "enum", "type", "format", "required", "$ref")): self._value(2)}
        names = [choose.choice(NAMES) + str(i) for i in range(choose.choice((1, 3, 30)))]
        schema = {"type": "object", "properties": {name: self._schema(depth - 1) for name in names}}
        if choose.random() < 0.5:
            schema["required"] = choose.sample(names, choose.randrange(len(names) + 1))
        if choose.random() < 0.1:
            schema["minProperties"] = choose.choice((1, 20, 4096))
        return schema

    def _constraint(self):
        choose = self._random
        kind = choose.randrange(6)
        if kind == 0:
            return "guided_regex", choose.choice(PATTERNS)
        if kind == 1:
            return "guided_grammar", choose.choice(EBNF)
        if kind == 2:
            return "structured_outputs", {choose.choice(("json", "regex", "choice", "structural_tag", "grammar")): self._value(3)}
        if kind == 3:
            return "response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": self._schema()}}
        return "guided_json", self._schema()

    def _spoil(self, fields):
        """Makes one field wrong, or at least strange."""
        choose = self._random
        kind = choose.random()
        if kind < 0.1:
            name, value = self._constraint()
            fields[name] = copy.deepcopy(value)
        elif kind < 0.15:
            fields["tools"] = choose.choice(([self._tool()], copy.deepcopy([TOOL, TOOL]), self._value()))
        elif kind < 0.25:
            self._spoil_inside(fields)
        elif kind < 0.3 and fields:
            fields.pop(choose.choice(sorted(fields)))
        else:
            fields[choose.choice(NAMED)] = self._value()
        most = fields.get("max_tokens")
        is_long = most is None or (isinstance(most, (int, float)) and most > 8)
        if is_long and choose.random() < 0.98:  # few may be long
            fields["max_tokens"] = 8

    def _spoil_inside(self, value):
        """Replaces something that stands deeper in."""
        choose = self._random
        while isinstance(value, (dict, list)) and value:
            keys = sorted(value) if isinstance(value, dict) else range(len(value))
            key = choose.choice(keys)
            if not isinstance(value[key], (dict, list)) or not value[key] or choose.random() < 0.3:
                value[key] = self._value()
                return
            value = value[key]

    def _mutated(self, body):
        choose = self._random
        body = bytearray(body)
        for _ in range(choose.choice((1, 1, 2, 8))):
            at = choose.randrange(len(body)) if body else 0
            kind = choose.randrange(7)
            if kind == 0:
                body[at : at + 1] = bytes([choose.randrange(256)])
            elif kind == 1:
                del body[at : at + choose.choice((1, 4, 50))]
            elif kind == 2:
                body[at:at] = choose.choice(INSERTED)
            elif kind == 3:
                body[at:at] = body[at : at + choose.choice((5, 40))]
            elif kind == 4:
                del body[at:]
            elif kind == 5:
                body[1:1] = choose.choice((b'"prompt":"b",', b'"stream":true,', b'"n":3,', b'"model":null,', b'"":0,'))
            else:
                body += choose.choice((b" ", b"}", b"\0", b"[]", b"//"))
        return bytes(body)

    def _break_http(self, hostile, path):
        choose = self._random
        body = hostile.body or b"{}"
        size = len(body)
        head = choose.choice(
            (
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {size}\r\nContent-Length: {size + 1}\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {size}\r\nTransfer-Encoding: chunked\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nTransfer-Encoding : chunked\r\n\r\n",
                f"POST {path} HTTP/1.1\nHost: {self._host}\nContent-Length: {size}\n\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: -1\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: 99999999999999999999\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {size}\r\n folded: yes\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nHost: other\r\nContent-Length: {size}\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {size}\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nOrigin: http://evil.example\r\nContent-Length: {size}\r\n\r\n",
                f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nExpect: nothing\r\nContent-Length: {size}\r\n\r\n",
                f"POST {path} HTTP/1.0\r\nContent-Length: {size}\r\n\r\n",
                f"POST {path} HTTP/9.9\r\nHost: {self._host}\r\n\r\n",
                f"{'X' * 300} {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n",
                f"GET {path}{'a' * 20000} HTTP/1.1\r\nHost: {self._host}\r\n\r\n",
                f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n" + "X: y\r\n" * 200 + "\r\n",
                f"GET {path}\0 HTTP/1.1\r\nHost: {self._host}\r\nA: \0\r\n\r\n",
                f"GET http://evil.example{path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n",
                f"OPTIONS * HTTP/1.1\r\nHost: {self._host}\r\nOrigin: null\r\n\r\n",
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                "\r\n\r\n\r\n",
            )
        )
        return Hostile(head.encode("latin-1", "replace"), body, is_http=False)
