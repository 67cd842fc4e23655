"""Play problems on the terminal. Show a progress bar or each turn, or let the user chat."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from rich.console import Console

from agentfly_core.pipeline.play.episodes import Played, PreparedPlay
from agentfly_core.pipeline.play.mode import Chat, Live, Mode
from agentfly_core.pipeline.play.players import described
from agentfly_core.records.run_record import ModeName
from flows.local.display import logging_to, stage_bar
from flows.local.state_dirs import settle


def played_on_terminal(
    prepare: Callable[[], PreparedPlay], name: ModeName, console: Console
) -> Played | None:
    """Prepare, play and store episodes, and show them on the terminal.

    `name` is "experiment" to show a progress bar, "live" to show each turn, or "chat" for a chat
    with the user. Returns None if the user ends the chat before the first message.
    """
    logs, show = settle().state / "logs" / "play", partial(console.print, soft_wrap=True)
    with logging_to(logs / "play.log"):
        with stage_bar(console):
            prepared = prepare()
        show(f"{described(prepared.player, prepared.experiment.settings.model)} plays.")
        mode = Live(show) if name == "live" else Mode()
        if name == "chat":
            problem = prepared.episodes[0].problem
            show(f"problem {problem.id}: {problem.prompt}\nAn empty line ends the chat.")
            if not (first := _line()):
                return None
            mode = Chat(first, _line, show)
        with stage_bar(console) if name == "experiment" else nullcontext():
            return prepared.play(logs, mode)


def _line() -> str:
    """Return the next line that the user types, or "" at the end of the input."""
    try:
        return input("you>    ").strip()
    except EOFError:
        print()
        return ""
