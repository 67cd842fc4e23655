"""The log of `agentfly up` does not grow for ever."""

from pathlib import Path

from flows.up.log import rotate


def test_a_log_that_is_too_large_begins_anew_and_four_older_ones_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    with log.open("a") as program:
        for number in range(7):
            print(f"line {number}", file=program, flush=True)
            rotate(log, largest=3)
            assert log.read_text() == ""
        print("line 7", file=program, flush=True)
    assert log.read_text() == "line 7\n", "a program continues where the file begins now"
    older = sorted(path.name for path in tmp_path.iterdir() if path != log)
    assert older == ["up.log.1", "up.log.2", "up.log.3", "up.log.4"]
    assert [(tmp_path / name).read_text() for name in older] == [
        "line 6\n",
        "line 5\n",
        "line 4\n",
        "line 3\n",
    ]


def test_a_log_that_is_small_enough_stays(tmp_path: Path) -> None:
    (tmp_path / "up.log").write_text("ready\n")
    rotate(tmp_path / "up.log")
    rotate(tmp_path / "none.log")
    assert [path.name for path in tmp_path.iterdir()] == ["up.log"]
