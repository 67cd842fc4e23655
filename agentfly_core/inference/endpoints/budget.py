"""Limit the requests and tokens that are spent at a chat service (remote model)."""

import threading

from agentfly_core.inference.sampler import NoReply


class BudgetSpent(NoReply):
    """The limit of requests or tokens is reached. The message names the setting with the limit."""


class Budget:
    """Limits the requests and tokens that a command may use at a chat service (remote model).

    Example: `Budget("judge", 1000, 2_000_000)` allows 1000 requests and 2 million tokens.

    Requests, including retries, are counted before they are sent. Tokens are counted when the
    answer arrives, so the answers of requests in flight may exceed the limit. The class is
    thread-safe, because episodes and rewards run in several threads.
    """

    def __init__(self, name: str, requests: int, tokens: int) -> None:
        self._name, self._lock = name, threading.Lock()
        self._spent = {"max_requests": 0, "max_tokens": 0}
        self._most = {"max_requests": requests, "max_tokens": tokens}

    def take(self) -> None:
        """Count a request before it is sent. Raises BudgetSpent if a limit is reached."""
        with self._lock:
            for setting, spent in self._spent.items():
                if spent >= (most := self._most[setting]):
                    raise BudgetSpent(
                        f"The endpoint {self._name!r} has used {spent} "
                        f"{setting.removeprefix('max_')}, and its limit is {most}. Raise "
                        f"endpoints.{self._name}.{setting} in the site's settings, and repeat the "
                        "command. Stored answers are reused."
                    )
            self._spent["max_requests"] += 1

    def spend(self, tokens: int) -> None:
        """Count the tokens of an answer."""
        with self._lock:
            self._spent["max_tokens"] += tokens
