"""Import the chats and traces (chats with token ids) in a file as episodes of an experiment.

The episodes are stored, shown and scored like episodes of the command `agentfly play`.
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
    """The result of an import. The episodes are stored in the folder `plays/NAME`.

    `episodes` is the number of all episodes. `traces` is the number of episodes for which the file
    contains token ids. `kept` is the number of episodes that are stored with these token ids. The
    texts of the other episodes are encoded with the experiment's tokenizer.
    """

    name: str
    episodes: int
    traces: int
    kept: int


def import_traces(experiment: Experiment, path: Path, command: str) -> Imported:
    """Store the chats and traces (chats with token ids) of a file, and score them
    with the experiment's rewards.

    The episodes are stored in the folder `plays/NAME`, where NAME is the next free name. The
    command line `command` is recorded in play.json. If a problem of the dataset has the same prompt
    as an episode, the episode gets the task and the `facts` of this problem. `facts` are values
    that rewards and tools read, such as the right answer. Traces that `agentfly export` wrote are
    not matched with problems. Raises ValueError if a row cannot be used.
    """
    store, data = experiment.store, inputs.dataset(experiment)
    tokenizer, _ = inputs.tokenizer(experiment)
    player = ChatPlayer(rollout_spec(experiment.whole, experiment.mixture, tokenizer), tokenizer)
    chats, _ = played_chats(ChatFile(), path, player)
    folder = store.open(data)
    splits = ("train", "validation", "test")
    # files of other programs do not contain AgentFly's problem ids, so problems are matched by
    # their prompt
    by_prompt = {spaced_alike(p.prompt): p for name in splits for p in split(folder, name)}
    episodes = [t if row.ours else _of(t, by_prompt) for row, t in chats]
    kept = [keeps_ids(row, t) for row, t in chats if any(one.call for one in row.replies)]

    def write(target: Path) -> Mapping[str, float]:
        write_trajectories(target / EPISODES, episodes)
        # without timings, because the score stage reads this file in every shard
        write_timings(target, ())
        return {"episodes": float(len(episodes)), "kept_ids": float(sum(kept))}

    name = take_name(experiment, path.name, "a file", command)
    layout = PlayLayout(name)
    publish_tokenizer(store, layout, tokenizer)
    rollout = publish(store, play_key(layout.rollout(0), {"data": data.digest}), write)
    # without limits, because imported episodes on unknown problems stay unscored
    score(experiment.on(experiment.settings.model_copy(update={"gates": OPEN})), [rollout], 0, name)
    return Imported(name, len(episodes), len(kept), sum(kept))


def _of(trajectory: Trajectory, by_prompt: Mapping[str, Problem]) -> Trajectory:
    """Return the episode with the `facts` and the task of the problem that has the same prompt.

    If no problem matches, return the episode unchanged.
    """
    problem = trajectory.problem
    own = by_prompt.get(spaced_alike(problem.prompt), problem)
    return replace(trajectory, problem=replace(problem, facts=own.facts, task=own.task))
