"""Stored episodes, with sampled text apart from given text."""

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rich.console import Console, ConsoleOptions
from rich.text import Text
from tokenizers import Tokenizer

from agentfly_core.experiment.run_layout import RunLayout, begun_shards, done_by
from agentfly_core.models.type_names import DataFrame, PreTrainedTokenizerBase
from agentfly_core.records.messages import read_text, said_text
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, read_trajectories
from agentfly_core.records.trajectory import Sampled, Scored, Trajectory, Unscored
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import nearest, visible

Decode = Callable[[Sequence[int]], str]
AsPieces = Callable[[Trajectory], "list[Piece]"]
PieceKind = Literal["read", "sampled", "said", "after", "context"]
STYLES: dict[PieceKind, str] = {
    "read": "dim",
    "sampled": "bold green",
    "said": "green",
    "after": "dim italic",
    "context": "cyan",
}
MARKS: dict[PieceKind, str] = {
    "read": "|",
    "sampled": ">",
    "said": ">",
    "after": ".",
    "context": "#",
}
Pair = tuple[Trajectory, Scored | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of an episode: `Piece("sampled", '<tool_call>{"name": "calculator",
    ...}</tool_call><|im_end|>')`.

    `said` is a chat service's reply, without tokens. `after` is a tool's answer that ended the
    episode and that the model never read. `context` is the number of a context that begins here.
    """

    kind: PieceKind
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for number, line in enumerate(lines(self, options.max_width)):
            label = self.kind if number == 0 else ""
            yield Text.assemble(
                (f"{label:>9} ", "cyan"), (f"{MARKS[self.kind]} {line}", STYLES[self.kind])
            )


@dataclass(frozen=True, slots=True)
class Episodes:
    """Stored episodes with their scores, a function that decodes them, and the step's metrics.

    `Episodes("run:demo@7", "demo, step 7", ((trajectory, scored), ...), pieces,
    {"resources/Shop/expired": 1.0, ...})`; an unscored episode has None.
    """

    reference: str
    title: str
    pairs: tuple[Pair, ...]
    pieces: AsPieces
    metrics: Mapping[str, float]


def read_step(store: Store, run: str, number: int | None) -> Episodes:
    """Episodes of a step, by default the last one; a fork has the earlier steps of its origin too.

    Raises ValueError without episodes.
    """
    layout = RunLayout(run if number is None else done_by(store, run, number))
    begun = reversed(layout.steps(store)) if number is None else [number]
    step = next((step for step in begun if published_rollouts(store, layout.step(step).uri)), None)
    if step is None:
        played = [k for k in layout.steps(store) if published_rollouts(store, layout.step(k).uri)]
        wanted = "" if number is None else f" of step {number}"
        hint = "" if run in store.names("runs") else nearest(run, store.names("runs"))
        raise ValueError(
            f"The run {run!r} lacks episodes{wanted} in {store.uri}. Steps with episodes: "
            f"{spans(played) or 'none'}.{hint}"
        )
    here = layout.step(step)
    ended = store.read_json(here.metrics)
    return Episodes(
        f"run:{run}@{step}",
        f"{run}, step {step}",
        read_pairs(store, published_rollouts(store, here.uri), here.scored),
        partial(pieces, decode=decoder(store, run)),
        ended["metrics"] if ended else {},
    )


def published_rollouts(store: Store, folder: str) -> list[str]:
    """The published shards of a step or an evaluation, also while others are still played."""
    return [uri for uri in begun_shards(store, folder) if MANIFEST in store.names(uri)]


def read_pairs(store: Store, rollouts: Sequence[str], scored: str) -> tuple[Pair, ...]:
    """The episodes of these artifacts, with scores if `scored` is published."""
    played = trajectories_in(store, map(store.artifact, rollouts))
    stored = store.get(scored)
    scores = read_scores(store.open(stored) / SCORES) if stored else []
    by_id = {score.trajectory_id: score for score in scores}
    return tuple((t, by_id.get(t.id)) for t in played)


def trajectories_in(store: Store, rollouts: Iterable[Pointer]) -> list[Trajectory]:
    """The trajectories of these artifacts, in order."""
    folders = [store.open(artifact) for artifact in rollouts]
    return [t for folder in folders for t in read_trajectories(folder / EPISODES)]


def spans(numbers: Sequence[int]) -> str:
    """Sorted numbers for people: `spans([1, 2, 3, 7])` is "1 to 3, 7"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in ranges)


def decoder(store: Store, run: str) -> Decode:
    """Decoder of a run's start policy; raises ValueError."""
    start = store.read_json(RunLayout(run).start)
    if start is None:
        raise ValueError(f"The run {run!r} cannot be read before its start policy is published.")
    return decoder_of(store, Pointer.of(start, RunLayout(run).start))


def decoder_of(store: Store, artifact: Pointer) -> Decode:
    """Decoder of the tokenizer.json in an artifact, with special tokens; raises ValueError."""
    written = store.part(artifact, "tokenizer.json")
    if written is None:
        raise ValueError(f"{artifact.uri} lacks tokenizer.json, so its tokens cannot be decoded.")
    return decode_with(Tokenizer.from_str(json.dumps(written)))


def decode_with(tokenizer: Tokenizer | PreTrainedTokenizerBase) -> Decode:
    """Decoder of a tokenizer, with special tokens."""
    return lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=False))


def pieces(trajectory: Trajectory, decode: Decode) -> list[Piece]:
    """An episode in order of time, decoded from tokens or, for chat services, from messages."""
    shown: list[Piece] = []
    context = 0
    for turn in trajectory.turns:
        if turn.context != context:
            shown.append(Piece("context", str(turn.context)))
        context = turn.context
        if turn.sampled:
            shown.append(Piece("read", decode(turn.given.tokens)))
            shown += (sampled_piece(span, decode) for span in turn.sampled)
        else:
            shown.append(Piece("read", "\n".join(map(read_text, turn.read))))
            shown.append(Piece("said", said_text(turn)))
    return shown + answered_last(trajectory)


def sampled_piece(span: Sampled, decode: Decode) -> Piece:
    """A sampled span, with a note if it was cut."""
    cut = " (cut at a token limit)" if span.finish == "length" else ""
    return Piece("sampled", decode(span.tokens) + cut)


def answered_last(trajectory: Trajectory) -> list[Piece]:
    """Answers after the last reply, which the model never read."""
    return [Piece("after", f"{item.tool}: {item.content}") for item in trajectory.closing]


def marked(pieces: Iterable[Piece], width: int) -> list[str]:
    """Lines of at most `width` columns, each with the mark of its piece."""
    return [f"{MARKS[piece.kind]} {line}" for piece in pieces for line in lines(piece, width)]


def lines(piece: Piece, width: int) -> list[str]:
    """A piece's text in lines that fit into `width` columns with their mark, controls escaped."""
    room = max(20, width - 12)
    wrapped = (
        textwrap.wrap(line, room, drop_whitespace=False, replace_whitespace=False)
        for line in visible(piece.text).split("\n")
    )
    return [part for parts in wrapped for part in parts or [""]]


def table(stored: Episodes) -> DataFrame:
    """A row for each episode, with its rewards and its marked text."""
    import pandas as pd  # takes half a second

    rows = []
    for trajectory, scored in stored.pairs:
        rows.append(
            {
                "problem": trajectory.problem.prompt,
                "chain": trajectory.chain,
                "reward": reward_of(scored),
                "episode": "\n".join(marked(stored.pieces(trajectory), 120)),
                "answer": trajectory.answer,
                "ending": trajectory.ending.value,
                "turns": len(trajectory.turns),
                "sampled_tokens": trajectory.sampled_tokens,
                **(scored.rewards if scored else {}),
            }
        )
    return pd.DataFrame(rows)


def reward_of(scored: Scored | None) -> float | None:
    """The reward of an episode, None if it is unscored."""
    return None if scored is None or isinstance(scored.reward, Unscored) else scored.reward
