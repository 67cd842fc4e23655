"""The command that plays problems outside of training, to look at the episodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentfly_core.pipeline.play.chat import Chat
from agentfly_core.pipeline.play.episodes import PlayRequest, PreparedPlay, prepare
from agentfly_core.pipeline.play.live import Live
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.pipeline.play.players import described
from agentfly_core.pipeline.play.summary import figures
from agentfly_core.runs.episodes import Piece
from agentfly_core.runs.listing import in_store
from agentfly_core.system.progress import Progress as StageProgress
from agentfly_core.system.progress import listening
from flows.cli.arguments import (
    HERE,
    ExperimentArg,
    Override,
    Where,
    flow_arguments,
    load_checked,
    only_one,
    typed,
)
from flows.local.display import logging_to
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole, print_json

YOU = "you>    "
MODE = Group("Mode (one of)", sort_key=1, validator=only_one)


def play(
    target: ExperimentArg,
    /,
    *overrides: Override,
    where: Where = HERE,
    policy: str = "",
    episodes: Annotated[PositiveInt, Parameter(alias="-n")] = 8,
    split: Literal["train", "validation", "test"] = "train",
    problem: str = "",
    live: Annotated[bool, Parameter(group=MODE)] = False,
    chat: Annotated[bool, Parameter(group=MODE)] = False,
    as_json: Annotated[bool, Parameter(name="--json", group=MODE)] = False,
) -> None:
    """Play problems with any policy, and store the episodes.

    For example `agentfly play quickstart --policy oracle -n 8`.

    Args:
        policy: oracle (the function that warm_start.demonstrations names, with a setting `spoilt`
            of 0), random, my_file:policy (your async function of a Conversation), base (the
            experiment's model), run:NAME, run:NAME@STEP, endpoint:NAME (a chat service of the
            site), a model's folder or hub id, a policy.json (default: the last policy of the run
            that `agentfly train` with the same settings makes, else base)
        episodes: number of episodes
        split: problems to play
        problem: play this problem only, by its id
        live: one after another, shown turn by turn
        chat: talk to the policy yourself
        as_json: print one JSON document
    """
    experiment = load_checked(flow_arguments(target, overrides, where))
    logs = settle(Path.cwd()).state / "logs" / "play"
    terminal = PlayTerminal(VisibleConsole(stderr=as_json))
    with logging_to(logs / "play.log"):
        request = PlayRequest(policy, split, 1 if chat else episodes, problem, typed.get())
        prepared = prepare(experiment, request, 1 if live else experiment.settings.rollout.shard)
        terminal.show(f"{described(prepared.player, experiment.settings.model)} plays.")
        if (mode := _mode(live, chat, terminal, prepared)) is None:
            return
        with nullcontext() if live or chat else terminal.bar():
            played = prepared.play(logs, mode)
    totals = figures(played, experiment.tasks, experiment.whole.goal)
    if chat:
        # there was no attempt at the problem
        totals = replace(totals, reward=None, success=None, success_by_task={})
    if as_json:
        print_json({"play": played.name, **asdict(totals)})
        return
    print(*totals.lines(), sep="\n")
    print(f"Read them: {in_store(experiment.store, 'agentfly', 'show', f'play:{played.name}')}")


def _mode(live: bool, chat: bool, terminal: PlayTerminal, prepared: PreparedPlay) -> Mode | None:
    """Return how to play; None for a chat that the person ends at once."""
    if live:
        return Live(terminal.show)
    if not chat:
        return Mode()
    problem = prepared.episodes[0].problem
    terminal.show(f"problem {problem.id}: {problem.prompt}\nAn empty line ends the chat.")
    if not (first := terminal.typed()):
        terminal.show("The chat is empty and was not stored.")
        return None
    return Chat(first, terminal.typed, terminal.show)


@dataclass(frozen=True)
class PlayTerminal:
    """The terminal for watching and chats: `PlayTerminal(VisibleConsole())`."""

    console: Console

    def show(self, what: Piece | str) -> None:
        """Show a piece of an episode, or plain text."""
        self.console.print(what, soft_wrap=isinstance(what, str))

    def typed(self) -> str:
        """Return a line of input, shown if it comes from a file or pipe; empty at the end."""
        typing = sys.stdin.isatty()
        try:
            line = input(YOU if typing else "").strip()
        except EOFError:
            return ""
        if line and not typing:
            self.show(f"{YOU}{line}")
        return line

    @contextmanager
    def bar(self) -> Iterator[None]:
        """Show a progress bar within the block, on a terminal."""
        columns = TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn()
        console, hidden = self.console, not self.console.is_terminal
        progress = Progress(
            *columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden
        )
        with progress as bar:
            task = bar.add_task("play", total=None)

            def show(report: StageProgress) -> None:
                stage, done, total = report.stage, report.done, report.total
                bar.update(task, description=stage, completed=done, total=total)

            with listening(show):
                yield
