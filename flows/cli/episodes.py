"""Commands about stored episodes: show them, and score them with other rewards."""

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt
from cyclopts.validators import mutually_exclusive

from agentfly_core.pipeline.rescoring import new_rewards, rescored, rescored_play
from agentfly_core.reports.compare.run_steps import run_steps, view
from agentfly_core.reports.show import choice, printed, rescored_view
from agentfly_core.reports.show.as_json import both_json, episodes_json
from agentfly_core.reports.show.choice import Conditions
from agentfly_core.reports.show.printed import most_changed, played_twice, show_both
from agentfly_core.reports.show.rescored_view import TwiceScored
from agentfly_core.reports.show.sources import PlayReference, against_of, read, reference
from agentfly_core.runs.listing import run_named
from agentfly_core.system.formats.text import counted
from flows.cli.arguments import HERE, RUNS, AsJson, ExperimentArg, Override, StoreArg, Where
from flows.experiments import load_checked
from flows.local.terminal import output, typed
from flows.store import store_at

SOURCE = Group("Source (one of)", sort_key=1, validator=mutually_exclusive)
ORDER = Group("Order (one of)", sort_key=2, validator=mutually_exclusive)
ALL = Conditions()
ONLY = Group("Only episodes (all conditions must hold)", sort_key=3)


def show(
    what: Annotated[str, RUNS],
    /,
    *,
    evaluation: Annotated[str, Parameter(group=SOURCE)] = "",
    demonstrations: Annotated[bool, Parameter(group=SOURCE)] = False,
    steps: Annotated[bool, Parameter(group=(SOURCE, ORDER))] = False,
    worst: Annotated[PositiveInt | None, Parameter(group=ORDER)] = None,
    best: Annotated[PositiveInt | None, Parameter(group=ORDER)] = None,
    conditions: Annotated[
        Conditions, Parameter(name="*", group=ONLY, name_transform=str.lower)
    ] = ALL,
    against: str | None = None,
    as_json: AsJson = False,
    store_uri: StoreArg = "",
) -> None:
    """Show episodes, or a table of a run's steps.

    In an episode, the tokens that the policy sampled are marked.

    Args:
        what: RUN (the run's last step), RUN@STEP, EXPERIMENT (its newest run), a unique prefix of
            a run's name, or play:NAME; `agentfly list` shows the names of runs
        evaluation: episodes from the evaluation of the policy, on test, validation or one of
            evaluate.datasets
        demonstrations: the episodes that the warm start imitated
        steps: a table of the run's steps instead of episodes: reward, success, tokens, KL, entropy,
            seconds, and success on held-out problems
        worst: number of episodes, lowest reward first (default: 3)
        best: number of episodes, highest reward first
        against: compare with the same problems in another step (STEP, RUN@STEP or play:NAME).
            --worst K shows the K largest decreases in reward, --best K the K largest increases
    """
    store = store_at(store_uri)
    if steps:
        rows = run_steps(store, run := run_named(store, what))
        document = {"run": run, "steps": [row.to_json() for row in rows]}
        output(lambda: document, lambda: view(run, rows), as_json)
        return
    named = reference(run_named(store, what))
    stored = read(store, named, evaluation, demonstrations)
    order: choice.SortOrder = "best" if best else "worst"
    met, count = choice.matching(stored, conditions), best or worst or 3
    if against is None:
        shown = stored, len(met), choice.first(met, order, count)
        output(lambda: episodes_json(*shown), lambda: printed.show(*shown), as_json, wrap=True)
        return
    other = read(store, against_of(against, named, store), evaluation, demonstrations)
    twice = played_twice(met, other, stored.title)
    changed = most_changed(twice, order, count)
    output(
        lambda: both_json(stored, other, len(met), changed),
        lambda: show_both(stored, other, twice, len(met), changed),
        as_json,
        wrap=True,
    )


def score(
    run: Annotated[str, RUNS],
    /,
    *,
    reward: Annotated[tuple[str, ...], Parameter(required=True)],
    as_json: AsJson = False,
    store_uri: StoreArg = "",
) -> None:
    """Score stored episodes with other rewards.

    Args:
        run: RUN (all its steps), RUN@STEP or play:NAME
        reward: import path of a reward, or PATH=0.5 with a weight, or PATH={weight: 0.5, ...} with
            a weight and settings; may be repeated
    """
    store = store_at(store_uri)
    named, rewards = reference(run_named(store, run)), new_rewards(reward)
    if isinstance(named, PlayReference):
        name, steps = f"play:{named.name}", iter([rescored_play(store, named.name, rewards)])
    else:
        name, steps = named.run, rescored(store, named.run, named.step, rewards)
    all_of = name, rewards, TwiceScored.of(steps), store
    output(lambda: rescored_view.as_json(*all_of), lambda: rescored_view.view(*all_of), as_json)


def import_traces(
    file: Path, target: ExperimentArg, /, *overrides: Override, where: Where = HERE
) -> None:
    """Store the chats or traces in a file as episodes.

    The experiment's rewards score the episodes. `agentfly show play:NAME` shows them.

    Args:
        file: a file with chats, TrainingTraces of OpenEnv, Traces of the library verifiers, or
            logged chat completions
    """
    from agentfly_core.pipeline.play import imported

    experiment = load_checked(where.of_flow(target, overrides))
    stored = imported.import_traces(experiment, file, typed.get())
    print(f"play:{stored.name}: {counted(stored.episodes, 'episode')}")
    print(f"The token ids of {stored.kept} of {counted(stored.traces, 'trace')} were kept.")
