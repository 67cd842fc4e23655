"""The record on disk."""

import dataclasses
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core.records import parquet
from agentfly_core.records.trajectory import (
    Branch,
    Message,
    Problem,
    Sampled,
    Score,
    Scored,
    Unscored,
)
from tests.support.recorded import FIRST, trajectory
from tests.support.schema_1 import OLD, SCHEMA_1

A = "a" * 64


def test_a_trajectory_is_read_back_as_it_was_written(tmp_path):
    written = [
        trajectory(),
        dataclasses.replace(trajectory(), chain=1, branch=Branch("t0", 1), error="lost"),
    ]
    parquet.write_trajectories(tmp_path / "t.parquet", reversed(written))
    assert parquet.read_trajectories(tmp_path / "t.parquet") == written


def test_every_field_of_a_turn_is_read_back(tmp_path):
    span = Sampled((4, 5), (-0.5, -0.25), 6, "stop_string", entropies=(0.75, 0.5))
    full = dataclasses.replace(
        FIRST, sampled=(span,), context=3, temperature=0.7, state="shelf", reward=0.1, pictures=(A,)
    )
    written = dataclasses.replace(
        trajectory(turns=(full,)), agent="searcher/2", answered="99", policy="https://example.org"
    )
    parquet.write_trajectories(tmp_path / "t.parquet", [written])
    (read,) = parquet.read_trajectories(tmp_path / "t.parquet")
    assert read == written
    assert (read.speaker, read.answer) == ("searcher", "99")


def test_a_cut_reply_without_tokens_is_read_back_as_cut(tmp_path):
    said = dataclasses.replace(FIRST.reply, calls=(), cut=True)
    turn = dataclasses.replace(FIRST, reply=said, sampled=())
    written = trajectory(turns=(turn,))
    parquet.write_trajectories(tmp_path / "t.parquet", [written])
    (read,) = parquet.read_trajectories(tmp_path / "t.parquet")
    assert (read.turns[0].cut, read.answer) == (True, None)


def test_turns_are_stored_context_by_context_and_read_in_the_order_of_time(tmp_path):
    path = tmp_path / "t.parquet"
    written = trajectory(
        turns=tuple(dataclasses.replace(FIRST, context=context) for context in (0, 1, 0, 1))
    )
    parquet.write_trajectories(path, [written])
    (stored,) = pq.read_table(path)["turns"].to_pylist()
    assert [(turn["context"], turn["call"]) for turn in stored] == [(0, 0), (0, 2), (1, 1), (1, 3)]
    assert parquet.read_trajectories(path) == [written]


def test_a_file_of_schema_1_is_read_with_its_fresh_contexts_counted(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist([OLD], schema=SCHEMA_1), path)
    (read,) = parquet.read_trajectories(path)
    assert [(turn.context, turn.call) for turn in read.turns] == [(0, 0), (1, 1), (1, 2)]
    assert [turn.given.tokens for turn in read.turns] == [(1, 2), (1, 8), (5,)]
    first = read.turns[0]
    assert (first.temperature, first.reward, first.pictures) == (None, None, ())
    assert first.sampled == (Sampled((3,), (-0.5,), 6, "stop"),)
    assert read.observed == {"stock": Score(0.5)}
    assert (read.answered, read.policy, read.answer) == (None, "", "99")
    parquet.write_trajectories(path, [read])
    assert parquet.read_trajectories(path) == [read]


def test_text_that_is_not_unicode_survives(tmp_path):
    odd = dataclasses.replace(FIRST, read=(Message("user", "\ud800 \x00 é"),))
    parquet.write_trajectories(tmp_path / "t.parquet", [trajectory(turns=(odd,))])
    assert (
        parquet.read_trajectories(tmp_path / "t.parquet")[0].turns[0].read[0].content
        == "\ud800 \x00 é"
    )


def test_the_same_trajectories_make_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        parquet.write_trajectories(tmp_path / name, [trajectory()])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_page_on_runs_names_every_column_and_field():
    named = set(re.findall(r"`(\w+)`", Path("docs/runs.md").read_text()))
    fields = parquet.TRAJECTORY.field("turns").type.value_type
    spans = fields.field("sampled").type.value_type
    assert {*parquet.TRAJECTORY.names, *fields.names, *spans.names} <= named


def test_a_missing_score_is_not_a_zero(tmp_path):
    written = [
        Scored("t0", {"exact": 0.0}, (), 0.0),
        Scored("t1", {}, (), Unscored("exact: TimeoutError")),
    ]
    parquet.write_scores(tmp_path / "s.parquet", written)
    assert parquet.read_scores(tmp_path / "s.parquet") == written
    assert pq.read_table(tmp_path / "s.parquet")["reward"].to_pylist() == [0.0, None]


def test_a_reader_fills_missing_columns_and_ignores_unknown_ones(tmp_path):
    parquet.write_problems(tmp_path / "p.parquet", [Problem("a", "What?", {"answer": "1"})])
    table = pq.read_table(tmp_path / "p.parquet").append_column("mood", pa.array(["fine"]))
    pq.write_table(table, tmp_path / "p.parquet")
    assert parquet.read_problems(tmp_path / "p.parquet") == [Problem("a", "What?", {"answer": "1"})]


def test_a_trajectory_from_before_tree_search_has_no_branch(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_trajectories(path, [trajectory()])
    table = pq.read_table(path)
    old = [name for name in table.column_names if name.startswith("branch")]
    assert old
    pq.write_table(table.drop_columns(old), path)
    assert parquet.read_trajectories(path) == [trajectory()]


ADDED = ("temperature", "state", "reward", "pictures")


@pytest.mark.parametrize("lost", [*ADDED, "entropies"])
def test_a_field_of_turns_and_spans_that_a_file_lacks_is_filled(lost, tmp_path):
    path = tmp_path / "t.parquet"
    span = Sampled((4, 5), (-0.5, -0.25), 6, "stop", entropies=(0.75, 0.5))
    full = dataclasses.replace(
        FIRST, sampled=(span,), temperature=0.7, state="shelf", reward=0.1, pictures=(A,)
    )
    parquet.write_trajectories(path, [trajectory(turns=(full,))])
    (row,) = pq.read_table(path).to_pylist()
    (turn,) = row["turns"]
    del (turn if lost in ADDED else turn["sampled"][0])[lost]
    pq.write_table(pa.Table.from_pylist([row], metadata={"agentfly.schema": "2"}), path)
    (read,) = parquet.read_trajectories(path)
    if lost in ADDED:
        expected = dataclasses.replace(full, **{lost: getattr(FIRST, lost)})
    else:
        expected = dataclasses.replace(full, sampled=(dataclasses.replace(span, entropies=()),))
    assert read.turns == (expected,)


def test_a_file_of_a_newer_schema_is_refused(tmp_path):
    parquet.write_problems(tmp_path / "p.parquet", [])
    table = pq.read_table(tmp_path / "p.parquet").replace_schema_metadata({"agentfly.schema": "9"})
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(ValueError, match="schema 9"):
        parquet.read_problems(tmp_path / "p.parquet")
