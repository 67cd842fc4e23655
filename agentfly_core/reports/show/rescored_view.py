"""What another reward makes of a run's episodes: step by step, and where it differs most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from agentfly_core.pipeline.rescoring import NewReward, RescoredStep
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Unscored
from agentfly_core.reports.show.agreement import NOTHING, Agreement, agreement, ranks
from agentfly_core.runs.listing import in_store
from agentfly_core.store.store import Artifact, Store
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import counted, sentence

SHOWN = 5
LEGEND = (
    "Kendall's tau: 1 where pairs of a group are ordered alike, -1 where the other way round; "
    "order changed: groups of which any pair is; turned: those with a pair turned round."
)


@dataclass(frozen=True, slots=True)
class Judged:
    """An episode by both rewards: `Judged(7, "add-41-58", 2, "g3", 0.0, 0.75)`."""

    step: int
    problem: str
    chain: int
    group: str
    old: float
    new: float

    def command(self, store: Store, run: str) -> str:
        """What opens it."""
        words = ("--problem", self.problem, "--chain", str(self.chain))
        return in_store(store, "agentfly", "show", f"{run}@{self.step}", *words)


@dataclass(frozen=True, slots=True)
class StepJudged:
    """A step by both rewards; `unscored` are the causes of missing new rewards, one an episode, and
    `artifact` has the new scores where they are stored.

    `StepJudged(7, artifact, (Judged(...), ...), (), Agreement(...))`
    """

    step: int
    artifact: Artifact | None
    episodes: tuple[Judged, ...]
    unscored: tuple[str, ...]
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class Second:
    """A run by its own rewards and by others: `Second("demo", rewards, steps)`."""

    run: str
    rewards: Sequence[NewReward]
    steps: Sequence[StepJudged]

    @property
    def agreement(self) -> Agreement:
        """That of all steps."""
        return sum((step.agreement for step in self.steps), NOTHING)

    @property
    def episodes(self) -> list[Judged]:
        """Those of all steps."""
        return [episode for step in self.steps for episode in step.episodes]

    @property
    def furthest(self) -> list[Judged]:
        """The episodes whose rank among all differs most between the rewards, which may have other
        scales.
        """
        everything = self.episodes
        old = ranks([episode.old for episode in everything])
        new = ranks([episode.new for episode in everything])
        apart = [abs(one - other) for one, other in zip(old, new, strict=True)]
        order = sorted(range(len(everything)), key=apart.__getitem__, reverse=True)
        return [
            everything[index]
            for index in order[:SHOWN]
            if apart[index] > 0 and everything[index].old != everything[index].new
        ]


def judged(step: RescoredStep) -> StepJudged:
    """A step by both rewards, without baselines; an episode that lacks one of the two is left out.
    An episode of several speakers has the rewards of the one who answered.
    """
    answered = {answering(one).id for one in by_episode([t for t, _, _ in step.episodes])}
    episodes, unscored = [], []
    rewards: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for trajectory, old, new in step.episodes:
        if trajectory.role == "baseline" or isinstance(old.reward, Unscored):
            continue
        if trajectory.id not in answered:
            continue
        if isinstance(new.reward, Unscored):
            unscored.append(new.reward.reason)
            continue
        where = (step.step, trajectory.problem.id, trajectory.chain, trajectory.group)
        episodes.append(Judged(*where, old.reward, new.reward))
        rewards[trajectory.group].append((old.reward, new.reward))
    groups = [*rewards.values()]
    if all(len(group) == 1 for group in groups):  # then the step is one group
        groups = [[pair for group in groups for pair in group]]
    agreed = agreement(groups)
    return StepJudged(step.step, step.artifact, tuple(episodes), tuple(unscored), agreed)


def view(second: Second, store: Store) -> RenderableType:
    """A row a step, and the episodes on which the rewards differ most."""
    title = " + ".join(f"{each.part.weight:g} x {each.path}" for each in second.rewards)
    heading = Text(f"{second.run}: old reward, and {title}", "bold")
    furthest = [
        Text(f"  old {each.old:g}, new {each.new:g}: {each.command(store, second.run)}")
        for each in second.furthest
    ]
    if furthest:
        furthest = [Text("They differ most on:", "bold"), *furthest]
    unscored = []
    if causes := [cause for step in second.steps for cause in step.unscored]:
        without = Text(
            f"No new reward for {counted(len(causes), 'episode')}: {sentence(causes[0])} Their "
            "steps are not stored: the same command scores them again."
        )
        unscored = [without]
    numbers = ("step", "episodes", "old mean", "new mean", "tau", "order changed", "turned")
    table = Table(*(Column(name, justify="right") for name in numbers), box=None, pad_edge=False)
    for step in second.steps:
        table.add_row(str(step.step), *_row(step.episodes, step.agreement))
    if len(second.steps) > 1:
        table.add_row("all", *_row(second.episodes, second.agreement), style="bold")
    return Group(heading, table, *unscored, Text(LEGEND, "dim"), *furthest)


def as_json(second: Second, store: Store) -> dict[str, JSON]:
    """The same for programs; an undefined tau is null."""
    steps: list[JSON] = [
        {
            "step": step.step,
            "artifact": step.artifact.to_json() if step.artifact else None,
            "unscored": len(step.unscored),
            **_numbers(step.episodes, step.agreement),
        }
        for step in second.steps
    ]
    furthest: list[JSON] = [
        {
            "step": each.step,
            "problem": each.problem,
            "chain": each.chain,
            "old": each.old,
            "new": each.new,
            "command": each.command(store, second.run),
        }
        for each in second.furthest
    ]
    return {
        "run": second.run,
        "rewards": {each.path: each.part.model_dump(mode="json") for each in second.rewards},
        "steps": steps,
        "all": _numbers(second.episodes, second.agreement),
        "furthest": furthest,
    }


def _row(episodes: Sequence[Judged], agreed: Agreement) -> list[str]:
    if not episodes:
        return ["0", "-", "-", "-", "-", "-"]
    old, new = fmean(each.old for each in episodes), fmean(each.new for each in episodes)
    tau = "-" if agreed.tau is None else f"{agreed.tau:.2f}"
    groups = [f"{count}/{agreed.groups}" for count in (agreed.changed, agreed.reversed)]
    return [str(len(episodes)), f"{old:.3f}", f"{new:.3f}", tau, *groups]


def _numbers(episodes: Sequence[Judged], agreed: Agreement) -> dict[str, JSON]:
    return {
        "episodes": len(episodes),
        "old": fmean(each.old for each in episodes) if episodes else None,
        "new": fmean(each.new for each in episodes) if episodes else None,
        "tau": agreed.tau,
        "groups": agreed.groups,
        "order_changed": agreed.changed,
        "turned": agreed.reversed,
    }
