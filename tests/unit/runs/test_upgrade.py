"""A later release, which has more settings, knows the experiments and the runs of this one."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from agentfly_core.algorithms import grpo
from agentfly_core.artifacts import keys
from agentfly_core.artifacts.store import Artifact, Store
from agentfly_core.config import health_signs, loading
from agentfly_core.config.experiment import Adapter, Science, Update, WarmStart
from agentfly_core.config.health_signs import Sign
from agentfly_core.config.promotion import AS_BEFORE
from agentfly_core.config.section import BY_NAME, Added, Section
from agentfly_core.config.site import Site
from agentfly_core.datasets import arithmetic
from agentfly_core.formats import strict_yaml
from agentfly_core.pipeline.checks import check, check_run
from agentfly_core.records.problem_schedule import first_round
from agentfly_core.reports.night_plan import recorded_changes
from agentfly_core.rl.importance_sampling import IcePop, SequenceMask, SequenceTIS, TokenTIS
from agentfly_core.runs.context import COUNTED, ExperimentContext, resolve
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import opened
from flows.dvc_outputs import write_config
from tests.support.released import EXPERIMENTS, RUN, Released, called

FIRST = Science
TINY = EXPERIMENTS[[one.name for one in EXPERIMENTS].index("tiny")]
NAME = RUN["run.json"]["name"]


class Schedule(Section):
    kind: str = "constant"
    warmup: Annotated[int, Added(before=0)] = 0


class LaterUpdate(Update):
    ema: Annotated[float | None, Added(before=None)] = None
    schedule: Annotated[Schedule, Added(before={"kind": "constant"})] = Schedule()


class LaterWarmStart(WarmStart):
    patience: Annotated[int, Field(ge=0), Added(before=0)] = 0


class LaterAdapter(Adapter):
    dropout: Annotated[float, Added(before=0.0)] = 0.0


class LaterScience(Science):
    update: LaterUpdate = LaterUpdate()
    warm_start: LaterWarmStart | None = None
    adapter: LaterAdapter | None = None
    quantized: Annotated[str, Added(before="no")] = "no"


class LaterTIS(TokenTIS):
    floor: Annotated[float, Added(before=0.0)] = 0.0


LaterCorrection = Annotated[
    LaterTIS | SequenceTIS | IcePop | SequenceMask, Field(discriminator="use"), BY_NAME
]


@dataclass(frozen=True, kw_only=True)
class LaterGRPO(grpo.GRPO):
    correction: LaterCorrection | None = None
    delay: Annotated[int, Added(before=0)] = 0


def later_arithmetic(
    seed: int,
    train: int,
    validation: int,
    test: int,
    operators: str = "+-*",
    digits: Annotated[int, Added(2)] = 2,
) -> dict[str, list[Any]]:
    return arithmetic.arithmetic(seed, train, validation, test, operators)


def use(patch: pytest.MonkeyPatch, later: type[Science]) -> None:
    """Put a later release's settings in the place of this one's, wherever a module has them."""
    for module in [*sys.modules.values()]:
        if inspect.ismodule(module) and vars(module).get("Science") is FIRST:
            patch.setattr(module, "Science", later)


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    sign = Sign(metric="train/later", above=1.0)
    monkeypatch.setitem(health_signs.SIGNS, "later", sign)
    monkeypatch.setitem(loading.PARTS["health"], "later", sign.model_dump())
    monkeypatch.setattr(grpo, "GRPO", LaterGRPO)
    monkeypatch.setattr(arithmetic, "arithmetic", later_arithmetic)
    use(monkeypatch, LaterScience)


@pytest.fixture
def context(tmp_path: Path, upgraded: None) -> ExperimentContext:
    """Where the run of the first release lies; its experiment is read by the later one."""
    return at(tmp_path)


def at(folder: Path, *overrides: str) -> ExperimentContext:
    """The first release's run and its experiment, which these settings make another one."""
    read = Released("tiny", TINY.written, overrides, {}).read(folder)
    store = Store.at(str(folder / "store"), folder)
    (store.root / "runs" / NAME).mkdir(parents=True, exist_ok=True)
    (store.root / "runs" / NAME / "run.json").write_text(json.dumps(RUN["run.json"]))
    return ExperimentContext("tiny", resolve(read.science), read.origin, Site(), store)


@pytest.mark.parametrize("released", EXPERIMENTS, ids=str)
def test_an_experiment_its_run_and_its_stages_are_called_as_in_the_release_before(
    released: Released, tmp_path: Path
) -> None:
    assert called(released.read(tmp_path), tmp_path) == released.called


@pytest.mark.usefixtures("upgraded")
@pytest.mark.parametrize("released", EXPERIMENTS, ids=str)
def test_settings_that_a_release_adds_change_no_name_where_they_are_at_their_default(
    released: Released, tmp_path: Path
) -> None:
    read = released.read(tmp_path)
    assert "update.schedule.warmup" in read.origin
    assert called(read, tmp_path) == released.called


@pytest.mark.usefixtures("upgraded")
@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ("update.schedule.warmup=3", {"update"}),
        ("update.ema=0.99", {"update"}),
        ("warm_start.patience=1", {"demonstrate", "warm_start"}),
        ("algorithm.delay=1", {"update"}),
        ("algorithm.correction={use: token_tis, floor: 0.1}", {"update"}),
        ("data.digits=3", {"prepare"}),
        ("quantized=int8", set()),
        ("health.later=null", set()),
    ],
)
def test_another_value_of_an_added_setting_is_another_experiment_to_the_stages_that_read_it(
    override: str, changed: set[str], tmp_path: Path
) -> None:
    found = called(Released("tiny", TINY.written, (override,), {}).read(tmp_path), tmp_path)
    assert found["digest"] != TINY.called["digest"]
    before, after = TINY.called["stages"], found["stages"]
    assert {stage for stage in after if before[stage] != after[stage]} == changed


def test_every_stage_of_a_run_of_the_release_before_is_found_by_its_key(
    context: ExperimentContext,
) -> None:
    made, science, step = RUN["manifests"], context.science, f"runs/{NAME}/steps/000001"
    shared = {uri.split("/")[1]: uri for uri in made if uri.startswith("artifacts/")}
    start = Artifact(**RUN["start.json"])
    model = Artifact(shared["model"], made[shared["demonstrate"]]["inputs"]["model"])
    data = Artifact(shared["prepare"], made[shared["demonstrate"]]["inputs"]["data"])
    episodes = Artifact(shared["demonstrate"], made[start.uri]["inputs"]["demonstrations"])
    played = Artifact(f"{step}/rollout-000", made[f"{step}/scored"]["inputs"]["rollout-000"])
    scored = Artifact(f"{step}/scored", made[f"{step}/policy"]["inputs"]["scored"])
    warm, policy = (
        keys.warm_start(science, model, episodes, 1),
        keys.policy(science, NAME, start, scored, 1),
    )
    drawn = first_round(science, 1, resolve(science).greedy).drawn(science)
    found = [
        keys.prepare(science),
        keys.model(science),
        keys.demonstrations(science, model, data, {}),
        warm,
        policy,
    ]
    found += [keys.evaluation(science, start, data, "test", 0, {}), keys.scored(science, [played])]
    found += [
        keys.rollout(science, NAME, start, data, 1, 0, drawn, {}),
        *map(keys.learner, (warm, policy)),
    ]
    for target in found:
        assert made[target.uri] == {
            "stage": target.stage,
            "key": target.key,
            "inputs": target.inputs,
        }


def test_a_run_of_the_release_before_is_continued_and_its_record_stays_as_it_was(
    context: ExperimentContext,
) -> None:
    kept = {"uid", "science", "science_digest", "origin", "stages", "dataset_digest"}
    with opened(context, NAME) as run:
        assert {key: run.record[key] for key in kept} == {key: RUN["run.json"][key] for key in kept}
    assert recorded_changes(context, NAME) == []


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("update.mini_batches=9", r"update.mini_batches is 9, and a step has 8 episodes"),
        ("agent.max_tokens=300", r"agent.max_tokens is 300, and agent.max_model_len leaves"),
        ("model=package:llm-gone", r"model: There is no packaged model 'llm-gone'"),
    ],
)
def test_what_is_asked_of_a_run_that_begins_is_not_asked_of_one_that_is_there(
    override: str, told: str, tmp_path: Path
) -> None:
    context = at(tmp_path, override)
    said = {"science": context.science.identity(), "science_digest": context.science.digest}
    path = context.store.root / "runs" / NAME / "run.json"
    path.write_text(json.dumps({**RUN["run.json"], **said}))
    check(context.science)
    check_run(context, NAME)
    with opened(context, NAME) as run:
        assert run.uid == RUN["run.json"]["uid"]
    with pytest.raises(ValueError, match=told):
        check_run(context, f"{NAME}-2")


def test_dvc_has_nothing_to_do_for_a_setting_that_a_release_adds_within_a_section(
    context: ExperimentContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_config(context, [])
    told = strict_yaml.settings(tmp_path / "results/tiny/config.yaml")
    settings = {"night": None, "fork": None, "promotion": AS_BEFORE, "nano": {"atoms": []}}
    settings |= {"tasks": {}, "code_files": [], "code": {}}
    settings["code"] = {stage: {} for stage in COUNTED}
    added = {**settings, "quantized": "no"}
    assert told == {**RUN["run.json"]["science"], **added, "stages": keys.VERSIONS, "overrides": []}


def test_a_stage_that_a_release_adds_stops_no_run_of_the_release_before(
    context: ExperimentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "VERSIONS", {**keys.VERSIONS, "later": 1})
    with opened(context, NAME) as run:
        assert run.uid == RUN["run.json"]["uid"]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("update.schedule.warmup=3", r"update.schedule.warmup: 0 -> 3"),
        ("algorithm.delay=2", r"algorithm.delay: 0 -> 2"),
        ("quantized=int8", r"quantized: 'no' -> 'int8'"),
    ],
)
@pytest.mark.usefixtures("upgraded")
def test_a_run_of_the_release_before_is_refused_with_another_value_of_an_added_setting(
    override: str, told: str, tmp_path: Path
) -> None:
    with (
        pytest.raises(ValueError, match=rf"other settings:\n  {told}\nGive"),
        opened(at(tmp_path, override), NAME),
    ):
        pass


@pytest.mark.usefixtures("upgraded")
def test_a_sign_that_a_release_adds_stops_no_run_and_may_be_taken_away(tmp_path: Path) -> None:
    with opened(at(tmp_path, "health.later=null"), NAME) as run:
        assert run.record["science"]["health"] == {
            **RUN["run.json"]["science"]["health"],
            "later": None,
        }


class Faster(LaterUpdate):
    ema: Annotated[float | None, Added(before=None)] = 0.99


class LatestScience(LaterScience):
    update: Faster = Faster()


def test_where_a_release_changes_a_default_a_run_with_the_old_one_is_told_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, LatestScience)
    monkeypatch.chdir(tmp_path)  # an experiment elsewhere is not read, its name may be a stranger's
    context = at(tmp_path)
    with pytest.raises(ValueError, match=r"update.ema: None -> 0.99"), opened(context, NAME):
        pass
    path = str(tmp_path / "tiny.yaml")
    record = RUN["run.json"] | {"origin": {"steps": path}}
    assert continuing(context.store, NAME, record).startswith(
        f"agentfly train {path} update.ema=null --run {NAME}"
    )
    with opened(at(tmp_path, *recorded_changes(context, NAME)), NAME) as run:
        assert run.record["science"] == RUN["run.json"]["science"]
