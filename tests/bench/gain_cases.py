"""What planted_gains.py plants: configurations with a fault, and each with its remedy."""

import dataclasses
import json
import pathlib
import shutil
import tempfile

from plants import make_loud, make_wide

WIDTH = 16  # how much wider experts are where their weights are to be more than caches hold
VICTIM = 2


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a job is started."""

    ranks: int = 3
    threads: int = 1  # of every rank
    arguments: tuple = ()
    transport: str = "auto"

    def changed(self, option, value):
        """The same with another value of an option, which need not be given here."""
        if option == "--threads":
            return dataclasses.replace(self, threads=int(value))
        if option == "-np":  # a rank that is no longer there cannot be slow
            gone = "--fault" in self.arguments and int(value) <= VICTIM
            return dataclasses.replace(self, ranks=int(value), arguments=() if gone else self.arguments)
        arguments = list(self.arguments)
        if option in arguments:
            at = arguments.index(option)
            del arguments[at : at + 2]
        return dataclasses.replace(self, arguments=(*arguments, option, value))


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault and its remedy: `option` is what turns one into the other, `metric` what that makes better.

    Where the faulty run's profile has an action on that option, its value is the remedy; else `after` is.
    """

    option: str
    before: Setting
    after: Setting
    metric: str = "generated tokens/s"  # one of planted_gains.METRICS
    load: tuple = (8, 16, 400)  # streams, tokens of a prompt, new tokens, temperature (1)
    model: str = "demo"  # what Folder.model() makes
    link_rate: str = ""  # of rank VICTIM's connections, as tc writes it; needs root
    bench: tuple = ()  # arguments of `ferry bench`, which is the load in the place of served requests


def alone(*arguments, threads=1):
    """One rank: what schedules and how much is computed decide. One thread, so that clients have a core of their own."""
    return Setting(1, threads, arguments)


def plain(*arguments, **setting):
    """A server that tries no drafts: `auto` would try some on one side and none on the other."""
    return Setting(arguments=("--speculate", "0", *arguments), **setting)


def slowed(*arguments):
    return Setting(arguments=("--fault", f"slow:{VICTIM}x4", *arguments))


def bench(prompts, batches, tokens=24):
    """What `ferry bench` measures: prompts of that many tokens, and so many sequences that decode so many tokens each."""
    return ("-p", str(prompts), "-b", str(batches), "-n", str(tokens), "-r", "12")


ONE = {"ranks": 1, "threads": 1}
PROMPTS, TALK = (6, 512, 4), (8, 16, 400)
DECODE, PREFILL = "decode ×{} tokens/s".format, "prefill {} tokens/s".format
CASES = {
    # Long prompts in steps of few rows.
    "small_budget": Case("--token-budget", plain("--token-budget", "80", **ONE), plain("--token-budget", "1024", **ONE), "TTFT p50 ms", PROMPTS),
    "small_chunk": Case("--prefill-chunk", plain("--prefill-chunk", "16", **ONE), plain("--prefill-chunk", "512", **ONE), "TTFT p50 ms", (2, 512, 16)),
    "small_pieces": Case("--prefill-chunk", alone("--prefill-chunk", "8"), alone("--prefill-chunk", "512"), PREFILL(512), bench=bench(512, 1)),
    # Random prompts, sampled: few guesses are right. The likeliest tokens repeat themselves: nearly all are.
    "many_drafts": Case("--speculate", alone("--speculate", "8"), alone("--speculate", "1"), load=TALK),
    "few_drafts": Case("--speculate", alone("--speculate", "ngram:1"), alone("--speculate", "ngram:6"), load=(2, 16, 400, 0.0)),
    # Experts that are wide: what a worker has to read or multiply decides.
    "loud_experts": Case("--redundancy", Setting(), Setting(arguments=("--redundancy", "2x")), PREFILL(256), model="loud", bench=bench(256, 1)),
    "uneven_placement": Case("--placement", Setting(arguments=("--placement", "uneven")), Setting(), PREFILL(256), model="wide", bench=bench(256, 1)),
    "slow_rank": Case("-np", slowed(), Setting(2), PREFILL(256), model="wide", bench=bench(256, 1)),
    "width_8": Case("--quantize", alone("--quantize", "none"), alone("--quantize", "w8a8"), DECODE(2), model="wide", bench=bench(64, 2)),
    "width_4": Case("--quantize", alone("--quantize", "none"), alone("--quantize", "w4a8"), DECODE(2), model="wide", bench=bench(64, 2)),
    "many_ranks": Case("-np", Setting(ranks=5), alone(), DECODE(8), bench=bench(64, 8)),
    "few_threads": Case("--threads", alone(), alone(threads=2), PREFILL(256), bench=bench(256, 8)),
    "starved": Case("--max-seqs", plain("--max-seqs", "2", **ONE), plain("--max-seqs", "16", **ONE), load=(12, 16, 60), model="wide"),
    "slow_link": Case("--combine", plain(transport="gloo"), plain("--combine", "fast", transport="gloo"), load=TALK, link_rate="50mbit"),
}


def num_layers(model):
    return json.loads((model / "config.json").read_text())["text_config"]["num_hidden_layers"]


def make_loud_model(demo, target):
    """Half of rank 1's experts get the router rows of rank 2's, louder: nearly all rows want those that point their way."""
    make_wide(demo, target, WIDTH)
    experts = json.loads((demo / "config.json").read_text())["text_config"]["num_experts"]
    pairs = [(expert, experts - 1 - expert) for expert in range(experts // 4)]
    make_loud(target, {layer: pairs for layer in range(num_layers(demo))}, factor=5.0)


class Folder:
    """Checkpoints, placements and captures of a run, made when they are first asked for, as long as it is open.

    Captures are kept beyond that if `keep` is a folder.
    """

    def __init__(self, demo, keep=None):
        self._demo, self._folder = demo, pathlib.Path(tempfile.mkdtemp(prefix="ferry-gains-"))
        self._captures = keep or self._folder

    def close(self):
        shutil.rmtree(self._folder, ignore_errors=True)

    def model(self, name):
        if name == "demo":
            return self._demo
        target = self._folder / name
        if not target.exists():
            {"wide": lambda: make_wide(self._demo, target, WIDTH), "loud": lambda: make_loud_model(self._demo, target)}[name]()
        return target

    def capture(self, case, side, pair):
        """A path for the capture of a case's run, `before` or `after` its remedy."""
        return self._captures / f"{case}-{side}-{pair}"

    def uneven_placement(self, guesses):
        """Of two workers, the first holds seven of eight experts; `guesses`: whether the job loads the layer that guesses."""
        path = self._folder / "uneven.json"
        experts = json.loads((self._demo / "config.json").read_text())["text_config"]["num_experts"]
        split = experts * 7 // 8
        layer = [list(range(split)), list(range(split, experts))]
        # The layer that guesses has experts, too, where guesses are made: by those who serve.
        layers = [layer] * (num_layers(self._demo) + guesses)
        path.write_text(json.dumps({"format": "ferry-placement", "version": 1, "num_experts": experts, "num_workers": 2, "layers": layers}))
        return path

    def arguments(self, case, setting):
        return [str(self.uneven_placement(not case.bench)) if argument == "uneven" else argument for argument in setting.arguments]
