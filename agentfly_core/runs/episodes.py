"""Read stored episodes. Their text is split into pieces: text that the model sampled, and text that
the model read.
"""

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rich.console import Console, ConsoleOptions
from rich.text import Text
from tokenizers import Tokenizer

from agentfly_core.experiment.run_layout import RunLayout, begun_shards, done_by, rollouts
from agentfly_core.models.type_names import DataFrame, PreTrainedTokenizerBase
from agentfly_core.records.messages import read_text, said_text
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, read_trajectories
from agentfly_core.records.trajectory import Sampled, Scored, Trajectory, Unscored
from agentfly_core.runs.run import known_run
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import visible

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
"""Maps each kind of piece to the first character and to the style (see rich) of its lines."""
Pair = tuple[Trajectory, Scored | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an episode's text: `Piece("sampled", '<tool_call>{"name": "calculator",
    ...}</tool_call><|im_end|>')`.

    Kinds of pieces:

    - `read`: text that the model read
    - `sampled`: text that the model sampled
    - `said`: the text of a reply from a chat service
    - `after`: a tool result that follows the last reply, so the model did not read this result
    - `context`: a switch to another context (sequence of tokens). The text is the context's number.
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
    """The stored episodes of a step, an evaluation or a play (`agentfly play`).

    `Episodes("run:demo@7", "demo, step 7", ((trajectory, scored), ...), pieces)`

    - `pairs`: each trajectory with its score, or with None if it is not scored yet
    - `pieces`: a function that splits the text of a trajectory into pieces
    """

    reference: str
    title: str
    pairs: tuple[Pair, ...]
    pieces: AsPieces


def read_step(store: Store, run: str, number: int | None) -> Episodes:
    """Read the episodes of the step `number`. If `number` is None, read the last step with
    episodes.

    If the run is a fork, `number` may also be a step before the fork. Raises ValueError if episodes
    are missing.
    """
    layout = RunLayout(run if number is None else done_by(store, run, number))
    begun = reversed(layout.steps(store)) if number is None else [number]
    step = next((step for step in begun if published_rollouts(store, layout.step(step).uri)), None)
    if step is None:
        if run not in store.names("runs"):
            known_run(store, run)  # raises
        played = [k for k in layout.steps(store) if published_rollouts(store, layout.step(k).uri)]
        wanted = "" if number is None else f" of step {number}"
        raise ValueError(
            f"Episodes{wanted} of the run {run!r} are missing in {store.uri}. Steps with episodes: "
            f"{spans(played) or 'none'}."
        )
    here = layout.step(step)
    return Episodes(
        f"run:{run}@{step}",
        f"{run}, step {step}",
        read_pairs(store, published_rollouts(store, here.uri), here.scored),
        partial(pieces, decode=decoder(store, run)),
    )


def published_rollouts(store: Store, folder: str) -> list[str]:
    """Return the paths of the published shards (batches of episodes) of a step or an evaluation.

    While the step or the evaluation is running, the list may be incomplete.
    """
    return [uri for uri in begun_shards(store, folder) if MANIFEST in store.names(uri)]


def read_pairs(store: Store, rollouts: Sequence[str], scored: str) -> tuple[Pair, ...]:
    """Read the trajectories of the artifacts in `rollouts`. Pair each of them with its score.

    `scored` is the path of the scores. If a score is missing, for example because the scores are
    not published yet, the trajectory is paired with None.
    """
    played = trajectories_in(store, map(store.artifact, rollouts))
    stored = store.get(scored)
    scores = read_scores(store.open(stored) / SCORES) if stored else []
    by_id = {score.trajectory_id: score for score in scores}
    return tuple((t, by_id.get(t.id)) for t in played)


def trajectories_in(store: Store, rollouts: Iterable[Pointer]) -> list[Trajectory]:
    """Read the trajectories of the artifacts in `rollouts`, in order."""
    folders = [store.open(artifact) for artifact in rollouts]
    return [t for folder in folders for t in read_trajectories(folder / EPISODES)]


def scored_in(store: Store, scored: Artifact) -> list[tuple[Trajectory, Scored]]:
    """Return (trajectory, score) for each score in the artifact `scored`.

    The pairs are in the order of the stored trajectories.
    """
    by_id = {score.trajectory_id: score for score in read_scores(store.open(scored) / SCORES)}
    return [(t, by_id[t.id]) for t in trajectories_in(store, rollouts(scored))]


def spans(numbers: Sequence[int]) -> str:
    """Format sorted numbers, with consecutive numbers joined: `spans([1, 2, 3, 7])` is
    "1 to 3, 7".
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in ranges)


def decoder(store: Store, run: str) -> Decode:
    """Return a function that decodes the tokens of a run.

    It uses the tokenizer of the run's start policy. Raises ValueError if the start policy is not
    published yet.
    """
    start = store.read_json(RunLayout(run).start)
    if start is None:
        raise ValueError(
            f"The run {run!r} has not published its start policy yet; try again later."
        )
    return decoder_of(store, Pointer.of(start, RunLayout(run).start))


def decoder_of(store: Store, artifact: Pointer) -> Decode:
    """Return a function that decodes tokens with the tokenizer.json in an artifact.

    The text includes special tokens. Raises ValueError if tokenizer.json is missing.
    """
    written = store.part(artifact, "tokenizer.json")
    if written is None:
        raise ValueError(f"{artifact.uri} lacks tokenizer.json, so tokens cannot be decoded.")
    return decode_with(Tokenizer.from_str(json.dumps(written)))


def decode_with(tokenizer: Tokenizer | PreTrainedTokenizerBase) -> Decode:
    """Return a function that decodes tokens with a tokenizer. The text includes special tokens."""
    return lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=False))


def pieces(trajectory: Trajectory, decode: Decode) -> list[Piece]:
    """Split the text of an episode into pieces in chronological order.

    Each piece has one kind of text (see `Piece`). Text is decoded from the tokens. The tokens of
    replies from chat services are unknown, so their text is taken from the messages.
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
    """Return a span of sampled tokens as a `Piece` of text.

    If a token limit ended the reply, a note is added to the text.
    """
    cut = " (cut at a token limit)" if span.finish == "length" else ""
    return Piece("sampled", decode(span.tokens) + cut)


def answered_last(trajectory: Trajectory) -> list[Piece]:
    """Return a `Piece` for each tool result after the last reply. The model did not read these
    results.
    """
    return [Piece("after", f"{item.tool}: {item.content}") for item in trajectory.closing]


def marked(pieces: Iterable[Piece], width: int) -> list[str]:
    """Format the pieces of an episode's text as lines of at most `width` columns.

    Each line begins with a character for the kind of the piece, such as `>` for sampled text.
    """
    return [f"{KINDS[piece.kind][0]} {line}" for piece in pieces for line in lines(piece, width)]


def lines(piece: Piece, width: int) -> list[str]:
    """Split the text of a piece into lines for a display with `width` columns.

    A line has at most max(20, `width` - 12) columns, so that a label fits before the line. Control
    characters are escaped.
    """
    room = max(20, width - 12)
    wrapped = (
        textwrap.wrap(line, room, drop_whitespace=False, replace_whitespace=False)
        for line in visible(piece.text).split("\n")
    )
    return [part for parts in wrapped for part in parts or [""]]


def table(stored: Episodes) -> DataFrame:
    """Return a table with one row for each trajectory.

    The columns are the prompt, the index of the episode among the problem's episodes (`chain`), the
    total reward, the text of the episode (see `marked`), the answer, the ending, the numbers of
    turns and sampled tokens, and each reward.
    """
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
    """Return the reward in a score, or None if the episode is unscored."""
    return None if scored is None or isinstance(scored.reward, Unscored) else scored.reward
