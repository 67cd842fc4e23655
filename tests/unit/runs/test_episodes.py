from pathlib import Path

import pytest

from agentfly_core.runs.episodes import Piece, decoder, lines, pieces, read_step, spans, table
from agentfly_core.store.store import Store
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.stored_run import ENDED, WRONG, stored_run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run with a scored step 6 and a partly played step 7."""
    return stored_run(tmp_path)


def test_a_cut_reply_and_the_tool_that_ended_are_shown(store: Store) -> None:
    decode = decoder(store, "demo")
    assert pieces(WRONG, decode)[-1] == Piece("sampled", "It is 9 (cut at a token limit)")
    assert pieces(ENDED, decode)[-1] == Piece("after", "answer: 98")


def test_contexts_of_an_episode_are_shown_in_order_of_time() -> None:
    folded = trajectory(
        *(turn([number], {7: -0.5}, context=context) for number, context in enumerate((0, 1, 1, 0)))
    )
    shown = pieces(folded, lambda tokens: " ".join(map(str, tokens)))
    assert [f"{piece.kind[0]}{piece.text}" for piece in shown] == [
        *("r0", "s7", "c1", "r1", "s7", "r2", "s7", "c0", "r3", "s7")
    ]


def test_the_last_step_is_the_default_even_if_unscored(store: Store) -> None:
    stored = read_step(store, "demo", None)
    assert stored.title == "demo, step 7"
    assert [scored for _, scored in stored.pairs] == [None]


def test_a_missing_step_or_run_is_refused_with_the_existing_ones(store: Store) -> None:
    with pytest.raises(ValueError, match=r"step 9 of .*: 6 to 7\."):
        read_step(store, "demo", 9)
    with pytest.raises(ValueError, match=r"'dmo' .*Did you mean 'demo'"):
        read_step(store, "dmo", None)


def test_a_fork_shows_the_steps_of_its_origin(store: Store) -> None:
    store.write_json("runs/new/run.json", {"settings": {"fork": {"run": "demo", "step": 6}}})
    start = store.read_json("runs/demo/start.json")
    store.write_json("runs/new/start.json", start)
    assert len(read_step(store, "new", 6).pairs) == 4
    with pytest.raises(ValueError, match="Episodes of step 7"):
        read_step(store, "new", 7)


def test_consecutive_numbers_are_written_as_one_span() -> None:
    assert spans([1, 2, 3, 7, 9, 10]) == "1 to 3, 7, 9 to 10"


def test_long_lines_are_folded_with_their_mark() -> None:
    assert lines(Piece("sampled", "a" * 50), width=32) == ["a" * 20, "a" * 20, "a" * 10]


def test_control_characters_cannot_act_on_the_terminal() -> None:
    assert lines(Piece("read", "\x1b[2J\x07 \u202eabc"), width=80) == [r"\x1b[2J\x07 \u202eabc"]


def test_the_table_has_marked_text_and_rewards_of_each_episode(store: Store) -> None:
    frame = table(read_step(store, "demo", 6))
    assert frame["reward"].tolist()[:3] == [1.0, 0.0, 0.5]
    assert frame["exact"].isna().tolist() == [False, False, False, True]
    assert "\n> The sum is 99.<|im_end|>" in frame["episode"][0]
    assert frame["answer"].tolist()[2] == "98"
