"""Budget and errors of a chat service."""

import threading

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.inference.sampler import NoReply


class EndpointLost(ServiceFailure):
    """All attempts of a request failed."""


class EndpointRefused(NoReply):
    """A service refuses a request, for example for a wrong key or model."""


class BudgetSpent(NoReply):
    """The budget is spent; the message names the setting to raise."""


class Budget:
    """The requests and tokens that a command may use: `Budget("judge", 1000, 2_000_000)`.

    Requests, including retries, are counted before they are sent, and tokens when the answer
    arrives. So requests in flight may exceed the limit. It is thread-safe, because episodes and
    scores run in different threads.
    """

    def __init__(self, name: str, requests: int, tokens: int) -> None:
        self._name, self._lock = name, threading.Lock()
        self._spent = {"max_requests": 0, "max_tokens": 0}
        self._most = {"max_requests": requests, "max_tokens": tokens}

    def take(self) -> None:
        """Count a request before it is sent; raises BudgetSpent."""
        with self._lock:
            for setting, spent in self._spent.items():
                if spent >= (most := self._most[setting]):
                    raise BudgetSpent(
                        f"The endpoint {self._name!r} has spent {spent} of {most} "
                        f"{setting.removeprefix('max_')}: raise endpoints.{self._name}.{setting} "
                        "of the site and repeat the command. Stored answers are reused."
                    )
            self._spent["max_requests"] += 1

    def spend(self, tokens: int) -> None:
        """Count the tokens of an answer."""
        with self._lock:
            self._spent["max_tokens"] += tokens
