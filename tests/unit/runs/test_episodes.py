from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from agentfly_core.artifacts.store import ArtifactKey, Store
from agentfly_core.records.parquet import write_scores, write_trajectories
from agentfly_core.records.trajectory import (
    Ending,
    Finish,
    Given,
    Message,
    Observation,
    Problem,
    Sampled,
    Scored,
    Trajectory,
    Turn,
    Unscored,
)
from agentfly_core.runs.episodes import Piece, lines, pieces, read_step, show, table
from agentfly_core.testing.trajectories import trajectory

PROMPT = "<|im_start|>user\nWhat is 41+58?<|im_end|>\n<|im_start|>assistant\n"
CALL = (
    '<tool_call>{"name": "calculator", "arguments": {"expression": "41+58"}}</tool_call><|im_end|>'
)
ANSWER = "\n<|im_start|>tool\n99<|im_end|>\n<|im_start|>assistant\n"


def make_tokenizer() -> Tokenizer:
    """Bytes as tokens, and the two that mark messages."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator(
        [], BpeTrainer(initial_alphabet=ByteLevel.alphabet(), special_tokens=special)
    )
    return tokenizer


TOKENIZER = make_tokenizer()


def turn(given: str, sampled: str, finish: Finish = "stop") -> Turn:
    tokens = tuple(TOKENIZER.encode(sampled).ids)
    span = Sampled(tokens, (-0.5,) * len(tokens), policy_version=6, finish=finish)
    return Turn(
        (), Given(tuple(TOKENIZER.encode(given).ids)), Message("assistant", sampled), (span,)
    )


def episode(
    chain: int, *turns: Turn, closing: tuple[Observation, ...] = (), error: str | None = None
) -> Trajectory:
    problem = Problem("add-41-58", "What is 41+58?", {"answer": "99"})
    ending = Ending.TERMINAL if closing else Ending.FAILED if error else Ending.NO_TOOL_CALLS
    return trajectory(
        *turns,
        name=f"chain-{chain}",
        chain=chain,
        problem=problem,
        ending=ending,
        closing=closing,
        error=error,
    )


GOOD = episode(0, turn(PROMPT, CALL), turn(ANSWER, "The sum is 99.<|im_end|>"))
WRONG = episode(1, turn(PROMPT, "It is 9", finish="length"))
ENDED = episode(2, turn(PROMPT, CALL), closing=(Observation("answer", "98"),))
FAILED = episode(3, turn(PROMPT, CALL), error="shop: ServiceFailure: it died")
SCORES = [
    Scored("chain-0", {"exact": 1.0}, (), 1.0),
    Scored("chain-1", {"exact": 0.0}, (), 0.0),
    Scored("chain-2", {"exact": 0.5}, (), 0.5),
    Scored("chain-3", {}, (), Unscored("the episode failed")),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run with a scored step 6 and a step 7 that is only partly played."""
    store = Store.at(str(tmp_path), tmp_path / ".agentfly")
    with store.publish(
        ArtifactKey("artifacts/warm_start/ab/001/policy", "warm_start", "key", {})
    ) as folder:
        (folder / "tokenizer.json").write_text(TOKENIZER.to_str())
    start = store.artifact("artifacts/warm_start/ab/001/policy")
    store.write_json("runs/demo/start.json", {"uri": start.uri, "digest": start.digest})
    for step, shard, played in ((6, 0, [GOOD, WRONG]), (6, 1, [ENDED, FAILED]), (7, 0, [WRONG])):
        with store.publish(
            ArtifactKey(f"runs/demo/steps/{step:06d}/rollout-{shard:03d}", "rollout", "key", {})
        ) as folder:
            write_trajectories(folder / "trajectories.parquet", played)
    with store.publish(ArtifactKey("runs/demo/steps/000006/scored", "score", "key", {})) as folder:
        write_scores(folder / "scores.parquet", SCORES)
    return store


def printed(store: Store, step: int | None, worst: int, colour: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=110,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
    )
    console.print(show(read_step(store, "demo", step), worst))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_line_says_without_colour_whether_it_was_read_or_sampled(store: Store) -> None:
    text = [line.rstrip() for line in printed(store, 6, 4, colour=False).splitlines()]
    start = next(number for number, line in enumerate(text) if "chain 0" in line)
    assert text[start + 1 :] == [
        "     read | <|im_start|>user",
        "          | What is 41+58?<|im_end|>",
        "          | <|im_start|>assistant",
        "          |",
        (
            '  sampled > <tool_call>{"name": "calculator", "arguments": {"expression": "41+58"}}'
            "</tool_call><|im_end|>"
        ),
        "     read |",
        "          | <|im_start|>tool",
        "          | 99<|im_end|>",
        "          | <|im_start|>assistant",
        "          |",
        "  sampled > The sum is 99.<|im_end|>",
    ]


def test_colour_sets_sampled_text_apart_and_changes_no_letter(store: Store) -> None:
    coloured = printed(store, 6, 4, colour=True)
    assert "\x1b[1;32m> The sum is 99.<|im_end|>" in coloured
    assert "\x1b[2m| What is 41+58?<|im_end|>" in coloured
    assert Text.from_ansi(coloured).plain.split() == printed(store, 6, 4, colour=False).split()


def test_the_worst_episodes_come_first_and_what_could_not_be_scored_before_them(
    store: Store,
) -> None:
    everything = printed(store, 6, 4, colour=False)
    assert re.findall(r"chain (\d);", everything) == ["3", "1", "2", "0"]
    text = printed(store, 6, 2, colour=False)
    assert "4 episodes, 3 scored, mean reward 0.500" in text
    assert "chain 3; unscored (the episode failed); ended failed" in text
    assert "error: shop: ServiceFailure: it died" in text
    assert "chain 1; reward 0 (exact 0)" in text
    assert "chain 2" not in text


def test_a_reply_without_room_and_the_tool_that_ended_the_episode_are_told(store: Store) -> None:
    decode = read_step(store, "demo", 6).decode
    assert pieces(WRONG, decode)[-1] == Piece("sampled", "It is 9 (cut: no room for more tokens)")
    assert pieces(ENDED, decode)[-1] == Piece("after", "answer: 98")


def test_without_a_step_the_last_one_is_shown_even_if_it_is_not_scored_yet(store: Store) -> None:
    assert "demo, step 7: 1 episodes, none scored" in printed(store, None, 1, colour=False)


def test_what_a_step_asked_of_its_environments_is_a_row_a_kind(store: Store) -> None:
    assert "environment" not in printed(store, 6, 1, colour=False)
    leases = {
        "most_in_use": 16.0,
        "most_waiting": 48.0,
        "wait_p50": 6.2e-06,
        "wait_p95": 1.5,
        "started": 38.0,
    }
    ends = {"closed": 38.0, "resets_failed": 1.0, "expired": 3.0}
    metrics = {f"resources/Shop/{name}": value for name, value in (leases | ends).items()}
    store.write_json(
        "runs/demo/steps/000006/metrics.json", {"step": 6, "time_ms": 1, "metrics": metrics}
    )
    (row,) = [line for line in printed(store, 6, 1, colour=False).splitlines() if "Shop" in line]
    assert row.split() == ["Shop", "16", "48", "0", "1.5", "38", "38", "1", "3"]


def test_a_step_or_run_that_is_not_there_is_told_with_what_is(store: Store) -> None:
    with pytest.raises(ValueError, match=r"no episodes of step 9; it has steps 6 to 7"):
        read_step(store, "demo", 9)
    with pytest.raises(ValueError, match=r"'dmo' has no episodes in .*Did you mean 'demo'"):
        read_step(store, "dmo", None)


def test_long_lines_are_folded_with_their_mark() -> None:
    assert lines(Piece("sampled", "a" * 50), width=32) == ["a" * 20, "a" * 20, "a" * 10]


def test_control_characters_cannot_act_on_the_terminal() -> None:
    assert lines(Piece("read", "\x1b[2J\x07 \u202eabc"), width=80) == [r"\x1b[2J\x07 \x202eabc"]


def test_the_table_for_people_has_text_marked_and_rewards_of_each_episode(store: Store) -> None:
    frame = table(read_step(store, "demo", 6))
    assert frame["reward"].tolist()[:3] == [1.0, 0.0, 0.5]
    assert frame["exact"].isna().tolist() == [False, False, False, True]
    assert "\n> The sum is 99.<|im_end|>" in frame["episode"][0]
    assert frame["answer"].tolist()[2] == "98"
