"""Selection of the evaluated policy and its datasets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.runs.summary import Evaluation
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from tests.support import experiments


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """An experiment with two runs, demo and the default one, each with a start and two policies."""
    data = {"use": "tests.support.problems:clean", "train": 8, "test": 4}
    values = {
        "model": "nano:calculator",
        "data": data,
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "steps": 2,
    }
    settings = Settings.model_validate(values)
    made = Experiment.of(
        "tiny", settings, {}, Site(), Store.at(str(tmp_path / "store"), tmp_path / "cache")
    )
    for name in ("demo", made.run_name("", False)):
        made.store.write_json(
            f"runs/{name}/start.json", {"uri": "artifacts/warm_start", "digest": "9f2c"}
        )
        for step in (1, 2):
            with made.store.publish(
                ArtifactKey(f"runs/{name}/steps/{step:06d}/policy", "update", f"{name} {step}", {})
            ):
                pass
    return made


def test_the_test_split_is_played_before_further_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = {"use": "tests.support.problems:clean", "test": 2, "seed": 9}
    here = experiments.experiment(tmp_path, evaluate={"datasets": {"hard": hard}})
    played: list[tuple[int, str, str]] = []

    def on_split(here: Evaluator, _: Any, policy: Artifact, split: str, step: int) -> Evaluation:
        played.append((here.experiment.settings.data.test, here.data.digest, split))
        return Evaluation(policy.digest, split, 0.5, (0.0, 1.0), {}, 1.0, step)

    monkeypatch.setattr(Evaluator, "on_split", on_split)
    there = here.on(here.settings.on(here.settings.evaluate.datasets["hard"]))
    policy, own, other = (Pointer("", name) for name in ("9f2c", "da7a", "4a6d"))
    services: Any = None
    further = {"hard": Evaluator(Stages(), there, other)}
    evaluation = Evaluator(Stages(), here, own, further).on_test(services, policy, 3)
    assert played == [(4, "da7a", "test"), (2, "4a6d", "test")]
    assert (evaluation.split, evaluation.datasets["hard"].split) == ("test", "hard")
    assert there.settings.data.seed == 9


def policy_named(experiment: Experiment, reference: str) -> Pointer:
    return inputs.policy_named(experiment, reference, inputs.base_model)


def test_the_model_of_a_chat_service_is_its_identity(
    experiment: Experiment,
) -> None:
    def chosen(**settings: Any) -> Pointer:
        endpoint = {"url": "http://127.0.0.1:9/v1", "model": "wise", **settings}
        site = Site.model_validate({"endpoints": {"sage": endpoint}})
        return policy_named(replace(experiment, site=site), "endpoint:sage")

    assert chosen() == chosen(max_requests=3, timeout=1.0)
    assert chosen().digest != chosen(model="wiser").digest
    files = {path.name for path in experiment.store.open(chosen()).iterdir()}
    assert {"endpoint.json", "tokenizer.json"} <= files
    assert "model.safetensors" not in files


def test_a_policy_is_named_by_its_run_and_step(experiment: Experiment) -> None:
    assert policy_named(experiment, "run:demo").uri == "runs/demo/steps/000002/policy"
    assert policy_named(experiment, "run:demo@1").uri == "runs/demo/steps/000001/policy"
    assert policy_named(experiment, "demo") == policy_named(experiment, "run:demo")
    assert policy_named(experiment, "demo@1") == policy_named(experiment, "run:demo@1")
    assert policy_named(experiment, "run:demo@0") == Pointer("artifacts/warm_start", "9f2c")
    assert (
        policy_named(experiment, "").uri
        == f"runs/{experiment.run_name('', False)}/steps/000002/policy"
    )


def test_without_an_own_policy_the_newest_run_with_one_is_named(experiment: Experiment) -> None:
    edited = experiment.on(experiment.settings.model_copy(update={"steps": 3}))
    own = edited.run_name("", False)
    names = ["old", "demo", own]  # from the oldest to the newest
    for time, name in enumerate(names):
        record = {"name": name, "experiment": "tiny", "created_ms": time}
        experiment.store.write_json(f"runs/{name}/run.json", {**record, "settings": {"steps": 2}})
    with pytest.raises(ValueError, match=r"has no policy .* --policy run:demo$") as refusal:
        policy_named(edited, "")
    assert f"the run {own!r}, which" in str(refusal.value)
    with pytest.raises(ValueError, match=rf"The run {own!r} has [^?]*$"):
        policy_named(edited, f"run:{own}")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\0", b"[]", b'{"uri": "runs/demo"}', b'{"uri": 1, "digest": "77b0"}']
)
def test_a_file_that_is_not_a_pointer_is_refused_by_its_name(
    experiment: Experiment, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "policy.json").write_bytes(content)
    with pytest.raises(Damaged, match=rf"^{tmp_path}/policy\.json "):
        policy_named(experiment, str(tmp_path / "policy.json"))


def test_a_pointer_that_dvc_keeps_names_a_policy(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(
        json.dumps({"uri": "runs/demo/steps/000001/policy", "digest": "77b0"})
    )
    assert policy_named(experiment, f"{tmp_path}/policy.json") == Pointer(
        "runs/demo/steps/000001/policy", "77b0"
    )


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("dmo", r"'dmo' is not a policy. Did you mean 'demo'\? A policy is base .* run:NAME"),
        ("oracle", "'oracle', which is a function; .* --split test --policy oracle`"),
        ("says:hello", "'says:hello', which is a function"),
        ("results/demo/policy.json", "The policy file 'results/demo/policy.json' does"),
        (
            "run:demo@last",
            "expected run:NAME .its last policy. or run:NAME@STEP .0 is the policy at its start",
        ),
        ("run:demo@", "expected run:NAME .its last policy. or run:NAME@STEP"),
        (
            "run:demo@7",
            r"'demo' has no policy of step 7 in .*; the run's "
            r"last policy is runs/demo/steps/000002/policy",
        ),
        (
            "run:dmo@1",
            "The run 'dmo' has published no policy in .* store: demo, tiny-",
        ),
        ("run:dmo", "The run 'dmo' has published no policy in "),
    ],
)
def test_a_missing_policy_is_refused(reference: str, message: str, experiment: Experiment) -> None:
    with pytest.raises(ValueError, match=message):
        policy_named(experiment, reference)
