"""Commands about stored episodes: open them, and score them with other rewards."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from agentfly_core.pipeline.rescoring import new_rewards, rescored
from agentfly_core.reports.compare.run_steps import run_steps, view
from agentfly_core.reports.show import choice, rescored_view
from agentfly_core.reports.show.as_json import both_json, episodes_json
from agentfly_core.reports.show.printed import show as printed
from agentfly_core.reports.show.reference import EpisodeSource, PlayReference, reference
from agentfly_core.reports.show.reference import against as against_of
from agentfly_core.reports.show.rescored_view import Second, judged
from agentfly_core.reports.show.side_by_side import most_changed, played_twice, show_both
from agentfly_core.reports.show.sources import read
from agentfly_core.runs.episodes import Episodes
from agentfly_core.store.store import Store
from flows.cli.arguments import STORE, Commands, positive
from flows.local.terminal import VisibleConsole, print_json
from flows.store import store_at

WHAT = "RUN, RUN@STEP or play:NAME, see `agentfly list`"
SHOWN = 3
CHOOSING = (
    *("worst", "best", "problem", "chain", "ending", "below", "above", "tool", "error", "text"),
    "against",
)
AGAINST = (
    "show the same problems as another step (or RUN@STEP, play:NAME) played them beside these; "
    "--worst K are then those whose reward fell most, --best K those whose reward rose most"
)
STEPS = (
    "no episodes but a table of the run's steps: reward, success, tokens, KL, entropy, seconds, "
    "and what was solved of held-out problems"
)


def add(commands: Commands) -> None:
    """Add the commands about stored episodes."""
    _add_episodes(commands)
    _add_scoring(commands)


def _add_episodes(commands: Commands) -> None:
    """The command that opens episodes."""
    parser = commands.add("show", show)
    parser.add_argument("what", metavar="WHAT", help=WHAT)
    parser.add_argument("--step", type=int, help="which step (default: the last one)")
    source = parser.add_mutually_exclusive_group()
    evaluation = "what the step's policy played on test, validation or one of evaluate.datasets"
    source.add_argument("--evaluation", metavar="NAME", default="", help=evaluation)
    demonstrations = "the episodes that the warm start imitated"
    source.add_argument("--demonstrations", action="store_true", help=demonstrations)
    source.add_argument("--steps", action="store_true", help=STEPS)
    order = parser.add_mutually_exclusive_group()
    worst = f"how many episodes, lowest reward first (default: {SHOWN})"
    order.add_argument("--worst", type=positive, metavar="K", help=worst)
    best = "how many episodes, highest reward first"
    order.add_argument("--best", type=positive, metavar="K", help=best)
    group = parser.add_argument_group("only episodes", "all that are given must hold")
    group.add_argument("--problem", metavar="ID", help="of this problem")
    group.add_argument("--chain", type=int, metavar="N", help="of this number in their group")
    group.add_argument("--ending", metavar="NAME", help="that ended so: max_turns, failed, ...")
    group.add_argument("--below", type=float, metavar="R", help="of a reward below R")
    group.add_argument("--above", type=float, metavar="R", help="of a reward above R")
    group.add_argument("--tool", metavar="NAME", help="that called this tool")
    group.add_argument("--error", action="store_true", help="in which a tool answered an error")
    group.add_argument("--text", metavar="WORDS", help="with these words in what was read or said")
    parser.add_argument("--against", metavar="STEP", help=AGAINST)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--store", default="", help=STORE)


def _add_scoring(commands: Commands) -> None:
    """The command that scores stored episodes with other rewards."""
    scoring = commands.add("score", score)
    scoring.add_argument("what", metavar="RUN", help="RUN, all its steps, or RUN@STEP")
    paths = "import path of a reward, may be given again; =0.5 or ={weight: 0.5, ...} sets it"
    scoring.add_argument(
        "--reward", metavar="PATH[=WEIGHT]", action="append", required=True, help=paths
    )
    scoring.add_argument("--json", action="store_true", help="one JSON document")
    scoring.add_argument("--store", default="", help=STORE)


def show(arguments: Namespace) -> None:
    """Read episodes, or a run step by step, in the terminal or as JSON."""
    store = store_at(arguments.store)
    named = reference(arguments.what, arguments.step)
    if arguments.steps:
        return _show_steps(arguments, store, named)
    stored = read(store, named, arguments.evaluation, arguments.demonstrations)
    filters = list(_filters(arguments, stored))
    matching = choice.matching(stored, filters)
    if arguments.against is None:
        chosen = choice.first(matching, *_order(arguments))
        if arguments.json:
            print_json(episodes_json(stored, len(matching), chosen))
        else:
            VisibleConsole().print(printed(stored, len(matching), filters, chosen))
        return
    other = against_of(arguments.against, named)
    against = read(store, other, arguments.evaluation, arguments.demonstrations)
    twice = played_twice([pair for episode in matching for pair in episode], against, stored.title)
    changed = most_changed(twice, *_order(arguments))
    if arguments.json:
        print_json(both_json(stored, against, len(matching), changed))
    else:
        VisibleConsole().print(show_both(stored, against, twice, len(matching), filters, changed))


def _show_steps(arguments: Namespace, store: Store, named: EpisodeSource) -> None:
    """Show a run step by step; raises ValueError for what chooses among episodes."""
    if isinstance(named, PlayReference) or named.step is not None:
        raise ValueError(f"--steps shows all steps of a RUN; got {arguments.what}.")
    chosen = [name for name in CHOOSING if getattr(arguments, name) not in (None, False)]
    if chosen:
        raise ValueError(f"--steps shows no episodes: leave --{chosen[0]} out.")
    steps = run_steps(store, named.run)
    if arguments.json:
        print_json({"run": named.run, "steps": [step.to_json() for step in steps]})
    else:
        VisibleConsole().print(view(named.run, steps), soft_wrap=True)


def score(arguments: Namespace) -> None:
    """Score a run's stored episodes with other rewards."""
    store = store_at(arguments.store)
    named = reference(arguments.what)
    if isinstance(named, PlayReference):
        raise ValueError(f"Got {arguments.what}, expected RUN or RUN@STEP: a step has groups.")
    rewards = new_rewards(arguments.reward)
    steps = [judged(step) for step in rescored(store, named.run, named.step, rewards)]
    second = Second(named.run, rewards, steps)
    if arguments.json:
        print_json(rescored_view.as_json(second, store))
    else:
        VisibleConsole().print(rescored_view.view(second, store), soft_wrap=True)


def _order(arguments: Namespace) -> tuple[choice.SortOrder, int]:
    return ("best", arguments.best) if arguments.best else ("worst", arguments.worst or SHOWN)


def _filters(arguments: Namespace, stored: Episodes) -> Iterator[choice.Filter]:
    if arguments.problem is not None:
        yield choice.of_problem(arguments.problem, stored)
    if arguments.chain is not None:
        yield choice.of_chain(arguments.chain)
    if arguments.ending is not None:
        yield choice.of_ending(arguments.ending)
    if arguments.below is not None:
        yield choice.below(arguments.below)
    if arguments.above is not None:
        yield choice.above(arguments.above)
    if arguments.tool is not None:
        yield choice.called(arguments.tool, stored)
    if arguments.error:
        yield choice.with_error()
    if arguments.text is not None:
        yield choice.saying(arguments.text)
