"""Runs that start from the policy of another run, or stay near one."""

import pytest

from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_policies import Parent, require_same_tokens
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey, Pointer
from tests.support.experiments import experiment


@pytest.fixture()
def base(tmp_path):
    """A store with the run `base`: its start and two steps, the first without weights."""
    store = experiment(tmp_path).store
    for uri in (
        "artifacts/model/1f2e",
        *(f"runs/base/steps/{step:06d}/policy" for step in (1, 2, 3)),
    ):
        with store.publish(ArtifactKey(uri, "update", uri, {})) as folder:
            (folder / "model.safetensors").write_text(uri)
    start = store.artifact("artifacts/model/1f2e")
    store.write_json("runs/base/start.json", {"uri": start.uri, "digest": start.digest})
    store.strip("runs/base/steps/000001/policy", "*.safetensors")
    return store


@pytest.mark.parametrize(
    ("model", "uri"),
    [
        ("run:base", "runs/base/steps/000003/policy"),
        ("run:base@2", "runs/base/steps/000002/policy"),
        ("run:base@0", "artifacts/model/1f2e"),
    ],
)
def test_a_run_starts_from_the_policy_of_its_model_setting(tmp_path, base, model, uri):
    with opened(experiment(tmp_path, model=model), "demo") as run:
        assert run.parent == Parent("base", base.artifact(uri))
        assert run.record["parent"]["digest"] == base.artifact(uri).digest


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "run:base@9",
            "The run 'base' has no policy of step 9 in .*; the run's last policy is "
            "runs/base/steps/000003/policy",
        ),
        (
            "run:base@1",
            "model: .*run:base@1 .* Name a step that was evaluated",
        ),
        (
            "run:base@last",
            "model: got 'run:base@last', expected run:NAME .its last policy. or run:NAME@STEP",
        ),
        ("run:", "model: got 'run:', expected run:NAME"),
        ("run:bse@2", "The run 'bse' has published no policy in .* Runs in this store: base"),
        ("run:bse", "The run 'bse' has published no policy in .* Runs in this store: base"),
    ],
)
def test_a_run_with_a_missing_start_is_refused_without_a_trace(tmp_path, base, model, message):
    with (
        pytest.raises(ValueError, match=message),
        opened(experiment(tmp_path, model=model), "demo"),
    ):
        pass
    assert [path.name for path in (base.root / "runs").iterdir()] == ["base"]


def near_reference(tmp_path, reference):
    kl = {"use": "loss", "reference": reference}
    return experiment(tmp_path, algorithm={"use": "agentfly_core.algorithms.grpo:GRPO", "kl": kl})


def test_the_reference_policy_is_recorded_by_its_digest(tmp_path):
    here = near_reference(tmp_path, "run:base@1")
    with (
        pytest.raises(ValueError, match="'base' has published no"),
        opened(here, "demo"),
    ):
        pass
    with here.store.publish(
        ArtifactKey("runs/base/steps/000001/policy", "update", "1", {})
    ) as folder:
        (folder / "config.json").write_text("{}")
    base = here.store.artifact("runs/base/steps/000001/policy")
    with opened(here, "demo") as run:
        assert run.reference == base
    with opened(near_reference(tmp_path, "start"), "other") as run:
        assert run.reference is None


def test_a_reference_policy_without_weights_is_refused(tmp_path):
    here = near_reference(tmp_path, "run:base@1")
    with here.store.publish(
        ArtifactKey("runs/base/steps/000001/policy", "update", "1", {})
    ) as folder:
        (folder / "model.safetensors").write_text("weights")
    here.store.strip("runs/base/steps/000001/policy", "*.safetensors")
    with (
        pytest.raises(ValueError, match=r"The weights of run:base@1 were removed"),
        opened(here, "demo"),
    ):
        pass


def test_policies_with_different_tokenizers_are_refused(tmp_path):
    here = experiment(tmp_path)
    made = []
    for name, text in (
        ("one", '{"vocab": 1}'),
        ("same", '{"vocab": 1}'),
        ("other", '{"vocab": 2}'),
        ("none", ""),
    ):
        with here.store.publish(
            ArtifactKey(f"artifacts/model/{name}", "model", name, {})
        ) as folder:
            (folder / ("tokenizer.json" if text else "config.json")).write_text(text or "{}")
        made.append(here.store.artifact(f"artifacts/model/{name}"))
    one, same, other, none = made
    require_same_tokens(here.store, "run:base@2", same, one)
    for policy in (other, none):
        with pytest.raises(ValueError, match=r"run:base@2: .* the same tokenizer.json"):
            require_same_tokens(here.store, "run:base@2", policy, one)


def test_another_reference_policy_is_another_update(tmp_path):
    scored, first, second = (
        Pointer(f"runs/base/{digest}", digest) for digest in ("9f2c", "77b0", "1d3e")
    )
    settings = near_reference(tmp_path, "run:base@1").settings
    updates = [
        StageKeys(settings).policy("demo", scored, scored, 1, named).key
        for named in (None, first, second)
    ]
    assert len({*updates}) == 3
