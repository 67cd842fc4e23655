"""Compare the rewards of a run's episodes with new rewards for the same episodes.

The comparison has entries for each step and for single episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np
import pandas as pd
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
COLUMNS = ["step", "problem", "chain", "group", "old", "new"]
LEGEND = "Kendall's tau within groups: 1 for the same order, -1 for the reverse order."


@dataclass(frozen=True)
class TwiceScored:
    """The episodes of a run with two scores each.

    The old scores come from the run's own rewards, and the new scores come from other rewards.

    - `episodes`: a table with the old and the new reward of each episode
    - `artifacts`: for each step, the artifact with the new scores, or None if scores are missing
    - `unscored`: for each step, the reasons why new scores are missing
    """

    episodes: pd.DataFrame
    artifacts: Mapping[int, Artifact | None]
    unscored: Mapping[int, Sequence[str]]

    @classmethod
    def of(cls, steps: Iterable[RescoredStep]) -> TwiceScored:
        """Pair the old and the new reward of each episode.

        Greedy episodes that serve as a baseline are skipped, and so are episodes without a new
        reward. An episode without an old reward is also skipped if another episode of the same step
        has an old reward. If all episodes of a step lack an old reward, for example after an
        import, their old rewards are nan. If an episode has several speakers, the rewards of the
        speaker that gave the answer are used.
        """
        rows, artifacts, unscored = [], {}, dict[int, list[str]]()
        for step in steps:
            artifacts[step.step], unscored[step.step] = step.artifact, []
            compares = any(not isinstance(old.reward, Unscored) for _, old, _ in step.episodes)
            answered = {answering(one).id for one in by_episode([t for t, _, _ in step.episodes])}
            for trajectory, old, new in step.episodes:
                if trajectory.role == "baseline" or trajectory.id not in answered:
                    continue
                own = nan if isinstance(old.reward, Unscored) else old.reward
                if compares and isnan(own):
                    continue
                if isinstance(new.reward, Unscored):
                    unscored[step.step].append(new.reward.reason)
                    continue
                where = (step.step, trajectory.problem.id, trajectory.chain, trajectory.group)
                rows.append((*where, own, new.reward))
        return cls(pd.DataFrame(rows, columns=COLUMNS), artifacts, unscored)

    @property
    def by_step(self) -> dict[int, pd.DataFrame]:
        """For each step, the table of its episodes."""
        return {step: self.episodes[self.episodes["step"] == step] for step in self.artifacts}

    @property
    def furthest(self) -> list[dict[str, JSON]]:
        """The episodes with the largest difference between the rank by the old reward and the rank
        by the new reward.

        Ranks are compared because the old and the new rewards may have different scales.
        """
        pairs = self.episodes.dropna()
        ranks = pairs[["old", "new"]].rank()
        apart = (ranks["old"] - ranks["new"]).abs().sort_values(ascending=False, kind="stable")
        ordered = pairs.loc[apart.index]
        first = ordered[ordered["old"] != ordered["new"]].drop(columns="group").head(SHOWN)
        return [
            {str(name): episode[name] for name in episode} for episode in first.to_dict("records")
        ]


def tau(episodes: pd.DataFrame) -> float | None:
    """Compute Kendall's tau-b (Biometrika 33, 239-251) between the old and the new reward.

    Episodes are compared only with episodes of the same group (rollouts of one problem), as in the
    computation of advantages. If each group has only one episode, all episodes form one group.
    Returns None if the old reward, or the new reward, is constant in every group.
    """
    episodes = episodes.dropna()
    groups = [group for _, group in episodes.groupby(["step", "group"])]
    if all(len(group) == 1 for group in groups):
        groups = [episodes]
    agreed = old_differs = new_differs = 0.0
    for group in groups:
        old, new = (
            np.sign(np.subtract.outer(*[group[of].to_numpy()] * 2)) for of in ("old", "new")
        )
        # each pair counts twice in all three sums, which cancels
        agreed += float((old * new).sum())
        old_differs += float(abs(old).sum())
        new_differs += float(abs(new).sum())
    untied = old_differs * new_differs
    return agreed / sqrt(untied) if untied else None


def view(
    run: str, rewards: Sequence[NewReward], scored: TwiceScored, store: Store
) -> RenderableType:
    """Show a table that compares the old and the new reward, with a row for each step.

    The new reward of an episode is the weighted sum of `rewards`.
    The episodes in `TwiceScored.furthest` are shown below the table.
    """
    title = " + ".join(f"{each.part.weight:g} x {each.path}" for each in rewards)
    numbers = ("step", "episodes", "old mean", "new mean", "tau")
    table = Table(*(Column(name, justify="right") for name in numbers), box=None, pad_edge=False)
    for step, episodes in scored.by_step.items():
        table.add_row(str(step), *_row(episodes))
    if len(scored.artifacts) > 1:
        table.add_row("all", *_row(scored.episodes), style="bold")
    notes = []
    if causes := [cause for step in scored.unscored.values() for cause in step]:
        missing = f"No new reward for {counted(len(causes), 'episode')}: {sentence(causes[0])}"
        notes = [f"{missing} Repeat the command to score them."]
    furthest = scored.furthest
    notes += ["They differ most on:"] * bool(furthest)
    notes += [f"  old {e['old']:g}, new {e['new']:g}: {_command(e, run, store)}" for e in furthest]
    heading = Text(f"{run}: old reward, and {title}", "bold")
    return Group(heading, table, Text(LEGEND, "dim"), *map(Text, notes))


def as_json(
    run: str, rewards: Sequence[NewReward], scored: TwiceScored, store: Store
) -> dict[str, JSON]:
    """Return the comparison of old and new rewards as JSON. An undefined Kendall's tau is null."""
    steps: list[JSON] = [
        {
            "step": step,
            "artifact": artifact.to_json() if (artifact := scored.artifacts[step]) else None,
            "unscored": len(scored.unscored[step]),
            **_numbers(episodes),
        }
        for step, episodes in scored.by_step.items()
    ]
    return {
        "run": run,
        "rewards": {each.path: each.part.model_dump(mode="json") for each in rewards},
        "steps": steps,
        "all": _numbers(scored.episodes),
        "furthest": [{**each, "command": _command(each, run, store)} for each in scored.furthest],
    }


def _command(episode: Mapping[str, JSON], run: str, store: Store) -> str:
    """Return the command that shows an episode."""
    words = ("--problem", str(episode["problem"]), "--chain", str(episode["chain"]))
    where = run if run.startswith("play:") else f"{run}@{episode['step']}"
    return in_store(store, "agentfly", "show", where, *words)


def _numbers(episodes: pd.DataFrame) -> dict[str, JSON]:
    means = [float(episodes[of].mean()) for of in ("old", "new")]
    old, new = (None if isnan(mean) else mean for mean in means)
    return {"episodes": len(episodes), "old": old, "new": new, "tau": tau(episodes)}


def _row(episodes: pd.DataFrame) -> list[str]:
    cells = zip(_numbers(episodes).values(), ("d", ".3f", ".3f", ".2f"), strict=True)
    return ["-" if number is None else format(number, pattern) for number, pattern in cells]
