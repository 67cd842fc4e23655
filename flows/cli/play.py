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
from cyclopts.validators import mutually_exclusive
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentfly_core.pipeline.play.chat import Chat
from agentfly_core.pipeline.play.live import Live
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.pipeline.play.players import ModelPlayer, Player
from agentfly_core.pipeline.play.session import PlayRequest, PreparedPlay, prepare
from agentfly_core.pipeline.play.session import play as play_episodes
from agentfly_core.pipeline.play.summary import Figures, figures
from agentfly_core.records.intervals import Interval
from agentfly_core.runs.episodes import Piece
from agentfly_core.runs.listing import in_store
from agentfly_core.system.formats.text import counted
from agentfly_core.system.progress import Progress as StageProgress
from agentfly_core.system.progress import listening
from flows.cli.arguments import NamedExperiment, typed
from flows.local.display import logging_to
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole, print_json

YOU = "you>    "
MODE = Group("Mode (one of)", sort_key=1, validator=mutually_exclusive)


def play(
    target: NamedExperiment,
    *,
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
    experiment = target.load_checked()
    logs = settle(Path.cwd()).state / "logs" / "play"
    terminal = Terminal(VisibleConsole(stderr=as_json))
    with logging_to(logs / "play.log"):
        request = PlayRequest(policy, split, 1 if chat else episodes, problem, typed.get())
        prepared = prepare(experiment, request, 1 if live else experiment.settings.rollout.shard)
        terminal.show(f"{described(prepared.player, experiment.settings.model)} plays.")
        if (mode := _mode(live, chat, terminal, prepared)) is None:
            return
        with nullcontext() if live or chat else terminal.bar():
            played = play_episodes(experiment, prepared, logs, mode)
    totals = figures(played, experiment)
    if chat:
        # there was no attempt at the problem
        totals = replace(totals, reward=None, success=None, success_by_task={})
    if as_json:
        print_json({"play": played.name, **asdict(totals)})
        return
    for line in lines(totals):
        print(line)
    print(f"Read them: {in_store(experiment.store, 'agentfly', 'show', f'play:{played.name}')}")


def _mode(live: bool, chat: bool, terminal: Terminal, prepared: PreparedPlay) -> Mode | None:
    """How to play; None for a chat that the person ends at once."""
    if live:
        return Live(terminal.show)
    if not chat:
        return Mode()
    problem = prepared.plan.episodes[0].problem
    terminal.show(f"problem {problem.id}: {problem.prompt}\nAn empty line ends the chat.")
    if not (first := terminal.typed()):
        terminal.show("Nothing was said, so there is no chat to store.")
        return None
    return Chat(first, terminal.typed, terminal.show)


@dataclass(frozen=True)
class Terminal:
    """Where a person reads and types: `Terminal(VisibleConsole())`."""

    console: Console

    def show(self, what: Piece | str) -> None:
        """Show a piece of an episode, or plain text."""
        if isinstance(what, str):
            self.console.print(what, soft_wrap=True)
        else:
            self.console.print(what)

    def typed(self) -> str:
        """A line of the person's input, shown if it comes from a file or pipe; empty at the end."""
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
        hidden = not self.console.is_terminal
        with Progress(
            *columns, TimeElapsedColumn(), console=self.console, transient=True, disable=hidden
        ) as bar:
            task = bar.add_task("play", total=None)

            def show(report: StageProgress) -> None:
                bar.update(
                    task, description=report.stage, completed=report.done, total=report.total
                )

            with listening(show):
                yield


def described(player: Player, model: str) -> str:
    """Who plays, in words."""
    if isinstance(player, ModelPlayer):
        return f"{player.reference} ({model})" if player.reference == "base" else player.reference
    return player.path if player.reference == player.path else f"{player.reference} ({player.path})"


def lines(totals: Figures) -> list[str]:
    """The figures for people, a line each."""
    endings = ", ".join(f"{count} {name}" for name, count in totals.endings.items())
    unscored = f", {totals.unscored} unscored" if totals.unscored else ""
    played = f"{counted(totals.episodes, 'episode')} of {counted(totals.problems, 'problem')}"
    text = [f"{played}: {endings}{unscored}"]
    text += [f"  {count} failed: {why}" for why, count in list(totals.failures.items())[:3]]
    text += [f"  {count} unscored: {why}" for why, count in list(totals.unscored_for.items())[:3]]
    if totals.reward:
        interval = totals.reward.interval
        shown = _between(interval, ".3f") if interval else f", {totals.reward.without_interval}"
        text.append(f"mean reward {totals.reward.value:.3f}{shown}")
    if totals.success:
        text.append(f"solved {totals.success.share:.1%}{_between(totals.success.interval, '.1%')}")
    for task, rate in totals.success_by_task.items():
        text.append(
            f"  {task}: {rate.share:.1%} of {counted(rate.problems, 'problem')}"
            f"{_between(rate.interval, '.1%')}"
        )
    text.append(
        f"{counted(totals.tool_calls, 'tool call')}, {totals.tool_errors} answered with an error"
    )
    of = f"of {counted(totals.replies, 'reply')} cut"
    if totals.cut_at_max_tokens:
        text.append(f"{totals.cut_at_max_tokens} {of} at agent.max_tokens: set it higher")
    if others := totals.cut_replies - totals.cut_at_max_tokens:
        limits = "agent.max_model_len, agent.max_sampled_tokens, or the agent's own"
        text.append(f"{others} {of} by another limit: {limits}")
    text.append(f"{totals.episodes_per_second:.3g} episodes/s, stored and scored")
    return text


def _between(interval: Interval, pattern: str) -> str:
    low, high = (format(end, pattern) for end in interval)
    return f", 95 % interval {low} to {high} by problem"
