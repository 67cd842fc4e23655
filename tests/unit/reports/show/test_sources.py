"""Locating the episodes of an evaluation, a warm start and a play."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import PlayLayout
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.records.parquet import write_scores, write_trajectories
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.reports.show.sources import read, reference
from agentfly_core.runs.episodes import Episodes
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from tests.support.experiments import experiment
from tests.support.stored_run import GOOD, TOKENIZER, WRONG

MODEL = Pointer("artifacts/model/ab", "77b0")
DEMONSTRATED = {"demonstrations": "tests.support.problems:script", "episodes": 8}


def publish(store: Store, target: ArtifactKey, *played: Trajectory) -> Artifact:
    """Publish episodes, or a policy if there are none."""
    with store.publish(target) as folder:
        if played:
            write_trajectories(folder / "trajectories.parquet", played)
        else:
            (folder / "tokenizer.json").write_text(TOKENIZER.to_str())
            (folder / "weights").write_text(target.uri)
    return store.artifact(target.uri)


def score(store: Store, target: ArtifactKey, *played: Trajectory) -> None:
    with store.publish(target) as folder:
        write_scores(folder / "scores.parquet", [Scored(t.id, {}, (), 1.0) for t in played])


def evaluate(
    store: Store,
    settings: Settings,
    policy: Artifact,
    data: Artifact,
    split: str,
    *played: Trajectory,
) -> None:
    shard = publish(store, StageKeys(settings).evaluation(policy, data, split, 0, {}), *played)
    score(store, StageKeys(settings).scored([shard]), *played)


@pytest.fixture
def demo(tmp_path: Path) -> Experiment:
    """The run `demo` with demonstrations. The start and step 2 are evaluated on test, steps 1 and
    2 on validation.
    """
    demo = experiment(tmp_path, warm_start=DEMONSTRATED, evaluate={"every": 1})
    store = demo.store
    data = Pointer("", "da7a")
    shown = publish(store, StageKeys(demo.settings).demonstrations(MODEL, data, {}), GOOD)
    start = publish(store, StageKeys(demo.settings).warm_start(MODEL, shown, 1))
    with opened(demo, "demo") as run:
        run.remember_data(data, "none")
        run.remember_start(start, {"warm_start": [shown, start]})
    policies = [start]
    for step in (1, 2):
        where = f"runs/demo/steps/{step:06d}/policy"
        policies.append(publish(store, ArtifactKey(where, "update", "key", {})))
        evaluate(store, demo.settings, policies[step], data, "validation", GOOD)
    evaluate(store, demo.settings, start, data, "test", WRONG)
    evaluate(store, demo.settings, policies[2], data, "test", WRONG, GOOD)
    return demo


def summary_of(stored: Episodes) -> tuple[str, str, Sequence[str]]:
    return stored.reference, stored.title, [trajectory.id for trajectory, _ in stored.pairs]


def test_a_step_has_the_evaluation_of_its_policy(demo: Experiment) -> None:
    step, start = (
        read(demo.store, reference(text), "test", False) for text in ("demo@2", "demo@0")
    )
    assert summary_of(step) == (
        "run:demo@2",
        "demo, evaluation of step 2 on test",
        ["chain-0", "chain-1"],
    )
    assert summary_of(start) == ("run:demo@0", "demo, evaluation of step 0 on test", ["chain-1"])
    assert [scored.reward for _, scored in step.pairs if scored] == [1.0, 1.0]
    assert step.pieces(WRONG)[-1].text.startswith("It is 9")


def test_the_last_evaluated_step_is_the_default(demo: Experiment) -> None:
    assert read(demo.store, reference("demo"), "test", False).reference == "run:demo@2"


def test_a_damaged_policy_is_not_replaced_by_an_earlier_one(
    demo: Experiment,
) -> None:
    damaged = demo.store.root / "runs/demo/steps/000002/policy/MANIFEST.json"
    damaged.write_bytes(bytes(300))
    with pytest.raises(Damaged, match=f"^{damaged} is damaged"):
        read(demo.store, reference("demo"), "test", False)


def test_a_fork_without_steps_has_the_evaluation_of_its_start(
    demo: Experiment,
) -> None:
    place = demo.store.root.parent
    fork = {"run": "demo", "step": 2, "optimizer_state": "fresh"}
    made = experiment(place, steps=3, fork=fork, warm_start=DEMONSTRATED, evaluate={"every": 1})
    with opened(replace(made, store=demo.store), "new") as run:
        run.remember_data(Pointer("", "da7a"), "none")
        run.remember_start(policy_of(demo.store, "demo", 2))
    episodes = read(demo.store, reference("new"), "test", False)
    assert summary_of(episodes)[:2] == ("run:new@2", "new, evaluation of step 2 on test")
    there = read(demo.store, reference("new@1"), "validation", False)
    assert summary_of(there)[1] == "new, evaluation of step 1 on validation"


def test_an_evaluation_on_a_further_dataset_is_read_by_its_name(tmp_path: Path) -> None:
    hard = {"use": "tests.support.problems:clean", "test": 1}
    further = experiment(tmp_path, evaluate={"datasets": {"hard": hard}})
    there = further.settings.on(further.settings.evaluate.datasets["hard"])
    start = publish(further.store, ArtifactKey("artifacts/model/ab", "model", "key", {}))
    data = publish(further.store, StageKeys(there).prepare())
    evaluate(further.store, there, start, data, "test", WRONG)
    with opened(further, "demo") as run:
        run.remember_data(Pointer("", "da7a"), "none")
        run.remember_start(start)
    stored = read(further.store, reference("demo@0"), "hard", False)
    assert summary_of(stored)[1:] == ("demo, evaluation of step 0 on hard", ["chain-1"])


def test_an_unevaluated_step_is_refused_with_evaluated_ones(
    demo: Experiment,
) -> None:
    with pytest.raises(ValueError, match=r"on 'test'.* Evaluated steps: 0, 2"):
        read(demo.store, reference("demo@1"), "test", False)
    with pytest.raises(ValueError, match=r"on 'validation'.* Evaluated steps: 1 to 2"):
        read(demo.store, reference("demo@0"), "validation", False)


def test_demonstrations_are_those_of_the_start(demo: Experiment) -> None:
    stored = read(demo.store, reference("demo"), "", True)
    assert summary_of(stored)[1:] == ("demo, demonstrations of the warm start", ["chain-0"])
    assert stored.pairs[0][1] is None


def test_missing_episodes_of_a_run_are_refused_with_a_reason(demo: Experiment) -> None:
    store = demo.store
    with pytest.raises(ValueError, match=r"no run 'dmo'.*Did you mean 'demo'"):
        read(store, reference("dmo"), "test", False)
    with pytest.raises(ValueError, match="Step 0 of demo"):
        read(store, reference("demo@0"), "", False)
    with opened(demo, "other") as run:
        run.remember_data(Pointer("", "da7a"), "none")
    with pytest.raises(ValueError, match="so no demonstrations"):
        read(store, reference("other"), "", True)
    with pytest.raises(ValueError, match="Evaluated steps: none"):
        read(store, reference("other"), "test", False)


def test_played_episodes_are_read_by_their_name(demo: Experiment) -> None:
    layout = PlayLayout("tiny-1")
    publish(demo.store, ArtifactKey(layout.rollout(0), "play", "key", {}), GOOD)
    publish(demo.store, ArtifactKey(layout.tokenizer, "play", "key", {}))
    score(demo.store, ArtifactKey(layout.scored, "score", "key", {}), GOOD)
    demo.store.write_json(layout.record, {"policy": "oracle", "split": "train"})
    stored = read(demo.store, reference("play:tiny-1"), "", False)
    assert summary_of(stored) == ("play:tiny-1", "play:tiny-1, oracle on train", ["chain-0"])
    assert stored.pieces(GOOD)[-1].text == "The sum is 99.<|im_end|>"
    with pytest.raises(ValueError, match="Did you mean 'tiny-1'"):
        read(demo.store, reference("play:tiny-2"), "", False)
    with pytest.raises(ValueError, match="evaluations nor demonstrations"):
        read(demo.store, reference("play:tiny-1"), "test", False)


def test_a_play_with_a_damaged_shard_is_refused(
    demo: Experiment,
) -> None:
    layout, store = PlayLayout("tiny-1"), demo.store
    for shard, episode in enumerate((GOOD, WRONG)):
        publish(store, ArtifactKey(layout.rollout(shard), "play", "key", {}), episode)
    publish(store, ArtifactKey(layout.tokenizer, "play", "key", {}))
    store.write_json(layout.record, {"policy": "oracle", "split": "train"})
    assert len(read(store, reference("play:tiny-1"), "", False).pairs) == 2

    damaged = store.root / layout.rollout(1) / "MANIFEST.json"
    damaged.write_bytes(bytes(300))
    with pytest.raises(Damaged) as refused:
        read(store, reference("play:tiny-1"), "", False)
    assert str(refused.value).startswith(f"{damaged} is damaged")
    assert str(refused.value).endswith(f" Restore the file, or remove {store.uri}/plays/tiny-1.")


def test_an_interrupted_play_is_not_suggested(
    demo: Experiment,
) -> None:
    demo.store.write_json(PlayLayout("tiny-1").record, {"policy": "oracle", "split": "train"})
    message = r"no played episodes with the name 'tiny-1'\. There are none\.$"
    with pytest.raises(ValueError, match=message):
        read(demo.store, reference("play:tiny-1"), "", False)
