"""Code that misbehaves in a worker fails at most its own episode."""

import functools
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentfly_core.pipeline.loop.lookahead import one_thread, side_by_side
from agentfly_core.pipeline.workers import connection
from agentfly_core.pipeline.workers.pool import WorkerLost
from agentfly_core.records.trajectory import Ending, Trajectory
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.system.service import RUN
from tests.support.processes import processes_of
from tests.support.short_limit_worker import SECONDS
from tests.support.unruly_agent import LATE, LIMIT, WAITING
from tests.support.waiting import until
from tests.support.worker_sessions import (
    AFFECTED,
    HERE,
    SHARD,
    WITH_ENVIRONMENT,
    Play,
    session,
)

HELD = "held the event loop for more than"
SILENT = "blocked its process for more than"
OVERDUE = f"no result within {LIMIT:g} s"


def tokens(trajectories: list[Trajectory]) -> dict[str, list[Any]]:
    """Tokens of all well-behaved episodes."""
    return {
        one.problem.id: [(turn.given.tokens, turn.sampled[0].tokens) for turn in one.turns]
        for number, one in enumerate(trajectories)
        if number != AFFECTED
    }


def read(trajectory: Trajectory) -> list[str]:
    """Contents of the messages that the model read after its first reply."""
    return [item.content for turn in trajectory.turns[1:] for item in turn.read]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Play]]:
    """Start sessions; at the end all their processes have ended."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(connection, "PROGRAM", "tests.support.short_limit_worker")
        patch.setattr(connection, "MARGIN", 3.0)
        patch.setattr(connection, "LONGEST", SECONDS)
        folders = list[Path]()

        def start(**changes: Any) -> Play:
            folders.append(tmp_path_factory.mktemp("session"))
            return stack.enter_context(session(folders[-1], **changes))

        yield start
    assert [command for folder in folders for command in processes_of(str(folder))] == []


@pytest.fixture(scope="module")
def play(sessions: Callable[..., Play]) -> Play:
    """A session without environments."""
    return sessions()


@pytest.fixture(scope="module")
def calm(play: Play) -> list[Trajectory]:
    """The shard without a misbehaving episode."""
    return play()


@pytest.fixture(scope="module")
def play_in(sessions: Callable[..., Play]) -> Play:
    """A session with environments."""
    return sessions(**WITH_ENVIRONMENT)


@pytest.fixture(scope="module")
def calm_in(play_in: Play) -> list[Trajectory]:
    """The shard with environments and without a misbehaving episode."""
    return play_in()


def test_a_shard_is_calm(calm: list[Trajectory]) -> None:
    assert [one.ending for one in calm] == [Ending.NO_TOOL_CALLS] * SHARD
    assert [read(one) for one in calm] == [[f"Seen p{n}."] for n in range(SHARD)]


def test_unusual_results_are_answers(play: Play, calm: list[Trajectory]) -> None:
    """Covers a memory limit, endless recursion, a lot of output, and threads left behind."""
    answers = {}
    for deed in ("allocates", "recurses", "floods", "leaves_threads"):
        played = play("press", deed)
        assert tokens(played) == tokens(calm), deed
        (answers[deed],) = read(played[AFFECTED])
    assert answers == {
        "allocates": "MemoryError, without a message",
        "recurses": "RecursionError: maximum recursion depth exceeded",
        "floods": "None",
        "leaves_threads": "None",
    }


def test_an_agent_that_exits_ends_its_episode(play: Play, calm: list[Trajectory]) -> None:
    played = play("agent", "leaves")
    assert tokens(played) == tokens(calm)
    assert played[AFFECTED].ending is Ending.AGENT_ERROR
    assert "it called exit('enough')" in str(played[AFFECTED].error)


def kind(name: str, *values: str, long: bool = True) -> Any:
    """A kind of misbehaviour: place, deed and, if it fails its episode, the error."""
    return pytest.param(*values, id=name, marks=[pytest.mark.long] if long else [])


@pytest.mark.parametrize(
    ("place", "deed"),
    [
        kind("a sync tool that returns late", "press", "is_late", long=False),
        kind("a sync tool that never returns", "press", "sleeps"),
        kind("swallowed cancellation", "bend", "ignores_cancelling"),
    ],
)
def test_an_overdue_call_is_abandoned(
    play: Play, calm: list[Trajectory], place: str, deed: str
) -> None:
    played = play(place, deed)
    assert tokens(played) == tokens(calm)
    assert read(played[AFFECTED]) == [OVERDUE]
    assert LATE not in repr(played)


EXIT = "ended its process: exit code 7"
CRASH = "ended its process: SIGSEGV"


@pytest.mark.parametrize(
    ("place", "deed", "error"),
    [
        kind(
            "sleep in async code",
            "bend",
            "sleeps",
            f"The tool 'bend' {HELD} {LIMIT:g} s",
            long=False,
        ),
        kind("infinite regex", "press", "matches", f"The tool 'press' {SILENT}"),
        kind("SIGSEGV in a thread", "press", "crashes", f"The tool 'press' {CRASH}", long=False),
        kind("GIL held on the loop", "bend", "holds_gil", f"The tool 'bend' {SILENT}"),
        kind("GIL held in a thread", "press", "holds_gil", f"The tool 'press' {SILENT}"),
        kind("os._exit on the loop", "bend", "exits", f"The tool 'bend' {EXIT}"),
        kind("os._exit in a thread", "press", "exits", f"The tool 'press' {EXIT}"),
        kind("SIGSEGV on the loop", "bend", "crashes", f"The tool 'bend' {CRASH}"),
        kind("SIGKILL", "press", "is_killed", "The tool 'press' ended its process: SIGKILL"),
        kind("SIGSTOP on the loop", "bend", "stops", f"The tool 'bend' {SILENT}"),
        kind("SIGSTOP in a thread", "press", "stops", f"The tool 'press' {SILENT}"),
        kind("blocking agent", "agent", "sleeps", f"The agent agent {HELD} {SECONDS:g} s"),
        kind("blocking callback", "bend", "calls_back", f"The tool 'bend' {HELD} {SECONDS:g} s"),
    ],
)
def test_code_that_ends_its_worker_fails_its_episode(
    play: Play, calm: list[Trajectory], place: str, deed: str, error: str
) -> None:
    played = play(place, deed)
    assert tokens(played) == tokens(calm)
    affected = played[AFFECTED]
    assert (affected.ending, affected.turns) == (Ending.FAILED, ())
    assert re.match(error, str(affected.error))


@pytest.mark.long
def test_the_stacks_of_code_that_blocks_are_in_the_log(
    play: Play, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for place, deed in (("bend", "sleeps"), ("press", "matches")):
        play(place, deed)
        logs = tmp_path_factory.getbasetemp().glob("session*/logs/worker-1.log")
        assert any(f" in {deed}\n" in log.read_text() for log in logs), deed


@pytest.mark.parametrize(
    ("place", "deed", "error"),
    [
        kind("blocking reward", "judge", "sleeps", f"The reward 'judge' {HELD} {LIMIT:g} s"),
        kind("blocking reset", "reset", "sleeps", rf"Unruly.reset\(\) {HELD} {SECONDS:g} s"),
        kind("blocking close", "close", "sleeps", rf"Unruly.close\(\) {HELD} {SECONDS:g} s"),
        kind("deaf reset", "reset", "ignores_cancelling", "ServiceFailure: Unruly is not ready"),
    ],
)
def test_an_environment_that_misbehaves_fails_its_episode(
    play_in: Play, calm_in: list[Trajectory], place: str, deed: str, error: str
) -> None:
    played = play_in(place, deed)
    assert tokens(played) == tokens(calm_in)
    affected = played[AFFECTED]
    assert (affected.ending, affected.turns) == (Ending.FAILED, ())
    assert re.match(error, str(affected.error))


@pytest.mark.long
def test_a_deaf_close_is_abandoned(play_in: Play, calm_in: list[Trajectory]) -> None:
    played = play_in("close", "ignores_cancelling")
    assert tokens(played) == tokens(calm_in)
    assert played[AFFECTED].ending is Ending.NO_TOOL_CALLS


def with_mark(mark: Path) -> dict[str, Any]:
    """Settings of environments that cannot be made while `mark` does not exist."""
    environment = {"limit": SHARD, "settings": {"mark": str(mark)}}
    return {**WITH_ENVIRONMENT, "environments": {f"{HERE}:Unruly": environment}}


@pytest.mark.long
def test_environments_whose_first_init_blocks_are_made_again(
    sessions: Callable[..., Play], calm_in: list[Trajectory], tmp_path: Path
) -> None:
    played = sessions(**with_mark(tmp_path / "mark"))()
    assert tokens(played) == tokens(calm_in)
    assert played[AFFECTED].ending is Ending.NO_TOOL_CALLS


@pytest.mark.long
def test_an_environment_whose_init_always_blocks_stops_the_stage(
    sessions: Callable[..., Play], tmp_path: Path
) -> None:
    with pytest.raises(WorkerLost, match=rf"{HELD} {SECONDS:g} s.* Unfinished calls: Unruly\(\)"):
        sessions(**with_mark(tmp_path / "no folder/mark"))()


def test_processes_of_a_tool_end_with_the_session(tmp_path: Path) -> None:
    with session(tmp_path) as play:
        for deed in ("forks", "leaves_threads"):
            play("press", deed)
        assert len(processes_of(str(tmp_path))) > 2
    assert processes_of(str(tmp_path)) == []


@contextmanager
def interrupted(episodes: int) -> Iterator[None]:
    """Interrupt the block when this number of episodes waits."""
    waiting = threading.Semaphore(0)

    def interrupt() -> None:
        for _ in range(episodes):
            waiting.acquire()
        os.kill(os.getpid(), signal.SIGINT)

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == WAITING:
                waiting.release()

    logger, hears = logging.getLogger(HERE), Hears()
    logger.addHandler(hears)
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        yield
    logger.removeHandler(hears)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_an_interrupt_ends_jobs_that_would_not_end(tmp_path: Path, workers: int) -> None:
    deeds = ["waits", "ignores_cancelling", "sleeps"]
    with interrupted(workers), session(tmp_path, workers) as play:
        side_by_side(workers, functools.partial(play, "agent"), deeds)
    assert processes_of(str(tmp_path)) == []
    assert not [*tmp_path.glob(f"runs/unruly/*/{MANIFEST}")]


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 1])
def test_an_interrupt_ends_a_job_that_is_played_ahead(tmp_path: Path, workers: int) -> None:
    with interrupted(1), session(tmp_path, workers) as play, one_thread("", plays=True) as thread:
        thread.submit(play, "agent", "waits").result()
    assert processes_of(str(tmp_path)) == []
    assert not [*tmp_path.glob(f"runs/unruly/*/{MANIFEST}")]


@pytest.mark.long
def test_the_death_of_an_idle_worker_is_no_death_of_the_next_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with session(tmp_path) as play:
        play()
        below = psutil.Process().children(recursive=True)
        mine = [one for one in below if one.environ().get(RUN) == str(tmp_path)]
        (worker,) = [one for one in mine if one.parent() in mine]
        worker.kill()
        until(lambda: not worker.is_running())
        play("press", "floods")
    assert "played again" not in caplog.text
