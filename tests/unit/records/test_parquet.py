"""The record on disk."""

import dataclasses

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core.records import parquet
from agentfly_core.records.trajectory import Branch, Message, Problem, Scored, Unscored
from tests.support.recorded import FIRST, trajectory


def test_a_trajectory_is_read_back_as_it_was_written(tmp_path):
    written = [
        trajectory(),
        dataclasses.replace(trajectory(), chain=1, branch=Branch("t0", 1), error="lost"),
    ]
    parquet.write_trajectories(tmp_path / "t.parquet", reversed(written))
    assert parquet.read_trajectories(tmp_path / "t.parquet") == written


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


def test_a_file_of_a_newer_schema_is_refused(tmp_path):
    parquet.write_problems(tmp_path / "p.parquet", [])
    table = pq.read_table(tmp_path / "p.parquet").replace_schema_metadata({"agentfly.schema": "9"})
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(ValueError, match="schema 9"):
        parquet.read_problems(tmp_path / "p.parquet")
