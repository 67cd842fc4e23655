"""Comparison of a run's own rewards with other rewards, step by step and by episode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from agentfly_core.pipeline.rescoring import NewReward, RescoredStep
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Unscored
from agentfly_core.runs.listing import in_store
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import counted, sentence

SHOWN = 5
LEGEND = "Kendall's tau within groups: 1 for the same order, -1 for the reverse order."


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
        """The command that shows this episode."""
        words = ("--problem", self.problem, "--chain", str(self.chain))
        return in_store(store, "agentfly", "show", f"{run}@{self.step}", *words)


@dataclass(frozen=True, slots=True)
class StepJudged:
    """A step by both rewards: `StepJudged(7, artifact, (Judged(...), ...), ())`.

    `unscored` are the causes of missing new rewards. `artifact` holds the new scores; None if some
    are missing.
    """

    step: int
    artifact: Artifact | None
    episodes: tuple[Judged, ...]
    unscored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Second:
    """A run by its own rewards and by other rewards: `Second("demo", rewards, steps)`."""

    run: str
    rewards: Sequence[NewReward]
    steps: Sequence[StepJudged]

    @property
    def episodes(self) -> list[Judged]:
        """The episodes of all steps."""
        return [episode for step in self.steps for episode in step.episodes]

    @property
    def furthest(self) -> list[Judged]:
        """Episodes with the largest difference in rank, since scales of rewards may differ."""
        from scipy.stats import rankdata  # takes a second

        episodes = self.episodes
        old, new = (rankdata([getattr(e, of) for e in episodes]) for of in ("old", "new"))
        order = sorted(range(len(episodes)), key=lambda i: -abs(old[i] - new[i]))
        return [episodes[i] for i in order if episodes[i].old != episodes[i].new][:SHOWN]


def judged(step: RescoredStep) -> StepJudged:
    """Compare both rewards of a step.

    Baselines and episodes without one of the rewards are skipped. Several speakers count as the
    answering one.
    """
    answered = {answering(one).id for one in by_episode([t for t, _, _ in step.episodes])}
    episodes, unscored = [], []
    for trajectory, old, new in step.episodes:
        if trajectory.role == "baseline" or trajectory.id not in answered:
            continue
        if isinstance(old.reward, Unscored):
            continue
        if isinstance(new.reward, Unscored):
            unscored.append(new.reward.reason)
            continue
        where = (step.step, trajectory.problem.id, trajectory.chain, trajectory.group)
        episodes.append(Judged(*where, old.reward, new.reward))
    return StepJudged(step.step, step.artifact, tuple(episodes), tuple(unscored))


def tau(episodes: Iterable[Judged]) -> float | None:
    """Kendall's tau-b (Biometrika 33, 239-251) over pairs of a group; None for a constant reward.

    Advantages compare the episodes of a group, so pairs of other groups are skipped. A step of
    groups with one episode each is one group.
    """
    groups = defaultdict(list)
    for episode in episodes:
        groups[episode.step, episode.group].append(episode)
    if all(len(group) == 1 for group in groups.values()):
        groups = {0: [group[0] for group in groups.values()]}  # type: ignore[assignment]
    agreed = old_differs = new_differs = 0
    for group in groups.values():
        for one, other in combinations(group, 2):
            old, new = _sign(one.old - other.old), _sign(one.new - other.new)
            agreed += old * new
            old_differs += abs(old)
            new_differs += abs(new)
    untied = old_differs * new_differs
    return agreed / sqrt(untied) if untied else None


def view(second: Second, store: Store) -> RenderableType:
    """A table with a row for each step, and the episodes on which the rewards differ most."""
    title = " + ".join(f"{each.part.weight:g} x {each.path}" for each in second.rewards)
    numbers = ("step", "episodes", "old mean", "new mean", "tau")
    table = Table(*(Column(name, justify="right") for name in numbers), box=None, pad_edge=False)
    for step in second.steps:
        table.add_row(str(step.step), *_row(step.episodes))
    if len(second.steps) > 1:
        table.add_row("all", *_row(second.episodes), style="bold")
    notes = []
    if causes := [cause for step in second.steps for cause in step.unscored]:
        missing = f"No new reward for {counted(len(causes), 'episode')}: {sentence(causes[0])}"
        notes = [f"{missing} Repeat the command to score them."]
    if furthest := second.furthest:
        notes.append("They differ most on:")
    notes += [f"  old {e.old:g}, new {e.new:g}: {e.command(store, second.run)}" for e in furthest]
    heading = Text(f"{second.run}: old reward, and {title}", "bold")
    return Group(heading, table, Text(LEGEND, "dim"), *map(Text, notes))


def as_json(second: Second, store: Store) -> dict[str, JSON]:
    """The same as JSON; an undefined tau is null."""
    steps: list[JSON] = [
        {
            "step": step.step,
            "artifact": step.artifact.to_json() if step.artifact else None,
            "unscored": len(step.unscored),
            **_numbers(step.episodes),
        }
        for step in second.steps
    ]
    names = ("step", "problem", "chain", "old", "new")
    furthest: list[JSON] = [
        {name: getattr(each, name) for name in names} | {"command": each.command(store, second.run)}
        for each in second.furthest
    ]
    return {
        "run": second.run,
        "rewards": {each.path: each.part.model_dump(mode="json") for each in second.rewards},
        "steps": steps,
        "all": _numbers(second.episodes),
        "furthest": furthest,
    }


def _numbers(episodes: Sequence[Judged]) -> dict[str, JSON]:
    return {
        "episodes": len(episodes),
        "old": fmean(each.old for each in episodes) if episodes else None,
        "new": fmean(each.new for each in episodes) if episodes else None,
        "tau": tau(episodes),
    }


def _row(episodes: Sequence[Judged]) -> list[str]:
    numbers = _numbers(episodes)
    cells = zip(numbers.values(), ("d", ".3f", ".3f", ".2f"), strict=True)
    return ["-" if number is None else format(number, pattern) for number, pattern in cells]


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
