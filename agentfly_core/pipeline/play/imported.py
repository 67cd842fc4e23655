"""Import the traces of a file as episodes of an experiment.

They are stored, shown and scored like a play.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentfly_core.datasets.chat_files import ChatFile
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import PlayLayout
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play.episodes import OPEN, play_key, publish_tokenizer, take_name
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.pipeline.produce import publish
from agentfly_core.pipeline.recorded_chats import ChatPlayer, keeps_ids, played_chats
from agentfly_core.pipeline.scoring import score
from agentfly_core.records.dataset import spaced_alike, split
from agentfly_core.records.parquet import EPISODES, write_trajectories
from agentfly_core.records.timing import write_timings
from agentfly_core.records.trajectory import Problem, Trajectory


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import, stored as the play `name`.

    `traces` is the number of episodes with token ids. `kept` is the number of these episodes that
    keep their ids; the others are encoded again.
    """

    name: str
    episodes: int
    traces: int
    kept: int


def import_traces(experiment: Experiment, path: Path, command: str) -> Imported:
    """Store the chats and traces of a file as a play, scored by the experiment's rewards.

    If an episode has the prompt of a problem in the dataset, it gets the problem's facts.
    Raises ValueError for unusable rows.
    """
    store, data = experiment.store, inputs.dataset(experiment)
    tokenizer, _ = inputs.tokenizer(experiment)
    player = ChatPlayer(rollout_spec(experiment.whole, experiment.mixture, tokenizer), tokenizer)
    chats, _ = played_chats(ChatFile(), path, player)
    folder = store.open(data)
    splits = ("train", "validation", "test")
    # other programs do not know our problem ids, so problems are found by their prompt
    by_prompt = {spaced_alike(p.prompt): p for name in splits for p in split(folder, name)}
    episodes = [t if row.ours else _of(t, by_prompt) for row, t in chats]
    kept = [keeps_ids(row, t) for row, t in chats if any(one.call for one in row.replies)]

    def write(target: Path) -> Mapping[str, float]:
        write_trajectories(target / EPISODES, episodes)
        # the file is empty, but scoring reads it for every shard
        write_timings(target, ())
        return {"episodes": float(len(episodes)), "kept_ids": float(sum(kept))}

    name = take_name(experiment, path.name, "a file", command)
    layout = PlayLayout(name)
    publish_tokenizer(store, layout, tokenizer)
    rollout = publish(store, play_key(layout.rollout(0), {"data": data.digest}), write)
    # imported episodes on unknown problems stay unscored, so the gates are open
    score(experiment.on(experiment.settings.model_copy(update={"gates": OPEN})), [rollout], 0, name)
    return Imported(name, len(episodes), len(kept), sum(kept))


def _of(trajectory: Trajectory, by_prompt: Mapping[str, Problem]) -> Trajectory:
    """Return the episode with the facts and task of the problem with the same prompt, if any."""
    problem = trajectory.problem
    own = by_prompt.get(spaced_alike(problem.prompt), problem)
    return replace(trajectory, problem=replace(problem, facts=own.facts, task=own.task))
