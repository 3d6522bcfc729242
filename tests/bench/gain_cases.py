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
        if option in ("-np", "--threads"):
            return dataclasses.replace(self, **{"ranks" if option == "-np" else "threads": int(value)})
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


def alone(*arguments, threads=2):
    """One rank: what schedules and how much is computed decide."""
    return Setting(1, threads, arguments)


def slowed(*arguments):
    return Setting(arguments=("--fault", f"slow:{VICTIM}x4", *arguments))


PROMPTS, TALK, FEW, LOUD = (6, 512, 4), (8, 16, 400), (2, 16, 400), (4, 256, 1)
CASES = {
    # Long prompts in steps of few rows.
    "small_budget": Case("--token-budget", alone("--token-budget", "80"), alone("--token-budget", "1024"), "TTFT p50 ms", PROMPTS),
    "small_chunk": Case("--prefill-chunk", alone("--prefill-chunk", "16"), alone("--prefill-chunk", "512"), "TTFT p50 ms", (2, 512, 16)),
    # Random prompts, sampled: few guesses are right. The likeliest tokens repeat themselves: nearly all are.
    "many_drafts": Case("--speculate", alone("--speculate", "8"), alone("--speculate", "1"), load=TALK),
    "few_drafts": Case("--speculate", alone("--speculate", "ngram:1"), alone("--speculate", "ngram:6"), load=(2, 16, 400, 0.0)),
    # Experts that are wide: what a worker has to read or multiply decides.
    "loud_experts": Case("--redundancy", Setting(), Setting(arguments=("--redundancy", "2x")), "prompt tokens/s", LOUD, "loud"),
    "uneven_placement": Case("--placement", Setting(arguments=("--placement", "uneven")), Setting(), "prompt tokens/s", LOUD, "wide"),
    "slow_rank": Case("--redundancy", slowed(), slowed("--redundancy", "2x"), "prompt tokens/s", LOUD, "wide"),
    "width_8": Case("--quantize", alone("--quantize", "none"), alone("--quantize", "w8a8"), load=FEW, model="wide"),
    "width_4": Case("--quantize", alone("--quantize", "none"), alone("--quantize", "w4a8"), load=FEW, model="wide"),
    "many_ranks": Case("-np", Setting(ranks=5), alone(threads=1), load=TALK),
    "few_threads": Case("--threads", alone(threads=1), alone(), "prompt tokens/s", LOUD),
    "starved": Case("--max-seqs", alone("--max-seqs", "2"), alone("--max-seqs", "16"), load=(12, 16, 200)),
    "slow_link": Case("--combine", Setting(transport="gloo"), Setting(transport="gloo", arguments=("--combine", "fast")), load=TALK, link_rate="50mbit"),
}


def num_layers(model):
    return json.loads((model / "config.json").read_text())["text_config"]["num_hidden_layers"]


def make_loud_model(demo, target):
    """Rank 1's first experts get the router rows of rank 2's, louder: nearly all rows want them."""
    make_wide(demo, target, WIDTH)
    experts = json.loads((demo / "config.json").read_text())["text_config"]["num_experts"]
    pairs = [(expert, experts - 1 - expert) for expert in range(8)]
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

    def uneven_placement(self):
        """Of two workers, the first holds seven of eight experts."""
        path = self._folder / "uneven.json"
        experts = json.loads((self._demo / "config.json").read_text())["text_config"]["num_experts"]
        split = experts * 7 // 8
        layer = [list(range(split)), list(range(split, experts))]
        # The layer that guesses has experts, too.
        layers = [layer] * (num_layers(self._demo) + 1)
        path.write_text(json.dumps({"format": "ferry-placement", "version": 1, "num_experts": experts, "num_workers": 2, "layers": layers}))
        return path

    def arguments(self, setting):
        return [str(self.uneven_placement()) if argument == "uneven" else argument for argument in setting.arguments]
