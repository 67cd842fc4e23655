"""A policy plays with the memory of its own step, wherever it is played."""

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from agentfly_core.config.loading import read
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.memory import FILES, memory_folder, memory_of
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.experiment.user_code import code_of
from agentfly_core.pipeline.export import export
from agentfly_core.pipeline.inputs import base_model
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.retention import retain
from agentfly_core.pipeline.stages.memory import remember
from agentfly_core.pipeline.stages.rollout import RoundEpisodes, rollout
from agentfly_core.pipeline.workers.job import RolloutJob
from agentfly_core.records.parquet import EPISODES, SCORES, write_scores, write_trajectories
from agentfly_core.records.timing import write_timings
from agentfly_core.records.trajectory import Ending, Problem, Role, Scored
from agentfly_core.rollout.episode import Episode
from agentfly_core.runs.run import Run, opened
from agentfly_core.runs.sharing import share
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.store.store import Store
from agentfly_core.testing import play, rollout_spec, trajectory
from flows.nights import flow_work
from tests.support.experiments import TINY, experiment
from tests.support.remembering import REMEMBER, notes_in

MODEL, DATA, MEMORY = (Pointer(f"artifacts/{name}", name) for name in ("model", "data", "memory"))
AGENT = {"remembers": REMEMBER}
ROLLOUT = {"problems": 4}
REWARDS = {"first": 1.0, "second": 0.25, "other": 0.5}


def published(store: Store, target: ArtifactKey, files: Mapping[str, str] = {}) -> Artifact:
    with store.publish(target) as folder, measuring(folder):
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
    return store.artifact(target.uri)


def scored(run: Run, step: int) -> Artifact:
    """Publish a step with two shards, whose episodes are not in the order of problems."""
    layout = run.layout.step(step)
    shards: list[list[tuple[str, str, int, Role]]] = [
        [("other", "b", 0, "train"), ("second", "a", 1, "train")],
        [("first", "a", 0, "train"), ("greedy", "a", 2, "baseline")],
    ]
    pointers = []
    for number, shard in enumerate(shards):
        target = ArtifactKey(layout.rollout(number), "rollout", f"{step}", {})
        with run.store.publish(target) as folder:
            write_trajectories(
                folder / EPISODES,
                [
                    trajectory(name=name, problem=Problem(of, "?"), chain=chain, role=role)
                    for name, of, chain, role in shard
                ],
            )
        pointers.append(run.store.artifact(target.uri))
    target = StageKeys(run.settings).scored(pointers)
    with run.store.publish(target) as folder:
        rewards = {**REWARDS, "greedy": 9.0}
        write_scores(folder / SCORES, [Scored(name, {}, (), rewards[name]) for name in rewards])
    return run.store.artifact(target.uri)


def step(run: Run, number: int) -> Artifact:
    """Publish a step's memory and policy."""
    before, scores = policy_of(run.store, run.name, number - 1), scored(run, number)
    memory = remember(run, REMEMBER, before, scores, number)
    target = StageKeys(run.settings).policy(run.name, before, scores, number, None, memory)
    return published(run.store, target, {"model.safetensors": target.key})


@pytest.fixture
def done(tmp_path: Path) -> Experiment:
    """An experiment and its run `mine`, which has done two steps."""
    place = experiment(tmp_path, agent=AGENT, rollout=ROLLOUT)
    with opened(place, "mine") as run:
        model = ArtifactKey("artifacts/model/tiny", "model", "0", {})
        run.remember_start(published(run.store, model))
        step(run, 1)
        step(run, 2)
    return place


def remembered(store: Store, policy: Pointer) -> int:
    """The number of notes of a policy's memory."""
    memory = memory_of(store, policy)
    return len(notes_in(memory_folder(store, memory))) if memory else 0


def test_remember_gets_training_episodes_by_problem_and_chain(done: Experiment) -> None:
    memory = memory_of(done.store, policy_of(done.store, "mine", 2))
    assert memory
    first, second = notes_in(memory_folder(done.store, memory))
    assert first["rewards"] == [["a", 0, 1.0], ["a", 1, 0.25], ["b", 0, 0.5]]
    assert first["seed"] != second["seed"]


def test_a_policy_of_a_run_names_its_memory(done: Experiment) -> None:
    store, layout = done.store, RunLayout("mine")
    for number in (1, 2):
        inputs = store.artifact(layout.step(number).policy).manifest["inputs"]
        assert inputs["memory"] == store.artifact(layout.step(number).memory).digest
    assert [remembered(store, policy_of(store, "mine", n)) for n in (0, 1, 2)] == [0, 1, 2]


def test_a_night_starts_with_the_memory_of_its_champion(done: Experiment) -> None:
    night = done.on(done.settings.model_copy(update={"model": "run:mine@1"}))
    with opened(night, "nightly") as run:
        run.remember_start(base_model(night, run.parent))
        assert remembered(run.store, run.start) == 1
        assert remembered(run.store, step(run, 1)) == 2


class Recording:
    """A player that stores the jobs and publishes episodes without replies."""

    def __init__(self, store: Store) -> None:
        self.store, self.jobs = store, list[RolloutJob]()

    def do(self, job: RolloutJob) -> Artifact:
        self.jobs.append(job)
        episodes = [
            trajectory(name=one.id, problem=one.problem, chain=one.chain, role=one.role)
            for one in job.episodes
        ]
        with self.store.publish(job.target) as folder, measuring(folder):
            write_trajectories(folder / EPISODES, episodes)
            write_timings(folder, [])
        return self.store.artifact(job.target.uri)

    def notes(self) -> list[int]:
        """The number of notes in the memory of each job."""
        memories = [job.memory for job in self.jobs]
        return [len(notes_in(memory_folder(self.store, one))) for one in memories if one]


def test_a_fork_plays_with_the_memory_of_its_first_policy(done: Experiment, tmp_path: Path) -> None:
    fork = {"run": "mine", "step": 1}
    there = done.on(experiment(tmp_path, agent=AGENT, rollout=ROLLOUT, fork=fork).settings)
    data, player = Stages().prepare(there), Recording(there.store)
    with opened(there, "forked") as run:
        assert run.parent
        run.remember_start(run.parent.policy)
        episodes = RoundEpisodes(run, data, there.schedule.first_round(2, False))
        rollout(player, run.start, 1, episodes, 0)  # type: ignore[arg-type]
        assert (player.notes(), remembered(run.store, step(run, 2))) == ([1], 2)


def test_a_promotion_plays_each_policy_with_its_own_memory(
    done: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Recording(done.store)
    monkeypatch.setattr(flow_work, "TASKS", Stages())
    monkeypatch.setattr(flow_work, "rollout_services", lambda *_: nullcontext(player))
    champion, challenger = (policy_of(done.store, "mine", number) for number in (1, 2))
    flow_work.Match(done, champion, challenger, "night", tmp_path / "logs").played()
    assert [job.policy for job in player.jobs] == [champion, challenger]
    assert player.notes() == [1, 2]


def test_episodes_name_the_memory_only_where_agents_remember(done: Experiment) -> None:
    policy, keys = policy_of(done.store, "mine", 2), StageKeys(done.settings)
    memory = done.memory_of(policy)
    target = keys.evaluation(policy, DATA, "test", 0, {}, memory)
    assert memory and target.inputs["memory"] == memory.digest
    agent = done.settings.agent.model_copy(update={"remembers": None})
    assert done.on(done.settings.model_copy(update={"agent": agent})).memory_of(policy) is None


def test_keys_contain_the_memory_and_are_as_before_without(tmp_path: Path) -> None:
    settings = experiment(tmp_path).settings
    assert "remembers" not in settings.model_dump(mode="json")["agent"]
    assert "weights" not in settings.model_dump(mode="json")["update"]
    keys = StageKeys(settings)
    for with_memory, without in (
        (keys.demonstrations(MODEL, DATA, {}, MEMORY), keys.demonstrations(MODEL, DATA, {})),
        (keys.policy("x", MODEL, DATA, 1, None, MEMORY), keys.policy("x", MODEL, DATA, 1)),
        (
            keys.rollout("x", MODEL, DATA, 1, 0, [], {}, MEMORY),
            keys.rollout("x", MODEL, DATA, 1, 0, [], {}),
        ),
        (
            keys.evaluation(MODEL, DATA, "test", 0, {}, MEMORY),
            keys.evaluation(MODEL, DATA, "test", 0, {}),
        ),
    ):
        assert with_memory.key != without.key
        assert dict(with_memory.inputs) == {**without.inputs, "memory": "memory"}


def test_the_code_of_remember_counts_for_the_memory_alone(tmp_path: Path) -> None:
    plain, place = experiment(tmp_path), experiment(tmp_path, agent=AGENT)
    code = code_of(place.settings, place.tasks)
    assert [*code["memory"]] == ["tests.support.remembering"]
    assert code_of(plain.settings, plain.tasks) == {k: v for k, v in code.items() if k != "memory"}


def test_retention_keeps_the_memories_of_stripped_policies(tmp_path: Path) -> None:
    update = {"keep_policies": 1, "keep_learner": 1}
    place = experiment(tmp_path, agent=AGENT, steps=3, update=update)
    with opened(place, "mine") as run:
        run.remember_start(published(run.store, ArtifactKey("artifacts/model/x", "model", "0", {})))
        for number in (1, 2, 3):
            policy = step(run, number)
            learner = ArtifactKey(run.layout.step(number).learner, "update", "", {})
            published(run.store, learner, {"learner.json": policy.digest})
        retain(run, 3)
        first = run.store.artifact(run.layout.step(1).policy)
        assert first.manifest["stripped"] == ["model.safetensors"]
        assert remembered(run.store, first) == 1


def test_push_copies_the_memory_of_the_policy(done: Experiment, tmp_path: Path) -> None:
    target = Store.at(str(tmp_path / "shared"), tmp_path / "shared-cache")
    policy, copied = share("mine", done.store, target)
    assert (remembered(target, policy), copied) == (2, 2)


def test_export_copies_the_memory_of_the_policy(
    done: Experiment, tmp_path: Path, nano: Path
) -> None:
    policy = done.store.artifact(RunLayout("mine").step(2).policy)
    done.store.remove(policy.uri)
    with done.store.publish(policy.key) as folder:
        shutil.copytree(nano, folder, dirs_exist_ok=True)
    export(done.store, "run:mine", tmp_path / "exported")
    assert len(notes_in(tmp_path / "exported/memory")) == 2
    assert not (tmp_path / "exported" / FILES).exists()


async def test_an_agent_without_memory_reads_an_empty_folder() -> None:
    seen: list[list[Path]] = []

    async def agent(episode: Episode) -> Ending:
        seen.append([*episode.memory.iterdir()])
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    await play(["99"], spec=rollout_spec(agent=agent))
    assert seen == [[]]


@pytest.mark.parametrize("path", ["tests.support.remembering:reader", "shutil:copytree"])
def test_a_function_that_cannot_remember_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match=r"agent\.remembers: .* that has 5"):
        experiment(tmp_path, agent={"remembers": path})


def test_an_override_beside_update_none_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY.replace("{learning_rate: 3.0e-4}", "none"))
    update = read(str(file), ["update.keep_policies=3"]).settings.update
    assert (update.weights, update.keep_policies) == (False, 3)
    assert not read(str(file), ["update=none"]).settings.update.weights
