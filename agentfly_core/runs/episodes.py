"""Runs and their episodes, for people: what the model chose told apart from what it read, in colour
and without.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from tokenizers import Tokenizer

from agentfly_core.artifacts.run_layout import RunLayout, StepLayout
from agentfly_core.artifacts.store import MANIFEST, Artifact, Store
from agentfly_core.formats.text import did_you_mean
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, read_trajectories
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored

Decode = Callable[[Sequence[int]], str]
Kind = Literal["read", "sampled", "after"]
STYLES: dict[Kind, str] = {"read": "dim", "sampled": "bold green", "after": "dim italic"}
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LEASES = {
    "most_in_use": "in use",
    "most_waiting": "waiting",
    "wait_p50": "p50 s",
    "wait_p95": "p95 s",
    "started": "started",
    "closed": "closed",
    "resets_failed": "bad resets",
    "expired": "expired",
}
MARKS: dict[Kind, str] = {"read": "|", "sampled": ">", "after": "."}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of an episode: `Piece("sampled", '<tool_call>{"name": "calculator",
    ...}</tool_call><|im_end|>')`.

    What is `after` the episode was answered by a tool that ended it and never read by the model.
    """

    kind: Kind
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for number, line in enumerate(lines(self, options.max_width)):
            label = self.kind if number == 0 else ""
            yield Text.assemble(
                (f"{label:>9} ", "cyan"), (f"{MARKS[self.kind]} {line}", STYLES[self.kind])
            )


@dataclass(frozen=True, slots=True)
class Step:
    """The episodes of one step and their scores, how to read their tokens, and what the step
    measured, once it ended.

    `Step("demo", 7, ((trajectory, scored), ...), decode, {"resources/Shop/expired": 1.0, ...})`
    """

    run: str
    number: int
    episodes: tuple[tuple[Trajectory, Scored | None], ...]
    decode: Decode
    metrics: Mapping[str, float]


def read_step(store: Store, run: str, number: int | None) -> Step:
    """A step's episodes, the last one's when `number` is None; raises ValueError without any."""
    layout = RunLayout(run)
    played = [step for step in layout.steps(store) if _played(store, layout.step(step))]
    if not played or (number is not None and number not in played):
        known = store.names("runs")
        if played:
            why = f"; it has steps {played[0]} to {played[-1]}."
        elif run in known:
            why = "; its first step has not begun."
        else:
            why = f" in {store.uri}.{did_you_mean(run, known)}"
        what = f"episodes of step {number}" if number else "episodes"
        raise ValueError(f"The run {run!r} has no {what}{why}")
    step = played[-1] if number is None else number
    here = layout.step(step)
    shards = [store.open(store.artifact(uri)) for uri in _played(store, here)]
    found = store.manifest(here.scored)
    scored = read_scores(store.open(store.artifact(here.scored)) / SCORES) if found else []
    by_id = {score.trajectory_id: score for score in scored}
    trajectories = [t for shard in shards for t in read_trajectories(shard / EPISODES)]
    ended = store.read_json(here.metrics)
    return Step(
        run,
        step,
        tuple((t, by_id.get(t.id)) for t in trajectories),
        decoder(store, run),
        ended["metrics"] if ended else {},
    )


def decoder(store: Store, run: str) -> Decode:
    """How to read a run's tokens: the tokenizer of its start policy, special tokens shown; raises
    ValueError.
    """
    start = store.read_json(RunLayout(run).start)
    written = (
        store.part(Artifact(start["uri"], start["digest"]), "tokenizer.json") if start else None
    )
    if written is None:
        raise ValueError(
            f"The run {run!r} has no policy with a tokenizer.json: its tokens cannot be read."
        )
    tokenizer = Tokenizer.from_str(json.dumps(written))
    return lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=False))


def pieces(trajectory: Trajectory, decode: Decode) -> list[Piece]:
    """An episode token by token, in order."""
    found = []
    for turn in trajectory.turns:
        found.append(Piece("read", decode(turn.given.tokens)))
        for span in turn.sampled:
            cut = " (cut: no room for more tokens)" if span.finish == "length" else ""
            found.append(Piece("sampled", decode(span.tokens) + cut))
    return found + [Piece("after", f"{item.tool}: {item.content}") for item in trajectory.closing]


def lines(piece: Piece, width: int) -> list[str]:
    """A piece's text in lines of at most `width` columns with their mark; control characters are
    written out.
    """
    visible = UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", piece.text)
    room = max(20, width - 12)
    wrapped = (
        textwrap.wrap(line, room, drop_whitespace=False, replace_whitespace=False)
        for line in visible.split("\n")
    )
    return [part for parts in wrapped for part in parts or [""]]


def show(step: Step, worst: int) -> RenderableType:
    """A step's episodes of lowest reward, `worst` of them, those that have none first."""
    rewards = [reward for _, scored in step.episodes if (reward := _reward(scored)) is not None]
    overall = f"{len(rewards) or 'none'} scored"
    if rewards:
        overall += f", mean reward {sum(rewards) / len(rewards):.3f}"
    title = f"{step.run}, step {step.number}: {len(step.episodes)} episodes, {overall}"
    legend = Text.assemble(
        ("| read by the model", STYLES["read"]),
        "   ",
        ("> sampled: chosen by it", STYLES["sampled"]),
    )
    worst_first = sorted(
        step.episodes, key=lambda pair: (_reward(pair[1]) is not None, _reward(pair[1]) or 0.0)
    )
    chosen = [_episode(played, scored, step.decode) for played, scored in worst_first[:worst]]
    return Group(Text(title, "bold"), *environments(step.metrics), legend, *chosen)


def environments(metrics: Mapping[str, float]) -> list[RenderableType]:
    """What the step's worst shard asked of its environments, one row a kind; nothing where it used
    none.
    """
    kinds = sorted({name.split("/")[1] for name in metrics if name.startswith("resources/")})
    shown = Table(
        "environment",
        *(Column(title, justify="right") for title in LEASES.values()),
        box=None,
        pad_edge=False,
        collapse_padding=True,
        header_style="cyan",
    )
    for kind in kinds:
        shown.add_row(
            kind,
            *(f"{round(metrics.get(f'resources/{kind}/{name}', 0.0), 2):g}" for name in LEASES),
        )
    return [shown] if kinds else []


def table(step: Step) -> pd.DataFrame:
    """A step's episodes for people: one row an episode, with its rewards and its text, each line
    marked.
    """
    rows = []
    for trajectory, scored in step.episodes:
        marked = [
            f"{MARKS[piece.kind]} {line}"
            for piece in pieces(trajectory, step.decode)
            for line in lines(piece, 120)
        ]
        rows.append(
            {
                "problem": trajectory.problem.prompt,
                "chain": trajectory.chain,
                "reward": _reward(scored),
                "episode": "\n".join(marked),
                "answer": trajectory.answer,
                "ending": trajectory.ending.value,
                "turns": len(trajectory.turns),
                "sampled_tokens": trajectory.sampled_tokens,
                **(scored.rewards if scored else {}),
            }
        )
    return pd.DataFrame(rows)


def _episode(trajectory: Trajectory, scored: Scored | None, decode: Decode) -> RenderableType:
    """A line of facts about an episode, and then its text."""
    if scored is None:
        graded = "not scored yet"
    elif isinstance(scored.reward, Unscored):
        graded = f"unscored ({scored.reward.reason})"
    else:
        parts = ", ".join(f"{name} {value:g}" for name, value in scored.rewards.items())
        graded = f"reward {scored.reward:g} ({parts})"
    versions = {span.policy_version for turn in trajectory.turns for span in turn.sampled}
    policies = ", ".join(map(str, sorted(versions))) or "none"
    facts = [
        f"problem {trajectory.problem.id}, chain {trajectory.chain}",
        graded,
        f"ended {trajectory.ending.value}",
        f"{trajectory.sampled_tokens} sampled tokens of policy {policies}",
    ]
    error = [Text(f"  error: {trajectory.error}", "red")] if trajectory.error else []
    return Group("", Text("; ".join(facts), "bold"), *error, *pieces(trajectory, decode))


def _reward(scored: Scored | None) -> float | None:
    return None if scored is None or isinstance(scored.reward, Unscored) else scored.reward


def _played(store: Store, step: StepLayout) -> list[str]:
    """The shards that are published, those of a step that is still played as well."""
    shards = [f"{step.uri}/{name}" for name in store.names(step.uri) if name.startswith("rollout-")]
    return [uri for uri in shards if MANIFEST in store.names(uri)]
