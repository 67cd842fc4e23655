"""Right and wrong answers to 200 problems of every shipped experiment, by its own rewards."""

import json
import re
from importlib.util import find_spec

import pytest

from agentfly_core.config import loading
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play import solvable, trial
from agentfly_core.store.store import Store
from tests.support.project import ROOT

PROBLEMS = 200
RANKED = {"mle"}
"""Their reward is a rank among baselines: no answer is right or wrong."""
EXPERIMENTS = [name for name in loading.names(ROOT / "conf") if name not in RANKED]
EXAMPLES = re.compile(r"earns 1 in (\d+) of (\d+) .* in (\d+) of (\d+) cases on (\d+) ")
PLAYED = re.compile(r"(The oracle|An idle policy) solves (\d+) of (\d+) ")
FORMS = [
    lambda n: str(n),
    lambda n: f"It is {n - 3} + 3.\n#### {n:,}",
    lambda n: f"so the area is $\\boxed{{{n}\\text{{ cm}}^2}}$.",
    lambda n: f"\\boxed{{\\frac{{{n}}}{{7}}}}",
    lambda n: f"{n:b}_2",
    lambda n: float(n),
    lambda n: f"({n}, {n + 1})",
    lambda n: f"{n}x^2+1",
]
NEEDS = {"babyai": "minigrid", "textworld": "textworld", "reasoning-gym": "reasoning_gym"}
LESS = {"textworld": 0.9}
"""Least shares that the oracle solves: a hunt can need more turns than `agent.max_turns`."""


@pytest.fixture
def overrides(tmp_path):
    """Overrides for experiments that bring too few problems, or none."""
    rows = [
        {"question": f"Problem {n}?", "answer": FORMS[n % len(FORMS)](n + 2)} for n in range(260)
    ]
    path = tmp_path / "math.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = ["data.train=200", "data.validation=20", "data.test=40"]
    return {"qwen2.5-3b-math": [f"data.train_file={path}", *sizes], "forge": ["data.test=200"]}


@pytest.mark.long
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_right_answers_earn_the_maximum_and_wrong_ones_less(name, tmp_path, monkeypatch, overrides):
    if name in NEEDS and not find_spec(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(solvable, "WRONG", PROBLEMS)
    monkeypatch.setattr(trial, "PLAYED", PROBLEMS)
    read = loading.read(name, overrides.get(name, []))
    store = Store.at(str(tmp_path / "store"), tmp_path / "cache")
    here = Experiment.of(name, read.settings, read.origin, Site(), store)
    report = "\n".join(solvable.check(here, inputs.dataset(here)))
    examples, played = EXAMPLES.findall(report), PLAYED.findall(report)
    for right, problems, less, wrong, sampled in examples:
        assert (right, less) == (problems, wrong), report
        assert int(problems) >= PROBLEMS and int(sampled) >= PROBLEMS, report
    for who, solved, problems in played:
        least = LESS.get(name, 1) * PROBLEMS if who == "The oracle" else 0
        assert least <= int(solved) <= (PROBLEMS if least else 0), report
        assert int(problems) == PROBLEMS, report
    assert examples or played, report
