"""Commands that use a policy outside of training: play problems with it, and serve it."""

from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.types import Port, PositiveInt
from cyclopts.validators import mutually_exclusive

from agentfly_core.config import loading
from agentfly_core.pipeline.play.episodes import PlayRequest, prepare
from agentfly_core.pipeline.play.summary import figures
from agentfly_core.records.run_record import ModeName
from agentfly_core.runs.listing import in_store
from flows.cli.arguments import HERE, RUNS, ExperimentArg, Override, Where
from flows.experiments import load_checked
from flows.local.display import logging_to
from flows.local.playing import played_on_terminal
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole, output, typed
from flows.store import store_at

MODE = Group("Mode (one of)", sort_key=1, validator=mutually_exclusive)


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

    Args:
        policy: oracle (the function in warm_start.demonstrations, without deliberate mistakes),
            random, my_file:policy (your async function of a Conversation), base (the experiment's
            model), run:NAME (the last policy of a run), run:NAME@STEP, endpoint:NAME (a chat
            service, i.e. a model API in the site file), a model's folder or hub id, or a
            policy.json. Default: the last policy of the run that `agentfly train` creates with the
            same overrides. If this run is missing, the default is base
        episodes: number of episodes
        split: problems to play
        problem: play only the problem with this id
        live: play one episode after another, and show each turn
        chat: talk to the policy yourself
        as_json: print one JSON document
    """
    experiment = load_checked(where.of_flow(target, overrides))
    request = PlayRequest(policy, split, 1 if chat else episodes, problem, typed.get())
    mode: ModeName = "live" if live else "chat" if chat else "experiment"
    at_once = 1 if live else experiment.settings.rollout.shard
    prepared = partial(prepare, experiment, request, at_once)
    played = played_on_terminal(prepared, mode, VisibleConsole(stderr=as_json))
    if played is None:
        print("The chat is empty and was not stored.")
        return
    totals = figures(played, experiment.whole.goal)
    if chat:
        # there was no attempt at the problem
        totals = replace(totals, reward=None, success=None, success_by_task={})
    document = {"play": played.name, **asdict(totals)}
    reading = in_store(experiment.store, "agentfly", "show", f"play:{played.name}")
    lines = [*totals.lines(), f"Read them: {reading}"]
    output(lambda: document, lambda: "\n".join(lines), as_json)


def serve(policy: Annotated[str, RUNS], /, *, port: Port = 8000, where: Where = HERE) -> None:
    """Serve the policy of a run with OpenAI's API.

    The command prints OPENAI_BASE_URL and OPENAI_API_KEY for clients, and answers until Ctrl-C.
    Template, temperature, `max_tokens` and `max_model_len` are the same as in evaluations. If a
    client sends back an earlier reply, the prompt contains the tokens that were sampled for this
    reply, as in training. Conversations are not stored.

    Args:
        policy: run:NAME (the run's last policy), or run:NAME@STEP (0: before step 1)
        port: port on 127.0.0.1; 0 for any free port
    """
    from agentfly_core.pipeline.play.served import PolicyToServe  # loads aiohttp

    site = loading.site(where.site, where.store)
    served = PolicyToServe.of_run(store_at(site.store), policy, site, port)
    logs = settle().state / "logs" / "serve"

    def ready(url: str, key: str) -> None:
        print(f"{served.player.reference} is served. To stop the server: Ctrl-C", flush=True)
        print(f"export OPENAI_BASE_URL={url}\nexport OPENAI_API_KEY={key}", flush=True)

    try:
        with logging_to(logs / "serve.log"):
            served.serve(logs, ready)
    except KeyboardInterrupt:
        print("Stopped.")
