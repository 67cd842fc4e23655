"""The lock of a local run: the system's lock decides, not the content of its file."""

import json
import logging
from pathlib import Path

import pytest

from agentfly_core.store.lease import refuse_if_held
from agentfly_core.store.lock import Locked, holder_of, local_lock
from agentfly_core.store.store import Store
from agentfly_core.system.process import Owner

WRITTEN = json.dumps(Owner.current().to_json()).encode()
DAMAGED = [WRITTEN[:40], b"\0" * len(WRITTEN), b"\xff" + WRITTEN, b"[]", b"{}", b" "]


@pytest.mark.parametrize("damaged", [b"", *DAMAGED], ids=["empty", *range(len(DAMAGED))])
def test_a_run_with_a_damaged_lock_file_continues(tmp_path: Path, damaged: bytes) -> None:
    folder = tmp_path / "runs/demo"
    folder.mkdir(parents=True)
    (folder / "lock.json").write_bytes(damaged)
    assert holder_of(folder) == ""
    refuse_if_held(Store(tmp_path, None), "runs/demo")
    with local_lock(folder):
        assert holder_of(folder) == str(Owner.current())
        with pytest.raises(Locked, match=f"'demo' .* process {Owner.current().pid}"):
            refuse_if_held(Store(tmp_path, None), "runs/demo")


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_lock_file_does_not_free_a_held_run(
    tmp_path: Path, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with local_lock(tmp_path):
        (tmp_path / "lock.json").write_bytes(damaged)
        assert holder_of(tmp_path) == "another process"
        with pytest.raises(Locked, match="by another process"), local_lock(tmp_path):
            pass
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert f"{tmp_path / 'lock.json'} is damaged (" in caplog.text


def test_a_run_is_free_before_the_end_of_the_process(tmp_path: Path) -> None:
    with local_lock(tmp_path):
        assert holder_of(tmp_path)
    assert holder_of(tmp_path) == ""


def test_reading_the_holder_does_not_lock(tmp_path: Path) -> None:
    with local_lock(tmp_path):
        pass
    with (tmp_path / "lock.json").open("rb"):
        assert holder_of(tmp_path) == ""
        with local_lock(tmp_path):
            pass
