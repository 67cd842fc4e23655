"""The command that serves a trained policy."""

from typing import Annotated

from agentfly_core.config import loading
from flows.cli.arguments import RUNS, Where
from flows.local.display import logging_to
from flows.local.state_dirs import settle
from flows.store import store_at


def serve(policy: Annotated[str, RUNS], /, *, port: int = 8000, where: Where = Where()) -> None:
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
    served = PolicyToServe.of_run(store_at(site.store), policy, site, port)
    logs = settle().state / "logs" / "serve"

    def ready(url: str, key: str) -> None:
        print(f"{served.player.reference} is served. Ctrl-C ends it.", flush=True)
        print(f"export OPENAI_BASE_URL={url}\nexport OPENAI_API_KEY={key}", flush=True)

    try:
        with logging_to(logs / "serve.log"):
            served.serve(logs, ready)
    except KeyboardInterrupt:
        print("Stopped.")
