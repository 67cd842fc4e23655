"""The command that serves a trained policy."""

from dataclasses import replace
from typing import Annotated

from agentfly_core.config import loading
from agentfly_core.config.reference import run_policy
from agentfly_core.experiment.checks import check_place
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.pipeline.play.players import ModelPlayer
from agentfly_core.runs.listing import run_named
from agentfly_core.runs.run import experiment_of_run, known_run
from flows.cli.arguments import HERE, RUNS, Where
from flows.local.display import logging_to
from flows.local.state_dirs import settle
from flows.store import store_at


def serve(policy: Annotated[str, RUNS], /, *, port: int = 8000, where: Where = HERE) -> None:
    """Serve the policy of a run by OpenAI's API.

    For example `agentfly serve mine`. It prints OPENAI_BASE_URL and OPENAI_API_KEY for clients, and
    answers until Ctrl-C. Template, temperature, `max_tokens` and `max_model_len` are the same as in
    evaluations. Replies that clients send back keep their tokens, as in training. Conversations are
    not stored.

    Args:
        policy: run:NAME (its last policy), run:NAME@STEP (0: before step 1)
        port: port on 127.0.0.1; 0 for any free port
    """
    from agentfly_core.pipeline.play.served import PolicyToServe  # loads aiohttp

    site = loading.site(where.site, where.store)
    store = store_at(site.store)
    wanted = run_policy(run_named(store, policy))
    named = of_run(store, wanted, "policy")
    experiment = replace(experiment_of_run(known_run(store, named.run), store), site=site)
    check_place(experiment.settings, site)
    player, logs = ModelPlayer(str(wanted), named.policy), settle().state / "logs" / "serve"

    def ready(url: str, key: str) -> None:
        print(f"{wanted} is served. Ctrl-C ends it.", flush=True)
        print(f"export OPENAI_BASE_URL={url}\nexport OPENAI_API_KEY={key}", flush=True)

    try:
        with logging_to(logs / "serve.log"):
            PolicyToServe(experiment, player, port).serve(logs, ready)
    except KeyboardInterrupt:
        print("Stopped.")
