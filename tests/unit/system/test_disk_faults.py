"""A full or read-only disk is reported with its path."""

import errno
from pathlib import Path

import pytest

from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system import files
from agentfly_core.system.files import DiskFault
from flows.orchestration import message

FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(
        errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"
    ),
    RuntimeError("the learner: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", FULL)
def test_a_full_disk_error_has_path_and_remedy(error: Exception, tmp_path: Path) -> None:
    store = Store.at(str(tmp_path), tmp_path / "cache")
    with pytest.raises(DiskFault) as caught:
        with store.publish(ArtifactKey("runs/a/data", "prepare", "k", {})):
            raise error
    fault = message(caught.value)
    assert fault.startswith(f"{tmp_path}/runs/a/data: No space left on device. ")
    assert "Free some space" in fault


def test_an_error_of_a_text_file_has_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise FULL[0]

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DiskFault, match=rf"^{tmp_path}/run.json: No space left"):
        files.write_text(tmp_path / "run.json", "{}")


def test_an_error_of_a_read_only_folder_has_the_remedy() -> None:
    error = OSError(errno.EROFS, "Read-only file system", "/srv/shop/.agentfly")
    assert message(error) == (
        "/srv/shop/.agentfly: Read-only file system. Change the permissions, or run the command "
        "in a folder that you can write to."
    )


def test_an_error_in_user_code_keeps_its_type(tmp_path: Path) -> None:
    store = Store.at(str(tmp_path), tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match=r"prices\.csv"):
        with store.publish(ArtifactKey("runs/a/data", "prepare", "k", {})):
            (tmp_path / "prices.csv").read_text()
