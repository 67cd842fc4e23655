"""The budget of a chat service: how many requests and how many tokens."""

from __future__ import annotations

import threading

from agentfly_core.inference.endpoints.failures import BudgetSpent


class Budget:
    """Counts what one service is asked in a command, from any thread.

    `Budget("judge", requests=1000, tokens=2_000_000)`. Requests are counted before they are sent,
    repeated ones too, tokens when the answer is there: those in flight may pass the limit.
    """

    def __init__(self, name: str, requests: int, tokens: int) -> None:
        self._name, self._most_requests, self._most_tokens = name, requests, tokens
        self._lock, self._requests, self._tokens = threading.Lock(), 0, 0

    def take(self) -> None:
        """Count a request that is about to be sent; raises BudgetSpent where none is left."""
        with self._lock:
            self._refuse(self._requests, self._most_requests, "requests", "max_requests")
            self._refuse(self._tokens, self._most_tokens, "tokens", "max_tokens")
            self._requests += 1

    def spend(self, tokens: int) -> None:
        """Count the tokens of an answer."""
        with self._lock:
            self._tokens += tokens

    def _refuse(self, spent: int, most: int, what: str, setting: str) -> None:
        if spent >= most:
            raise BudgetSpent(
                f"The endpoint {self._name!r} has spent its budget, {spent} of {most} {what}. What "
                f"it answered is stored and not asked again: raise endpoints.{self._name}."
                f"{setting} of the site and run the same command again, or ask for less."
            )
