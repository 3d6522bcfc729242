#!/usr/bin/env python3
"""Records tests/golden/chat_templates/generated.json: what Python's jinja2, set up as transformers does it for chat templates, makes
of more than a thousand small templates.

Needs `pip install jinja2==3.1.6`; run from anywhere. `--check FILE…` renders templates of other files with conversations of many
kinds instead, and writes the cases in the same form to standard output.

{"variables": [...], "cases": [{"t": template, "v": number of its variables, "o": output}]}; in the place of "o" there is "e" where
it fails: the text that raise_exception() was given, or null.
"""

import copy
import datetime
import functools
import itertools
import json
import random
import sys
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox

OUT = Path(__file__).resolve().parent / "chat_templates" / "generated.json"


class Raised(jinja2.exceptions.TemplateError):
    pass


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment(optimized):
    """As transformers 5's _cached_compile_jinja_template; `optimized` is jinja2's default."""

    def raise_exception(message):
        raise Raised(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols], optimized=optimized)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    return env


ENV = environment(True)
PLAIN_ENV = environment(False)


@functools.lru_cache(1)
def compiled(env, template):
    return env.from_string(template)


def outcome(template, variables, env=ENV):
    try:
        text = compiled(env, template).render(**copy.deepcopy(variables))  # the filter indent may change a list
        text.encode("utf-8")
        return {"o": text}
    except Raised as raised:
        return {"e": str(raised)}
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError, SyntaxError, RuntimeError):
        return {"e": None}


DATA = {
    "t": " Hello, World!\n",
    "u": "\u00a0Stra\u00dfe \u0130 \u039f\u0394\u039f\u03a3 \U0001f600 na\u00efve\u3000",
    "e": "",
    "n": 7,
    "z": 0,
    "m": -3,
    "f": 2.5,
    "g": 1e20,
    "b": True,
    "no": False,
    "nil": None,
    "l": [3, 1, 2],
    "w": ["b", "A", "a", "C", "B"],
    "mix": [1, "x", None, 2.0, True, [], {}],
    "d": {"b": 1, "A": 2, "items": "I", "c": {"x": [1, {"y": "deep"}]}},
    "p": [{"name": "Bo", "age": 3, "tags": ["x"]}, {"name": "al", "age": 5}, {"name": "Cy", "age": 3, "tags": []}],
    "html": "<a href=\"x\">'&'</a>",
    "messages": [
        {"role": "system", "content": " be brief "},
        {"role": "user", "content": "hi <b>"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyo", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": [1.5, None, "\u00fc\u2028"]}}}]},
        {"role": "tool", "content": "ok"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image"}]},
    ],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2 | 7 // 2 ; -7 // 2 | -7 % 3 ; 7 % -3 | 2 ** 10 ; 2 ** -1 ; 2 ** 3 ** 2 | 10 / 4 ; 10 / 5 | 1.0 * 3 ; 0.1 + 0.2 ; 1e16 ; 1e15 ; 1e-5 ; 0.0001 ; 123456789.123 ; 1.5e300 * 1e10
7.5 // 2 ; -7.5 // 2 ; 7.5 % 2 ; -7.5 % 2 ; 5 % 2.5 ; -0.0 ; 0.0 * -1 | 1 / 0 | 1 % 0 | 1.0 // 0 | 1_000 ; 0x1F ; 0b101 ; 0o17 ; 1_0.5 ; 1e3 ; 12E-1
true ; false ; none ; True ; False ; None | true + true ; true * 3 ; -true | n + b | "a" + 1 | 1 + "a" | "a" * 3 ; 3 * "ab" ; "a" * -1 | l + [4] ; l * 2 ; [] + [] | (1, 2) + (3,) ; (1,) * 2 | l + (1,) | nil + 1 | x + 1 | "a" - "b" | -"a" | +true
1 == 1.0 ; true == 1 ; "1" == 1 ; none == false ; [] == [] ; [1] == [1.0] ; (1,) == [1] ; {} == {} ; {"a": 1} == {"a": 1.0} ; x == y ; x == none | 1 < 2 < 3 ; 1 < 3 < 2 ; 3 > 2 >= 2 ; 1 == 1 != 2 | "a" < "b" ; "B" < "a" ; [1, 2] < [1, 3] ; (1,) < (1, 2) | 1 < "a" | none < 1 | x < 1 | {} < {}
"ell" in t ; "" in "" ; "x" not in t ; 2 in l ; "b" in d ; 1 in d ; none in mix ; [] in mix ; 2 in mix | 1 in "abc" | 1 in 5 | x in l ; 1 in x | "A" in w and "z" not in w ; not "a" in w ; not not b
b and n ; no and n ; z or t ; e or nil or "last" ; e or nil ; b and e and n ; not e ; not l ; not x ; not 0.0 ; not nil | n if b else m ; n if no else m ; n if no ; (n if no) is defined ; "a" if x else "b" if y else "c"
"a" ~ 1 ~ none ~ true ~ 2.0 ~ [1, "x"] ~ x | 1 ~ 2 + 3 | t ~ e | html ~ html|e | ("<" | safe) + "<" ; "<" + ("&" | safe) ; ("a" | safe) ~ "<" ; (html|e)|e ; html|safe|e ; html|forceescape ; html|e|upper ; (html|e)|length
t[0] ; t[-1] ; t[1:4] ; t[::-1] ; t[::2] ; t[-3:] ; t[:-3] ; t[100:] ; t[3:1] ; t[5:1:-2] ; u[0] ; u[1:8] ; u[::-1] ; u[-2] ; u[::-3] ; t[99] ; t[99] is defined
l[0] ; l[-1] ; l[5] ; l[1:] ; l[::-1] ; l[-2:] ; l[:1] ; l[true] ; l["a"] ; l[1.0] ; (1, 2, 3)[::-1] ; (1,)[0:] ; l[none:2] ; l[10:-10:-1] ; l[-100:100] ; range(5)[1:3]|list ; range(5)[::-1]|list ; range(3)[1]
d.b ; d["b"] ; d.items ; d["items"] ; d.items() ; d.missing ; d["missing"] ; d[1] ; d.c.x[1].y ; d["c"]["x"][0] ; d.c.x.1.y ; d[[1]] ; d[x] | d.missing.more | x.y | x["y"] | nil.a ; nil.a is defined | nil.a.b | n.a | t.a
d.keys() ; d.values() ; d.keys()|list ; d.get("b") ; d.get("q") ; d.get("q", 5) | d.items()|list ; d.items()|length ; d|items|list ; x|items|list ; d.copy() ; d.b.c is defined
d.pop("b") | d.update({}) | l.append(1) | l.sort() | d.clear | t.__class__ ; t.__class__ is defined | l.__len__() | d.__class__.mro() | l.index(2) ; l.count(1) ; (1, 2, 1).count(1) ; l.index(9) | l.copy()
[1, "a", 2.5, none, true, [], (), {}] ; (1,) ; (1, 2) ; () ; {"a": [1, (2, 3)], 1: none} ; {"a": 1, "a": 2} ; {1: "x", 1.0: "y", true: "z"} ; [x] ; {"k": x} ; ["it's", 'say "hi"', "both ' and \"", "\n\t\\"] ; [u] ; ["\x00\x7f\u200b\ue000"] ; [1,2,] ; {"a":1,} ; {[]: 1}
range(3) ; range(1, 4) ; range(5, 0, -2)|list ; range(0)|list ; range(3)|length ; range(2, 8, 3)|list ; 2 in range(3) ; range(1, 9, 2) ; range(10**9) ; range(100001) ; range(99999)|length ; range(1, 2, 0) ; range("a") ; range(2.0)
dict(a=1, b=2) ; dict({"a": 1}, b=2) ; dict([("x", 1), ("y", 2)]) ; dict() ; namespace(a=1) ; namespace(a=1).a ; namespace({"a": 5}).a ; namespace().q is defined ; namespace(a=[1, namespace(b="x")])
"it's" ; 'a\'b' ; "a\\b" ; "\u00e9\x41\101\n|" ; "a" "b" 'c' ; "tab\tq" ; "\q\d" ; "line\
cont" ; "\xZZ" ; "\U0001F600"
"""

FILTERS = r"""
t|trim ; t|trim|length ; u|trim ; "xxaxx"|trim("x") ; "  a"|trim("") ; nil|trim ; 5|trim ; x|trim ; t|upper ; u|upper ; u|lower ; "\u039f\u0394\u039f\u03a3"|lower ; "\ufb01\u0149"|upper ; u|title ; u|capitalize ; "hELLO wORLD"|capitalize ; "o'neil (mc-gee) [x] <y> {z} a_b"|title ; "\u01c6x \u00dfx"|title ; "\u01c6x"|capitalize
t|replace("l", "L") ; t|replace("l", "L", 1) ; "aaa"|replace("", "-") ; "aaa"|replace("a", "", 2) ; 123|replace(2, 5) ; "a.b"|replace(".", "") ; t|replace("l") | u|replace("\u00df", "ss") ; ""|replace("", "x") ; "ab"|replace("", "-", 2) ; "<a>"|safe|replace("<", "&")
t|length ; u|length ; l|count ; d|length ; x|length ; 5|length | nil|length | l|map("upper")|length | e|length ; (1, 2)|length ; d.items()|length
l|first ; l|last ; e|first ; []|first ; []|last is defined ; "abc"|first ; "abc"|last ; d|first ; d|last ; (1, 2)|last ; x|first ; l|map("string")|first ; l|map("string")|last ; d.values()|first ; u|last ; 5|first ; range(4)|last
l|join ; l|join(", ") ; mix|join("|") ; w|join(d="-") ; p|join(", ", attribute="name") ; e|join("x") ; "abc"|join("-") ; 5|join ; [[1], [2]]|join ; d|join("+") ; l|join(1) ; p|join(", ", "tags") ; l|map("string")|join(",")
l|list ; "abc"|list ; d|list ; 5|list ; x|list ; u|list ; (1, 2)|list ; nil|list
l|sort ; l|sort(reverse=true) ; w|sort ; w|sort(case_sensitive=true) ; w|sort(true, true) ; p|sort(attribute="age")|map(attribute="name")|list ; p|sort(attribute="age,name")|map(attribute="name")|list ; p|sort(attribute="name", reverse=true)|map(attribute="name")|list ; mix|sort ; "hello"|sort ; [[2, 1], [1, 9], [1, 2]]|sort ; [2, 1.5, true]|sort ; p|sort(attribute="tags") ; d|sort ; []|sort
d|dictsort ; d|dictsort(true) ; {"b": 1, "a": 2}|dictsort(by="value") ; {"b": 1, "a": 2}|dictsort(reverse=true) ; {"B": 1, "a": 2, "C": 0}|dictsort ; {"B": 1, "a": 2}|dictsort(case_sensitive=true) ; d|dictsort(by="q") ; l|dictsort ; {1: "x", 0: "y"}|dictsort
w|unique|list ; w|unique(true)|list ; [1, 1.0, true, 2, "1"]|unique|list ; p|unique(attribute="age")|map(attribute="name")|list ; [[1]]|unique|list ; w|unique ; w|unique|length
l|min ; l|max ; w|min ; w|max ; w|max(true) ; []|min ; []|max is defined ; p|min(attribute="age") ; p|max(attribute="name") ; mix|max ; [2, 2.0]|max ; [2, 2.0]|min
l|sum ; []|sum ; [1.5, 2]|sum ; l|sum(start=10) ; p|sum(attribute="age") ; p|sum("age", 100) ; w|sum ; [[1], [2]]|sum(start=[]) ; w|sum(start="")
l|reverse|list ; t|reverse ; l|reverse|length ; (1, 2)|reverse|list ; d|reverse|list ; 5|reverse ; u|reverse ; w|reverse|join
p|map(attribute="name")|list ; p|map(attribute="tags")|list ; p|map(attribute="tags", default="none")|list ; p|map(attribute="tags.0")|list ; w|map("lower")|list ; w|map("upper")|join ; l|map("string")|list ; l|map("add", 1)|list ; w|map("replace", "b", "x")|list ; p|map("length")|list ; l|map()|list ; l|map(attribute="a", b=1)|list ; d|map("upper")|list ; x|map("upper")|list ; [1.5, 2.5, -1.5]|map("round")|list ; ["1", "x"]|map("int", 9)|list ; ["a"]|map("center", 5)|list ; ["1","2"]|map("int")|sum
l|select("odd")|list ; mix|select|list ; mix|reject|list ; l|select(">", 1)|list ; l|reject("equalto", 2)|list ; w|select("in", ["a", "b"])|list ; mix|select("string")|list ; mix|select("none")|list ; l|select("nope")|list ; x|select|list ; l|select("odd") ; l|select("divisibleby", 3)|list ; mix|select("defined")|list|length
p|selectattr("age", "equalto", 3)|map(attribute="name")|list ; p|selectattr("tags")|map(attribute="name")|list ; p|rejectattr("tags")|map(attribute="name")|list ; p|selectattr("tags", "defined")|list|length ; p|rejectattr("name", "in", ["Bo"])|map(attribute="name")|join ; p|selectattr()|list ; p|selectattr("age", ">", 3)|first ; messages|selectattr("role", "==", "user")|list|length ; messages|rejectattr("role", "eq", "system")|map(attribute="role")|list ; p|selectattr("age", "ge", 5)|list ; p|selectattr("tags.0", "eq", "x")|list
l|batch(2)|list ; l|batch(2, "-")|list ; l|slice(2)|list ; l|slice(2, "x")|list ; range(7)|batch(3)|list ; range(7)|slice(3)|list ; l|batch(0)|list ; l|slice(0)|list ; []|batch(2)|list ; []|slice(2)|list ; l|slice(5)|list ; l|slice(5, 0)|list
p|groupby("age")|list|length ; p|groupby("age") ; p|groupby("name")|map(attribute="grouper")|list ; p|groupby("tags", default=[])|list|length ; w|groupby("x")|length ; [{"c": "a"}, {"c": "A"}]|groupby("c") ; [{"c": "a"}, {"c": "A"}]|groupby("c", case_sensitive=true) ; (p|groupby("age"))[0].list|map(attribute="name")|list ; (p|groupby("age"))[0][0] ; [{}, {"c": 1}]|groupby("c", 0)
nil|default("d") ; x|default("d") ; e|default("d") ; e|default("d", true) ; nil|default("d", true) ; x|d ; x|d(1) ; z|default(5, boolean=true) ; x.y|default(1) | d.q|default("q") ; d.b|default("q") ; x|default ; nil|default
"3"|int ; " 42 "|int ; "3.9"|int ; "x"|int ; "x"|int(7) ; "x"|int(default=7) ; "ff"|int(base=16) ; "0xff"|int(0, 16) ; "0b11"|int(0, 2) ; "1_000"|int ; "1__0"|int ; 3.99|int ; -3.99|int ; true|int ; nil|int ; nil|int(5) ; []|int ; x|int ; "1e3"|int ; "inf"|int ; "nan"|int(2) ; "-7"|int ; "+7"|int ; ""|int ; "0x1f"|int ; "010"|int ; "010"|int(0, 0) ; "9"|int(0, 8) ; "zz"|int(0, 36) ; g|int
"3"|float ; "x"|float ; "x"|float(1.5) ; " 1e3 "|float ; "inf"|float ; "-Infinity"|float ; "nan"|float ; nil|float ; 3|float ; true|float ; "1_0.5"|float ; ".5"|float ; "5."|float ; "1e"|float ; "0x1"|float ; x|float ; []|float("d") ; "1e400"|float ; "1e-400"|float
2.5|round ; 3.5|round ; 2.675|round(2) ; 1234.567|round(-2) ; 7|round ; 7|round(2) ; 15|round(-1) ; 25|round(-1) ; 42.55|round(1, "floor") ; 42.55|round(1, "ceil") ; 7|round(0, "ceil") ; "x"|round ; 2.5|round(method="x") ; 1e300|round(3) ; 2.5|round|int ; -2.5|round ; true|round ; 0.5|round ; nil|round ; 1.005|round(2)
-3|abs ; (-3)|abs ; -2.5|abs ; true|abs ; "x"|abs ; nil|abs ; m|abs ; (m|abs) + 1 ; 3 - -2 ; -3|string ; - 3 ; -n|abs ; -(n)|string
n|string ; nil|string ; t|string ; 1.0|string ; [1, "a"]|string ; x|string ; true|string ; d|string ; g|string ; html|e|string
d|tojson ; mix|tojson ; u|tojson ; u|tojson(ensure_ascii=true) ; d|tojson(indent=2) ; d|tojson(indent=4, sort_keys=true) ; l|tojson(indent=0) ; d|tojson(separators=(",", ":")) ; []|tojson(indent=2) ; {}|tojson ; t|tojson ; nil|tojson ; true|tojson ; 1.0|tojson ; 1e20|tojson ; 1e-7|tojson ; html|tojson ; (1, 2)|tojson ; x|tojson | d.items()|tojson | l|map("string")|tojson | range(2)|tojson | {1: 2, none: 3, true: 4, 1.5: 5}|tojson ; "\u2028\x7f\x1f/\\\""|tojson ; d|tojson(indent="--") ; {"b": {"z": 1, "a": 2}, "a": []}|tojson(indent=2, sort_keys=true) ; {(1,): 2}|tojson ; namespace(a=1)|tojson ; "inf"|float|tojson ; "nan"|float|tojson ; {"a": x}|tojson ; html|safe|tojson ; l|tojson(2) ; {1: 0, "a": 0}|tojson(sort_keys=true) ; "\U0001f600"|tojson(ensure_ascii=true) ; messages|tojson
"%s is %d" % ("a", 3) ; "%5d|%-5d|%05d" % (1, 2, 3) ; "%.2f %e %g %G" % (1.234, 1234.5, 0.00001, 1e20) ; "%x %X %o %c %%" % (255, 255, 8, "q") ; "%r %s" % ("a", none) ; "%(a)s-%(b)s" % {"a": 1, "b": [2]} ; "%s" % [1, 2] ; "%s" % "x" ; "%s %s" % "x" ; "%d" % "x" ; "%d" % 3.7 ; "%s" % (1, 2) ; "%+d % d" % (5, 5) ; "%*d" % (5, 3) ; "%.3s|" % "abcdef" ; "%5s|%-5s|" % ("ab", "cd") ; "%#x %#o" % (255, 8) ; "abc" % () ; "abc" % d ; "abc" % l ; "abc" % 1 ; "%(q)s" % d ; "%" % 1 ; "%y" % 1 ; "%d" % true ; "%i %u" % (1, 2) ; "%.0f" % 2.5 ; "%5.1f|" % 3.14159 ; "%s" % x ; "%d" % x ; "%c" % 65 ; "%a" % "a" ; "%-5d|" % -3 ; "%05d" % -3 ; "%s" % ("<"|safe)
"%s-%s"|format("a", 1) ; "%(a)s"|format(a=5) ; "%s"|format ; "%d%%"|format(50) ; "%s"|format(1, a=2) ; "x"|format(1) ; "%05.1f"|format(2.25)
"a\nb\nc"|indent ; "a\nb"|indent(2) ; "a\n\nb"|indent(2) ; "a\n\nb"|indent(2, blank=true) ; "a\nb"|indent(2, true) ; "a\nb"|indent("> ") ; "a\n"|indent ; ""|indent ; ""|indent(2, true) ; "a\r\nb\x0bc\u2028d"|indent(1) ; 5|indent ; x|indent ; "a\nb"|indent(width=1, first=true) ; "\na"|indent(1) ; "a\n\n"|indent(1, true, true) ; d|tojson(indent=2)|indent(4)
"foo bar baz qux"|truncate(9) ; "foo bar baz qux"|truncate(9, true) ; "foo bar baz qux"|truncate(11) ; "foo bar baz qux"|truncate(11, false, "..", 0) ; "short"|truncate ; "foobarbaz"|truncate(3, leeway=0) ; "abc"|truncate(1) ; u|truncate(5, true, "", 0) ; "x y"|truncate(2, false, "", 0)
"a b  c_d e-f"|wordcount ; u|wordcount ; ""|wordcount ; "ab"|center(6) ; "abc"|center(6) ; "abc"|center(2) ; "ab"|center(7) ; "a b/c?&\u00fc~"|urlencode ; {"a b": 1, "c": "d/e"}|urlencode ; [("x", "y z")]|urlencode ; 5|urlencode
d|attr("b") ; d|attr("items") is callable ; t|attr("upper") is callable ; namespace(a=3)|attr("a") ; d|attr("nope") is defined | t|nofilter | t is notest ; "upper" is filter ; "nope" is filter ; "odd" is test ; "in" is test
"a,b,,c".split(",") ; " a b  c ".split() ; "a,b,c".split(",", 1) ; "a b  c ".split(none, 1) ; " a b  c".rsplit(none, 1) ; "a,b,c".rsplit(",", 1) ; "a b c".split(maxsplit=1) ; "abc".split("") ; "".split() ; "".split(",") ; "a--b".split("--") ; "</think>x</think>y".split("</think>")[-1] ; u.split() ; "a\u00a0b".split() ; "a,b".split(",")[0].strip() ; "a b".split(5) ; "x".split("x") ; "  ".split() ; "a b c d".rsplit(" ", 2) ; " ".split(" ") ; "a b ".split(none, 0) ; " a b ".rsplit(none, 0)
t.strip() ; t.lstrip() ; t.rstrip() ; "xxaxx".strip("x") ; "xyaxy".lstrip("yx") ; "a\n\n".rstrip("\n") ; u.strip() ; "\ufeffa".strip() ; "\u00fc\u00fca\u00fc".strip("\u00fc") ; " a ".strip(none) ; "abc".strip(5) ; "abc".strip("")
t.startswith(" H") ; t.endswith("\n") ; "abc".startswith(("x", "a")) ; "abc".startswith("b", 1) ; "abc".endswith("b", 0, 2) ; "abc".startswith("") ; "abc".startswith(5) ; "abc".startswith("a", -3) ; "abc".startswith("", 5) ; "abc".startswith("c", -1) ; "abc".endswith(("c",)) ; "abc".startswith(["a"]) ; "abc".startswith(x)
"abcabc".find("c") ; "abcabc".find("c", 3) ; "abcabc".rfind("a") ; "abc".find("z") ; "abc".index("b") ; "abc".index("z") ; u.find("\u00df") ; "abc".count("") ; "aaaa".count("aa") ; "abcabc".count("b", 2) ; "abc".find("") ; "abc".find("", 4) ; "abc".rfind("") ; "aXbX".rindex("X") ; "abc".find("c", -1) ; "abc".find("a", -2)
"a".upper() ; u.upper() ; u.lower() ; u.title() ; u.capitalize() ; "they're bill's".title() ; "\u00e9a".capitalize() ; "x-y_z 3a".title()
"a1".isalnum() ; "1".isdigit() ; "\u00b2".isdigit() ; "\u00b2".isdecimal() ; "\u00bd".isnumeric() ; "".isdigit() ; "ab".isalpha() ; "a b".isalpha() ; " \u00a0".isspace() ; "Ab".isupper() ; "AB1".isupper() ; "ab!".islower() ; "1".islower() ; "\u0663".isdigit() ; "AB" is upper ; "ab" is lower ; "Ab" is lower ; "" is upper ; 5 is lower
"-".join(["a", "b"]) ; "-".join("abc") ; "-".join([1]) ; "".join([]) ; ", ".join(d) ; "-".join(("x",)) ; "-".join(w|map("lower")) ; ("<"|safe).join(["&", "a"])
"{} {}".format(1, "a") ; "{0}{1}{0}".format("a", "b") ; "{a} {b.c} {d[0]}".format(a=1, b={"c": 5}, d=[9]) ; "{:>5}|{:<5}|{:^5}|".format("a", "b", "c") ; "{:05d} {:+d} {:x} {:#x} {:b} {:,}".format(42, 5, 255, 255, 5, 1234567) ; "{:.2f} {:e} {:%} {:g}".format(1.234, 1234.5, 0.25, 1e-7) ; "{{}} {}".format(1) ; "{}".format() ; "{!r} {!s}".format("a", "b") ; "{:*^9}".format("mid") ; "{:{}}|".format("a", 4) ; "{x}".format() ; "}" .format() ; "{:d}".format("a") ; "{:.3}".format("abcdef") ; "{}".format(none) ; "{:5}|".format(3) ; "{:5}|".format(1.5) ; "{:<5}|".format(3) ; "{:>3}".format(none) ; "{:05.1f}".format(-2.25) ; "{:.1%}".format(0.1234) ; "{:c}".format(65) ; "{:,.2f}".format(1234567.891) ; "{:}".format(2.0) ; "{:.2}".format(2.0) ; "{:s}".format("q") ; "{:d}".format(true) ; "{}".format(true) ; "{:10}|".format(true) ; "{:=+6d}".format(7)
"abc".replace("b", "x") ; "aaa".replace("a", "b", 2) ; "abc".replace("", "-") ; "abc".removeprefix("a") ; "abc".removesuffix("c") ; "abc".removeprefix("z") ; "a=b=c".partition("=") ; "a=b=c".rpartition("=") ; "abc".partition("=") ; "abc".rpartition("=") ; "5".zfill(3) ; "-5".zfill(4) ; "ab".ljust(4) ~ "|" ; "ab".rjust(4, ".") ; "ab".center(5, "*") ; "abc".center(6) ~ "|" ; "a\nb\r\nc".splitlines() ; "a\nb\n".splitlines(true) ; "".splitlines() ; "ab".ljust(4, "xy") ; "a".nope() ; "a".nope
n is odd ; n is even ; m is odd ; f is odd ; t is odd ; z is even ; 6 is divisibleby 3 ; 6 is divisibleby(4) ; 6 is divisibleby 0 ; x is defined ; t is defined ; x is undefined ; nil is none ; nil is defined ; x is none ; b is boolean ; n is boolean ; b is true ; no is false ; 1 is true ; n is integer ; b is integer ; f is float ; n is float ; n is number ; b is number ; t is number ; t is string ; n is string ; d is mapping ; l is mapping ; l is sequence ; t is sequence ; d is sequence ; n is sequence ; x is sequence ; d.items() is sequence ; l|map("upper") is sequence ; range(2) is sequence
l is iterable ; t is iterable ; n is iterable ; nil is iterable ; x is iterable ; d is iterable ; l|map("upper") is iterable ; range is callable ; t is callable ; x is callable ; t.upper is callable ; n is sameas n ; none is sameas none ; 1 is sameas 1.0 ; l is sameas l ; [] is sameas [] ; true is sameas true ; 1 is sameas true ; html|e is escaped ; html is escaped ; 2 is in l ; 9 is not in l ; "a" is in "abc" ; 3 is eq 3 ; 3 is ne 3 ; 3 is gt 2 ; 3 is lt(2) ; 3 is ge 3 ; 3 is le 2 ; 3 is equalto(3.0) ; 3 is greaterthan 1 ; 3 is lessthan 1 ; x is not defined ; not x is defined ; n is not none and b ; n is defined or x ; n is string or n is number ; 1 is eq "a" ; 1 is lt "a" ; d.b is defined and d.b is number
[1, 2, 3] is defined and x is defined ; t is string and t ; n is divisibleby n - 1 ; n is eq 3 + 4 ; "a" is in ["a"] + ["b"] ; (n is eq 7) == true ; l is iterable and l is not string
l|join(", ") ~ "!" ; "a" ~ l|first ; "a" + l|first|string ; l|length + 1 ; l|length > 2 and "yes" or "no" ; (l|length - 1) * 2 ; n|string + "x" ; -l|length ; not l|length ; 2 * l|sum ; l|sum ** 2 ; "a" in w|join ; w|map("lower")|unique|sort|join("-") ; t|trim|replace(" ", "_")|lower ; t.strip().split(",")[1]|trim|upper ; (t|trim)[0:3] ; t|trim[0] ; (1 if b else 2)|string ; [n, m]|map("abs")|list ; {"a": {"b": [1, 2, {"c": "d"}]}}.a.b[2].c ; (l|sort)[0] ; l|sort|first ; messages[0].role ~ messages[-1]["content"][0].text ; messages[1:]|length ; messages|length - 1 ; messages[::-1][0].role ; messages|map(attribute="role")|join(",")
range() ; t.upper(1) ; t|upper(1) ; t|trim("a", "b") ; t|replace(old="l", new="L") ; "a".join() ; dict(1) ; l|join(q=1) ; t() ; n() ; x() ; d.b() ; nosuch(1) ; raise_exception("boom") ; raise_exception("a" ~ 1) ; raise_exception(none) ; raise_exception() ; l|first(1)
loop is defined ; caller is defined ; joiner is callable ; cycler(1, 2).next() ; cycler() ; joiner()() ; cycler("a", "b").current
"\ud83d\ude00" is defined ; "a" < u ; u == u ; u in [u] ; {u: 1}[u] ; "\u00e9" == "e\u0301"
g == 1e20 ; 9007199254740993 ; 18446744073709551615 ; 2 ** 64 ; -(2 ** 63) ; 9223372036854775807 + 1 ; 12345678901234567890 * 3 ; 7 // -2 ; 0 ** 0 ; 0.0 ** -1 ; 1.5 ** 2 ; 2 ** 0.5 ; -8 // 3 ; 1e308 * 10 ; 5 // 0.3 ; 5 % 0.3 ; -5 % 0.3 ; 1.1 ; 100.0 ; 1e22 ; 1.7976931348623157e308 ; 5e-324 ; 123456789012345678 ; 0.1 ; 3.0e0
"""

STATEMENTS = [
    # scoping
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}-{{ x }}",
    "{% for i in l %}{{ q is defined }}{% set q = i %}{{ q }}{% endfor %}{{ q is defined }}",
    "{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}{% set ns.new = 'a' %}{{ ns.new }}{{ ns }}",
    "{% if b %}{% set y = 5 %}{% endif %}{{ y }}{% if no %}{% set n = 9 %}{% endif %}{{ n }}",
    "{% set a, c = 1, (2, 3) %}{{ a }}{{ c }}{% set (p1, q1) = [1, 2] %}{{ p1 }}{{ q1 }}",
    "{% set a, c = 1 %}", "{% set a, c = [1, 2, 3] %}", "{% set a = 1, 2 %}{{ a }}", "{% set a = 1, %}{{ a }}",
    "{% set n.x = 1 %}", "{% set d.x = 1 %}", "{% set undef.x = 1 %}", "{% set ns = namespace() %}{% set ns.a, k = 1, 2 %}{{ ns.a }}{{ k }}",
    "{% set ns = namespace() %}{% set ns.l = [1] %}{% set ns.l = ns.l + [2] %}{{ ns.l }}",
    "{% with a = 1, c = 2 %}{{ a + c }}{% set z9 = 3 %}{% endwith %}{{ a is defined }}{{ z9 is defined }}",
    "{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}", "{% with %}{% set k = 1 %}{{ k }}{% endwith %}{{ k is defined }}", "{% set a = 1 %}{% with a = 2, c = a %}{{ c }}{% endwith %}",
    "{% set v %}a{{ n }}{% endset %}[{{ v }}]{{ v is string }}{{ v is escaped }}", "{% set v | upper | trim %} a{{ n }} {% endset %}[{{ v }}]", "{% set v %}{% set inner = 1 %}{% endset %}{{ inner is defined }}",
    "{% set ns = namespace() %}{% set ns.v %}x{% endset %}{{ ns.v }}",
    # loops
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }}{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}", "{% for i in l if i > 5 %}x{% else %}none{% endfor %}", "{% for i in l if i != 1 %}{{ loop.index }}{{ loop.length }}{{ i }}{% else %}q{% endfor %}", "{% for i in x %}a{% else %}b{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in nil %}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }}{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %}", "{% for (k, v), w in [((1, 2), 3)] %}{{ k }}{{ v }}{{ w }}{% endfor %}", "{% for k, v in [1] %}{% endfor %}", "{% for k, v in ['ab', 'cd'] %}{{ v }}{{ k }}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for i in l %}{% set outer = loop %}{% for j in 'ab' %}{{ outer.index }}{{ j }}{{ loop.first }}{% endfor %}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{% if j == i %}{% break %}{% endif %}{{ j }}{% endfor %}|{% endfor %}", "{% break %}", "{% for i in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for i in l %}{% with %}{% continue %}{% endwith %}x{% endfor %}y", "{% for i in l %}{{ i }}{% endfor %}{{ loop is defined }}{{ i is defined }}", "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in (1, 2,) %}{{ i }}{% endfor %}", "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% for i in l recursive %}{{ i }}{% endfor %}",
    "{% for n1 in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3, 'c': [{'v': 4}]}]}] recursive %}{{ n1.v }}@{{ loop.depth }}({{ loop(n1.c) if n1.c else '' }}){% endfor %}", "{% for i in l %}{{ loop(i) }}{% endfor %}", "{% for i in l | map('string') %}{{ loop.length }}{{ loop.last }}{{ i }}{% endfor %}", "{% set it = l | map('string') %}{% for i in it %}{{ i }}{% endfor %}{% for i in it %}{{ i }}{% else %}used{% endfor %}", "{% for i in l %}{% if loop.first %}{% set seen = 1 %}{% endif %}{{ seen }}{% endfor %}", "{% for i in l | sort %}{{ i }}{% endfor %}", "{% for i in l if loop.index %}{% endfor %}",
    "{% for i in true and l or [] %}{{ i }}{% endfor %}", "{% for i in l if b else [] %}{{ i }}{% endfor %}", "{% for i in (l if b else []) %}{{ i }}{% endfor %}",
    # conditions
    "{% if x %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if not x and n %}a{% endif %}", "{% if x %}a{% elif y %}b{% elif z %}c{% else %}d{% endif %}", "{% if l %}{% if e %}1{% else %}2{% endif %}{% endif %}", "{% if n is defined and n > 3 %}y{% endif %}", "{% if x is defined and x.y.z %}a{% else %}b{% endif %}", "{% if x.y %}{% endif %}", "{% if messages[0]['role'] == 'system' %}s{% endif %}", "{% if (messages | length) % 2 == 1 %}odd{% endif %}", "{% if 1, 2 %}t{% endif %}",
    # macros
    "{% macro f(a, c=2) %}[{{ a }},{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(c=5, a=4) }}{{ f() }}{{ f(1)|length }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(q=2) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }}", "{% macro f(a, *b) %}{% endmacro %}", "{% macro f(a=1, c) %}{% endmacro %}", "{% macro f(a, c=a) %}{{ c }}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}in{{ n }}{% endcall %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, c) f() %}{{ a }}{{ c }}{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}{% endcall %}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}{% call f() %}{% endcall %}", "{% macro f(a) %}{{ a }}{{ caller() }}{% endmacro %}{% for i in l %}{% call f(i) %}<{{ i }}>{% endcall %}{% endfor %}", "{% call 5 %}{% endcall %}", "{% call(a=3) f2() %}{{ a }}{% endcall %}",
    "{% set g1 = 1 %}{% macro f() %}{{ g1 }}{{ n }}{% endmacro %}{{ f() }}{% set g1 = 2 %}{{ f() }}", "{% macro f() %}{{ late }}{% endmacro %}{% set late = 'L' %}{{ f() }}", "{% macro f() %}{% set inside = 1 %}{% endmacro %}{{ f() }}{{ inside is defined }}", "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}", "{% macro f(x1) %}{{ loop is defined }}{% endmacro %}{% for i in l %}{{ f(i) }}{% endfor %}",
    "{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}", "{% macro f() %}a{% endmacro %}{{ f }}{{ f.name }}{{ f() ~ f() }}{{ f() == 'a' }}", "{% macro f(ns) %}{% set ns.v = ns.v + 1 %}{% endmacro %}{% set s = namespace(v=1) %}{{ f(s) }}{{ f(s) }}{{ s.v }}", "{% macro f(a, c) %}{{ a }}{{ c }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'a': 3, 'c': 4}) }}{{ f(*[1], **{'c': 2}) }}", "{{ dict(**{'a': 1}) }}{{ range(*[1, 3]) | list }}", "{% macro f(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ f() }}{{ f(none) }}", "{% macro f(a) %}{{ a.b }}{% endmacro %}{{ f() }}", "{% macro a1() %}{{ b1() }}{% endmacro %}{% macro b1() %}B{% endmacro %}{{ a1() }}", "{% macro f(caller) %}{{ caller() }}{% endmacro %}", "{% macro f(kwargs) %}{{ kwargs }}{% endmacro %}{{ f(1) }}",
    # filter blocks, raw, comments, generation
    "{% filter upper %}a{{ t }}b{% endfilter %}", "{% filter trim | replace('a', 'b') %} aa {% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }}", "{% filter nope %}{% endfilter %}", "{% raw %}{{ x }}{% if %}{# c #}{% endraw %}", "{% raw -%}  a  {%- endraw %} b", "a {%- raw %} x {% endraw -%} b", "  {% raw %}\nx\n  {% endraw %}\ny", "{% raw %}", "a{# c #}b", "a {#- c -#} b", "  {# c #}\nb", "a\n  {# c\nd #}  \nb", "{#", "{# a #} {# b", "{% generation %}a{% set q = 1 %}{{ n }}{% endgeneration %}{{ q is defined }}", "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}", "{%- generation -%} a {%- endgeneration -%}",
    "{% print n %}{% print n, t %}", "{% print %}", "{% autoescape true %}{% endautoescape %}" if False else "{{ 1 }}",
    # errors of syntax
    "{{", "{{ }}", "{%", "{% %}", "{% if %}", "{% if b %}", "{% endif %}", "{% for %}", "{% for i %}{% endfor %}", "{% for i in %}{% endfor %}", "{% else %}", "{{ a b }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ {1} }}", "{{ 1 + }}", "{{ 'a }}", "{{ a. }}", "{{ a[ }}", "{{ a| }}", "{{ a is }}", "{% set %}", "{% set 1 = 2 %}", "{% set a = %}", "{% unknown %}", "{% do l.append(1) %}", "{{ a ? b }}", "{{ a $ b }}", "{% if a = 1 %}{% endif %}", "{% block %}", "{% macro %}", "{% macro f %}{% endmacro %}", "{% endfor %}", "{% for i in l %}{% endif %}", "{{ 1 if }}", "{{ not }}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}", "{{ a is b is c }}", "{{ true = 1 }}", "{% set true = 1 %}", "{% set none = 1 %}", "}}", "%}", "{", "{ {", "a } b", "{{ '}}' }}", "{{ '%}' }}{% if '%}' %}a{% endif %}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {}} }}", "{{{}}}", "{{ '{{' }}", "{%if b%}a{%endif%}", "{{n}}{{ n}}{{n }}", "{{-n-}}", "{{ -n }}", "{{+n}}", "{{ +n }}", "{{ n -}} x", "x {{- n }}", "{% if b -%} x {%- endif %}", "{{ \n n \n }}", "{%\nif b\n%}a{%\nendif\n%}", "{% if b: %}a{% endif %}", "{% for i in l: %}{{ i }}{% endfor %}", "{{ n;m }}", "{{ n:m }}", "{{ l[1,2] }}", "{{ d[1:2] }}", "{{ l[::0] }}", "{{ l['a':] }}", "{{ x[1:] }}", "{{ t['upper']() }}", "{{ t['upper'] is callable }}", "{{ l.0 }}{{ l.2 }}", 
    "{{ recursive is defined }}", "{{ 1, 2 }}", "{{ 1, }}", "{{ () }}", "{{ (1) }}", "{{ n if b else }}", "{{ in }}", "{{ 'a' 'b' ~ 'c' }}", "{{ a.b.c is defined }}",
]

CHAT = [
    # Llama 2 and Mistral
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    # Llama 3
    """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}""",
    # Gemma
    """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
""",
    # DeepSeek
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<\uff5cUser\uff5c>' + message['content']|string}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{tool['function']['name']}}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + tool['type']}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<\uff5cAssistant\uff5c>' + content + '<end>'}}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<outs><out>' + message['content'] + '<out end>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n<out>' + message['content'] + '<out end>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<outs end>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<\uff5cAssistant\uff5c>'}}{% endif %}",
    # Phi
    "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content']|string + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}",
    # Hermes: a recursive macro over JSON types
    """{%- macro json_to_python_type(json_spec) %}
{%- set basic_type_map = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool"
} %}

{%- if basic_type_map[json_spec.type] is defined %}
    {{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "list[" +  json_to_python_type(json_spec|items) + "]"}}
{%- elif json_spec.type == "object" %}
    {%- if json_spec.additionalProperties is defined %}
        {{- "dict[str, " + json_to_python_type(json_spec.additionalProperties) + ']'}}
    {%- else %}
        {{- "dict" }}
    {%- endif %}
{%- elif json_spec.type is iterable %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}
      {{- json_to_python_type({"type": t}) }}
      {%- if not loop.last %}
        {{- "," }}
    {%- endif %}
    {%- endfor %}
    {{- "]" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{%- for s in [{"type": "string"}, {"type": "object"}, {"type": ["string", "null"]}, {"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "q"}] %}
{{ json_to_python_type(s) }}
{% endfor %}""",
    # gpt-oss: TypeScript of schemas
    """{%- macro render_typescript_type(param_spec, required_params, is_nullable=false) -%}
    {%- if param_spec.type == "array" -%}
        {%- if param_spec['items'] -%}
            {%- if param_spec['items']['type'] == "string" -%}
                {{- "string[]" }}
            {%- else -%}
                {%- set inner_type = render_typescript_type(param_spec['items'], required_params) -%}
                {%- if inner_type == "object | object" or inner_type|length > 50 -%}
                    {{- "any[]" }}
                {%- else -%}
                    {{- inner_type + "[]" }}
                {%- endif -%}
            {%- endif -%}
            {%- if param_spec.nullable -%}
                {{- " | null" }}
            {%- endif -%}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
    {%- elif param_spec.type is defined and param_spec.type is iterable and param_spec.type is not string and param_spec.type is not mapping and param_spec.type[0] is defined -%}
        {{- param_spec.type | join(" | ") }}
    {%- elif param_spec.oneOf -%}
        {%- for variant in param_spec.oneOf -%}
            {{- render_typescript_type(variant, required_params) -}}
            {%- if variant.description %}
                {{- "// " + variant.description }}
            {%- endif -%}
            {%- if not loop.last %}
                {{- " | " }}
            {% endif -%}
        {%- endfor -%}
    {%- elif param_spec.type == "string" -%}
        {%- if param_spec.enum -%}
            {{- '"' + param_spec.enum|join('" | "') + '"' -}}
        {%- else -%}
            {{- "string" }}
        {%- endif -%}
    {%- elif param_spec.type in ("number", "integer") -%}
        {{- "number" }}
    {%- else -%}
        {{- "any" }}
    {%- endif -%}
{%- endmacro -%}
{{ render_typescript_type({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "nullable": true}, []) }}
{{ render_typescript_type({"oneOf": [{"type": "string", "enum": ["a", "b"], "description": "D"}, {"type": ["string", "null"]}]}, []) }}
{{ render_typescript_type({"type": "array", "items": {"type": "string"}}, []) }}""",
    # GLM and Command-R
    """[gMASK]<sop>
{%- macro visible_text(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}
                {{- item.text }}
            {%- elif item is string -%}
                {{- item }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- content }}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {% set ns.last_user_index = loop.index0 -%}
    {%- endif %}
{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning_content = '' %}
{%- set content = visible_text(m.content) %}
{%- if '</think>' in content %}
    {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
    {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}
{{ '\\n<think>' + reasoning_content.strip() +  '</think>'}}
{%- else -%}
{{ '\\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}
{{ '\\n' + content.strip() }}
{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}
    {%- set tc = tc.function %}
{%- endif %}
{{ '\\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if m.content is string -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
    {{- '<|observation|>' }}
{%- endif %}
{{- '\\n<tool_response>\\n' }}
{{- m.content }}
{{- '\\n</tool_response>' }}
{%- endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible_text(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>{{- '\\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}""",
    # LFM2
    """{{- bos_token -}}{%- set system_prompt = "" -%}
{%- set ns = namespace(system_prompt="") -%}
{%- if messages[0]["role"] == "system" -%}
	{%- set ns.system_prompt = messages[0]["content"] -%}
	{%- set messages = messages[1:] -%}
{%- endif -%}
{%- if tools -%}
	{%- set ns.system_prompt = ns.system_prompt + ("\\n" if ns.system_prompt else "") + "List of tools: <|tool_list_start|>[" -%}
	{%- for tool in tools -%}
		{%- if tool is not string -%}
            {%- set tool = tool | tojson -%}
		{%- endif -%}
		{%- set ns.system_prompt = ns.system_prompt + tool -%}
        {%- if not loop.last -%}
            {%- set ns.system_prompt = ns.system_prompt + ", " -%}
        {%- endif -%}
	{%- endfor -%}
	{%- set ns.system_prompt = ns.system_prompt + "]<|tool_list_end|>" -%}
{%- endif -%}
{%- if ns.system_prompt -%}
	{{- "<|im_start|>system\\n" + ns.system_prompt + "<|im_end|>\\n" -}}
{%- endif -%}
{%- for message in messages -%}
	{{- "<|im_start|>" + message["role"] + "\\n" -}}
	{%- set content = message["content"] -%}
	{%- if content is not string -%}
		{%- set content = content | tojson -%}
	{%- endif -%}
	{%- if message["role"] == "tool" -%}
		{%- set content = "<|tool_response_start|>" + content + "<|tool_response_end|>" -%}
	{%- endif -%}
	{{- content + "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
	{{- "<|im_start|>assistant\\n" -}}
{%- endif -%}""",
]


def expression_cases():
    for block in (EXPRESSIONS, FILTERS):
        for entry in block.strip("\n").replace("\\\ncont", "\\\\NEWLINEcont").split("\n"):
            for expression in entry.split(" ; "):
                yield expression.replace("\\NEWLINE", "\n")


def separate(expressions):
    """Entries may be divided by ` | ` with blanks on both sides where they are no filters; those are written without blanks."""
    for expression in expressions:
        yield from expression.split(" | ")


def whitespace_templates(rng, count):
    spaces = ["", " ", "\n", "  ", "\n  ", " \n", "\n\n", "\t", "a", "a\n", "  b", "\u00a0", "\n\u3000", "x \n  "]
    tags = ["{%@ if b @%}", "{{@ n @}}", "{#@ c @#}", "{%@ set q = 1 @%}", "{%@ raw @%}r {% endraw %}", "{%@ for i in l @%}", "{%@ filter trim @%}", "{%@ with @%}"]
    ends = {"if": "{%@ endif @%}", "for": "{%@ endfor @%}", "filter": "{%@ endfilter @%}", "with": "{%@ endwith @%}"}
    for _ in range(count):
        parts, open_tags = [], []
        for _ in range(rng.randint(1, 6)):
            parts.append(rng.choice(spaces))
            tag = rng.choice(tags)
            if open_tags and rng.random() < 0.5:
                tag = ends[open_tags.pop()]
            else:
                word = tag.strip("{%@# ").split(" ")[0]
                if word in ends:
                    open_tags.append(word)
            left, right = rng.choice(["", "", "-", "+"]), rng.choice(["", "", "-", "+"])
            if tag.startswith("{{") or "raw" in tag:
                left, right = left.replace("+", "-"), right.replace("+", "")
            first, _, last = tag.partition("@")
            middle, at, last = last.rpartition("@")
            parts.append(first + left + middle + right + last)
        parts.append(rng.choice(spaces))
        while open_tags:
            parts.append(ends[open_tags.pop()].replace("@", ""))
            parts.append(rng.choice(spaces))
        yield "".join(parts)


def random_expression(rng, depth):
    leaves = ["t", "u", "e", "n", "z", "m", "f", "b", "no", "nil", "l", "w", "mix", "d", "p", "x", "1", "-2", "0.5", "'a'", "'Ab c'", "[1, 'a']", "{'k': 2}", "(1, 2)", "none", "true", "range(3)|list", "d.c", "p[0]", "w[1]"]
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves)
    sub = lambda: random_expression(rng, depth - 1)
    kind = rng.randint(0, 9)
    if kind <= 1:
        return f"({sub()} {rng.choice(['+', '-', '*', '/', '//', '%', '~', '~', '+'])} {sub()})"
    if kind == 2:
        return f"({sub()} {rng.choice(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in', 'and', 'or'])} {sub()})"
    if kind == 3:
        return f"(not {sub()})"
    if kind == 4:
        return f"({sub()} if {sub()} else {sub()})"
    if kind == 5:
        return f"{rng.choice('tuelwmnpdx')}[{rng.choice(['0', '-1', '1:', ':-1', '::-1', '::2', chr(39) + 'b' + chr(39)])}]"
    if kind == 6:
        return f"({sub()} is {rng.choice(['defined', 'string', 'mapping', 'iterable', 'number', 'none', 'sequence', 'not none', 'true', 'boolean', 'integer'])})"
    filters = ["trim", "upper", "lower", "title", "length", "first", "last", "list", "string", "tojson", "join(',')", "sort", "reverse", "unique|list", "int", "float", "abs", "default('D')", "default('D', true)", "capitalize", "map('string')|list", "select|list", "reject('none')|list", "sum", "min", "max", "replace('a', 'b')", "e", "items|list", "dictsort", "batch(2)|list", "round", "indent(1)", "wordcount", "safe"]
    return f"({sub()}|{rng.choice(filters)})"


def generated():
    rng = random.Random(20261125)
    for expression in separate(expression_cases()):
        yield "{{ " + expression.strip(" ") + " }}"
    yield from STATEMENTS
    yield from CHAT
    yield from whitespace_templates(rng, 400)
    for _ in range(500):
        yield "{{ " + random_expression(rng, rng.randint(1, 3)) + " }}"
    for _ in range(60):
        expression = random_expression(rng, 2)
        yield "{% for i in " + expression + " %}{{ i }},{{ loop.last }};{% else %}-{% endfor %}"


def conversations():
    tool = {"type": "function", "function": {"name": "weather", "description": "Says the \"weather\" <b>", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "integer", "enum": [1, 2]}, "opts": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]}}}
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Z\u00fcrich", "days": 3, "flag": True, "none": None, "list": [1, 2.5, "x"]}}}
    user, system = {"role": "user", "content": " hi \n"}, {"role": "system", "content": "  be brief "}
    parts = {"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "image"}, {"type": "text", "text": "here"}]}
    answer = {"role": "assistant", "content": "<think>\nhm\n</think>\n\n yo"}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    called_twice = {"role": "assistant", "content": "I look", "reasoning_content": "think\n", "tool_calls": [call, call]}
    results = [{"role": "tool", "content": "rain", "tool_call_id": "call_1", "name": "weather"}, {"role": "tool", "content": "{\"a\": 1}", "tool_call_id": "call_1", "name": "weather"}]
    chats = [[user], [system, user], [user, answer, user], [system, user, answer, user, answer], [user, called, results[0]], [system, user, called_twice, *results, answer, user], [parts], [], [system], [answer], [user, user], [user, system], [{"role": "wizard", "content": "x"}], [{"role": "developer", "content": "dev"}, user]]
    for chat, tools, more in itertools.product(chats, [None, [tool], [tool, tool]], [{}, {"enable_thinking": False}, {"add_generation_prompt": False, "reasoning_effort": "low"}]):
        yield {"messages": chat, "tools": tools, "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", **more}


def main():
    if sys.argv[1:2] == ["--check"]:
        variables = list(conversations())
        cases = [{"t": Path(path).read_text(), "name": path, "v": v, **outcome(Path(path).read_text(), variables[v])} for path in sys.argv[2:] for v in range(len(variables))]
        json.dump({"variables": variables, "cases": cases}, sys.stdout, ensure_ascii=False)
        return
    cases = []
    for template in dict.fromkeys(generated()):
        result = outcome(template, DATA)
        # Left out: what prints an address, and what means something else where jinja2 computes constants beforehand.
        if " at 0x" not in result.get("o", "") and result == outcome(template, DATA, PLAIN_ENV):
            cases.append({"t": template, "v": 0, **result})
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    OUT.write_text('{"variables": [' + json.dumps(DATA, ensure_ascii=True) + '],\n"cases": [\n' + lines + "\n]}\n")
    failed = sum("e" in case for case in cases)
    print(f"{len(cases)} cases, {failed} of which fail, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
