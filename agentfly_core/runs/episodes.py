"""Read stored episodes, and split their text into sampled text and prompt text."""

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
KINDS: dict[PieceKind, tuple[str, str]] = {
    "read": ("|", "dim"),
    "sampled": (">", "bold green"),
    "said": (">", "green"),
    "after": (".", "dim italic"),
    "context": ("#", "cyan"),
}
"""The mark and the style of each kind of piece."""
Pair = tuple[Trajectory, Scored | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an episode's text: `Piece("sampled", '<tool_call>{"name": "calculator",
    ...}</tool_call><|im_end|>')`.

    Kinds: `read` is prompt text, `sampled` is sampled text, `said` is the text of a chat service's
    reply. `after` is a tool result after the last reply, which the model did not read. `context` is
    the number of a context that begins here.
    """

    kind: PieceKind
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        mark, style = KINDS[self.kind]
        for number, line in enumerate(lines(self, options.max_width)):
            label = self.kind if number == 0 else ""
            yield Text.assemble((f"{label:>9} ", "cyan"), (f"{mark} {line}", style))


@dataclass(frozen=True, slots=True)
class Episodes:
    """Stored episodes with their scores, a function that splits them into pieces, and the metrics
    of the step.

    `Episodes("run:demo@7", "demo, step 7", ((trajectory, scored), ...), pieces,
    {"resources/Shop/expired": 1.0, ...})`; an episode without scores has None.
    """

    reference: str
    title: str
    pairs: tuple[Pair, ...]
    pieces: AsPieces
    metrics: Mapping[str, float]


def read_step(store: Store, run: str, number: int | None) -> Episodes:
    """Read the episodes of a step, by default the last step with episodes.

    A forked run also has the steps of its origin before the fork. Raises ValueError without
    episodes.
    """
    layout = RunLayout(run if number is None else done_by(store, run, number))
    begun = reversed(layout.steps(store)) if number is None else [number]
    step = next((step for step in begun if published_rollouts(store, layout.step(step).uri)), None)
    if step is None:
        played = [k for k in layout.steps(store) if published_rollouts(store, layout.step(k).uri)]
        wanted = "" if number is None else f" of step {number}"
        hint = "" if run in store.names("runs") else nearest(run, store.names("runs"))
        raise ValueError(
            f"Episodes{wanted} of the run {run!r} are missing in {store.uri}. Steps with episodes: "
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
    """Return the published shards of a step or an evaluation, also while further shards are
    played.
    """
    return [uri for uri in begun_shards(store, folder) if MANIFEST in store.names(uri)]


def read_pairs(store: Store, rollouts: Sequence[str], scored: str) -> tuple[Pair, ...]:
    """Read the episodes of these artifacts, with scores if `scored` is published."""
    played = trajectories_in(store, map(store.artifact, rollouts))
    stored = store.get(scored)
    scores = read_scores(store.open(stored) / SCORES) if stored else []
    by_id = {score.trajectory_id: score for score in scores}
    return tuple((t, by_id.get(t.id)) for t in played)


def trajectories_in(store: Store, rollouts: Iterable[Pointer]) -> list[Trajectory]:
    """Read the trajectories of these artifacts, in order."""
    folders = [store.open(artifact) for artifact in rollouts]
    return [t for folder in folders for t in read_trajectories(folder / EPISODES)]


def spans(numbers: Sequence[int]) -> str:
    """Format sorted numbers: `spans([1, 2, 3, 7])` is "1 to 3, 7"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in ranges)


def decoder(store: Store, run: str) -> Decode:
    """Return the decoder of a run's start policy. Raises ValueError before its publication."""
    start = store.read_json(RunLayout(run).start)
    if start is None:
        raise ValueError(
            f"The run {run!r} has not published its start policy yet; try again later."
        )
    return decoder_of(store, Pointer.of(start, RunLayout(run).start))


def decoder_of(store: Store, artifact: Pointer) -> Decode:
    """Return a function that decodes tokens, including special tokens, with an artifact's
    tokenizer.json.

    Raises ValueError if tokenizer.json is missing.
    """
    written = store.part(artifact, "tokenizer.json")
    if written is None:
        raise ValueError(f"{artifact.uri} lacks tokenizer.json, so its tokens cannot be decoded.")
    return decode_with(Tokenizer.from_str(json.dumps(written)))


def decode_with(tokenizer: Tokenizer | PreTrainedTokenizerBase) -> Decode:
    """Return a function that decodes tokens, including special tokens, with this tokenizer."""
    return lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=False))


def pieces(trajectory: Trajectory, decode: Decode) -> list[Piece]:
    """Return the pieces of an episode in chronological order. Text is decoded from tokens; the text
    of chat services is taken from messages.
    """
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
    """Make the piece of a sampled span, with a note if it was cut."""
    cut = " (cut at a token limit)" if span.finish == "length" else ""
    return Piece("sampled", decode(span.tokens) + cut)


def answered_last(trajectory: Trajectory) -> list[Piece]:
    """Make the pieces of tool results after the last reply, which the model never read."""
    return [Piece("after", f"{item.tool}: {item.content}") for item in trajectory.closing]


def marked(pieces: Iterable[Piece], width: int) -> list[str]:
    """Format pieces as lines of at most `width` columns, which begin with the mark of the kind."""
    return [f"{KINDS[piece.kind][0]} {line}" for piece in pieces for line in lines(piece, width)]


def lines(piece: Piece, width: int) -> list[str]:
    """Split a piece's text into lines that fit into `width` columns with their mark. Control
    characters are escaped.
    """
    room = max(20, width - 12)
    wrapped = (
        textwrap.wrap(line, room, drop_whitespace=False, replace_whitespace=False)
        for line in visible(piece.text).split("\n")
    )
    return [part for parts in wrapped for part in parts or [""]]


def table(stored: Episodes) -> DataFrame:
    """Make a table with one row for each trajectory: problem, rewards, marked text and counts."""
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
    """Return the reward of an episode, None if it is unscored."""
    return None if scored is None or isinstance(scored.reward, Unscored) else scored.reward
