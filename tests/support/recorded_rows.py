"""Sampled spans of an episode's record, each with all tokens before it."""

from collections import defaultdict
from collections.abc import Iterator

from agentfly_core.records.trajectory import Trajectory

Generated = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]
"""Tokens of a prompt, tokens of its reply, and their log-probabilities."""


def rows(trajectory: Trajectory) -> Iterator[Generated]:
    """Each sampled span with the tokens before it in its row."""
    contexts: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    for turn in trajectory.turns:
        contexts[turn.context] += turn.given.tokens
        for span in turn.sampled:
            yield contexts[turn.context], span.tokens, span.logprobs
            contexts[turn.context] += span.tokens
