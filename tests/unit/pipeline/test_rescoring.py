"""Rescoring stored episodes with other rewards."""

import importlib
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.config.credentials import SecretGiven
from agentfly_core.experiment import own_modules
from agentfly_core.pipeline.rescoring import RescoredStep, new_reward, new_rewards, rescored
from agentfly_core.records.parquet import EPISODES, write_scores, write_trajectories
from agentfly_core.records.trajectory import Unscored
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.testing.trajectories import trajectory, turn
from flows.__main__ import main
from tests.support.experiments import experiment
from tests.support.stored_run import SCORES, stored_run

REWARDS = """
import others_NAME
from agentfly_core import Environment, ServiceFailure, Trajectory, reward

class Stock(Environment):
    pass

@reward
def long(trajectory: Trajectory) -> float:
    open("calls", "a").write("x")
    return len(trajectory.turns)

@reward
class AtMost:
    def __init__(self, turns: int = 1) -> None:
        self.turns = turns

    def __call__(self, trajectory: Trajectory) -> float:
        return float(len(trajectory.turns) <= self.turns)

@reward
def judge(trajectory: Trajectory) -> float:
    if not open("judge").read():
        raise ServiceFailure("the judge is down")
    return 1.0

class Brief:
    def __call__(self, trajectory: Trajectory) -> float:
        return others_NAME.VALUE

brief = reward(Brief())

@reward
def stock(shop: Stock) -> float:
    return 1.0
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The run `demo` with a scored step 6 in the working directory, and rewards."""
    demo = stored_run(tmp_path)
    names = ("rollout-000", "rollout-001")
    digests = {name: demo.artifact(f"runs/demo/steps/000006/{name}").digest for name in names}
    demo.remove("runs/demo/steps/000006/scored")
    with demo.publish(ArtifactKey("runs/demo/steps/000006/scored", "score", "k", digests)) as to:
        write_scores(to / "scores.parquet", SCORES)
    settings = experiment(tmp_path).settings.model_dump(mode="json")
    demo.write_json("runs/demo/run.json", {"settings": settings})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / f"rewards_{tmp_path.name}.py").write_text(REWARDS.replace("NAME", tmp_path.name))
    (tmp_path / f"others_{tmp_path.name}.py").write_text("VALUE = 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return demo


@pytest.fixture
def module(tmp_path: Path) -> str:
    return f"rewards_{tmp_path.name}"


def rescored_step(store: Store, *rewards: str) -> RescoredStep:
    (step,) = rescored(store, "demo", 6, [new_reward(text) for text in rewards])
    return step


def edit(module: str, text: str) -> None:
    """Replace the text of a module, as the next process imports it."""
    Path(f"{module}.py").write_text(text)
    for name in [name for name in sys.modules if name.startswith(("rewards_", "others_"))]:
        del sys.modules[name]
    own_modules._package.cache_clear()
    importlib.invalidate_caches()


def new(step: RescoredStep) -> list[float | Unscored]:
    return [new.reward for _, _, new in step.episodes]


def test_stored_episodes_get_new_rewards_and_failed_ones_none(store: Store, module: str) -> None:
    *scored, failed = new(rescored_step(store, f"{module}:long"))
    assert scored == [2.0, 1.0, 1.0]
    assert isinstance(failed, Unscored)


def test_rewards_have_weights_and_settings(store: Store, module: str) -> None:
    step = rescored_step(store, f"{module}:long=0.5", f"{module}:AtMost={{weight: 10, turns: 1}}")
    assert new(step)[:3] == [1.0, 10.5, 10.5]


def test_stored_scores_are_reused_until_a_reward_changes(store: Store, module: str) -> None:
    first, second = rescored_step(store, f"{module}:long"), rescored_step(store, f"{module}:long")
    assert first.artifact and first.artifact == second.artifact
    assert Path("calls").read_text() == "xxx"
    edit(module, Path(f"{module}.py").read_text() + "\nMORE = 1\n")
    third = rescored_step(store, f"{module}:long").artifact
    assert third and third.uri != first.artifact.uri
    assert store.holds(first.artifact.uri)


def test_an_edit_of_an_imported_module_scores_again(store: Store, module: str) -> None:
    assert new(rescored_step(store, f"{module}:brief"))[:3] == [1.0, 1.0, 1.0]
    edit(module.replace("rewards", "others"), "VALUE = 0.25\n")
    assert new(rescored_step(store, f"{module}:brief"))[:3] == [0.25, 0.25, 0.25]


def test_failed_judge_scores_are_not_stored_and_retried(
    store: Store, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("judge").write_text("")
    down = rescored_step(store, f"{module}:judge")
    assert down.artifact is None
    assert all(isinstance(reward, Unscored) for reward in new(down))
    assert main(["score", "demo@6", "--reward", f"{module}:judge"]) == 0
    message = "No new reward for 3 episodes: judge: ServiceFailure: the judge is down."
    assert message in capsys.readouterr().out
    Path("judge").write_text("up")
    back = rescored_step(store, f"{module}:judge")
    assert back.artifact is not None
    assert new(back)[:3] == [1.0, 1.0, 1.0]


def test_a_reward_that_is_named_twice_is_refused(store: Store, module: str) -> None:
    with pytest.raises(ValueError, match=f"--reward {module}:long .*twice"):
        new_rewards([f"{module}:long", f"{module}:long=2"])


def test_a_reward_of_an_environment_is_refused_with_a_reason(store: Store, module: str) -> None:
    with pytest.raises(ValueError, match=r":stock .* Stock, "):
        new_reward(f"{module}:stock")
    with pytest.raises(ValueError, match="got 'much', expected the reward's weight"):
        new_reward(f"{module}:long=much")
    with pytest.raises(ValueError, match="expected Reward"):
        new_reward(f"{module}:Stock")


def test_a_secret_in_the_settings_of_a_reward_is_refused(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SecretGiven, match=rf"^--reward: {module}:AtMost.api_key has a name") as no:
        new_reward(f"{module}:AtMost={{api_key: sk-0123456789}}")
    assert "sk-" not in str(no.value)
    monkeypatch.setenv("JUDGE_TOKEN", "0123456789abcdef")
    with pytest.raises(SecretGiven, match="environment variable JUDGE_TOK"):
        new_reward(f"{module}:AtMost={{name: 0123456789abcdef}}")


def test_an_unscored_step_is_refused_with_the_scored_ones(store: Store, module: str) -> None:
    with pytest.raises(ValueError, match=r"scores of step 7 of 'demo'.* steps 6"):
        [*rescored(store, "demo", 7, [new_reward(f"{module}:long")])]
    with pytest.raises(ValueError, match="Did you mean 'demo'"):
        [*rescored(store, "dmo", None, [new_reward(f"{module}:long")])]


def test_the_command_shows_the_largest_differences_of_rewards(
    store: Store, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["score", "demo@6", "--reward", f"{module}:AtMost"]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "6         3     0.500     0.667  -0.82" in table
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["all"]["episodes"], document["all"]["old"]) == (3, 0.5)
    first = document["furthest"][0]
    assert (first["chain"], first["old"], first["new"]) == (0, 1.0, 0.0)
    assert main(shlex.split(first["command"])[1:]) == 0
    assert "chain 0; reward 1 (exact 1)" in capsys.readouterr().out


def test_a_program_without_an_answer_is_scored_by_its_own_speaker(
    store: Store, module: str, tmp_path: Path
) -> None:
    """Its planner spoke first and once, the program itself twice."""
    said = turn([1], {2: -0.5})
    planned = trajectory(said, name="planner", agent="planner", episode="e0")
    later = [replace(said, call=call) for call in (1, 2)]
    ran = trajectory(*later, name="program", agent="program", episode="e0")
    where = "runs/asked/steps/000001"
    with store.publish(ArtifactKey(f"{where}/rollout-000", "rollout", "k", {})) as folder:
        write_trajectories(folder / EPISODES, [planned, ran])
    inputs = {"rollout-000": store.artifact(f"{where}/rollout-000").digest}
    with store.publish(ArtifactKey(f"{where}/scored", "score", "k", inputs)) as folder:
        write_scores(
            folder / "scores.parquet",
            [replace(SCORES[0], trajectory_id=one.id) for one in (planned, ran)],
        )
    agent = {"use": "program", "command": ["python", "my_agent.py"]}
    settings = experiment(tmp_path, agent=agent).settings.model_dump(mode="json")
    store.write_json("runs/asked/run.json", {"settings": settings})
    (step,) = rescored(store, "asked", 1, [new_reward(f"{module}:long")])
    assert new(step) == [2.0, 2.0]
