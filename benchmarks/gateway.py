"""Cost of a call in the gateway: CPU milliseconds by the number of earlier turns.

    python -m benchmarks.gateway [--turns 1 50 200] [--episodes 5]

A client in this process continues one conversation and sends back all earlier replies, which are
scripted. The benchmark measures the CPU time of the process from a request to its answer. This
includes the client's share (aiohttp; the body is encoded before) and the episode's record. The
table has medians over the episodes.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import aiohttp
from transformers import PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.gateway.server import served
from agentfly_core.gateway.session import GatewaySession
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.records.trajectory import Ending, Problem
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, saying
from benchmarks import harness

REPLY, QUESTION = "The sum of 41 and 58 is 99.", "And of 12 and 30?"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main() -> None:
    """Measure and print the table."""
    options = harness.parser(__doc__, turns=[1, 50, 200], episodes=5).parse_args()
    with templates() as by_name:
        rows = [
            [name, *(f"{spent[turn]:.2f}" for turn in options.turns)]
            for name, (template, tokenizer) in by_name.items()
            for spent in [costs(template, tokenizer, max(options.turns), options.episodes)]
        ]
    columns = ("template", *(f"CPU ms at turn {turn}" for turn in options.turns))
    title = f"{options.episodes} episodes of {max(options.turns)} turns, nano's tokens"
    harness.show(columns, rows, title)


@contextmanager
def templates() -> Iterator[Mapping[str, tuple[ChatTemplate, PreTrainedTokenizerBase]]]:
    """Yield the measured chat templates by name, each with its tokenizer."""
    with harness.nano_tokenizer() as tokenizer:
        hermes = Hermes(tokenizer)
        tokenizer.chat_template = CHATML
        model = ModelTemplate(tokenizer)
        yield {"hermes": (hermes, tokenizer), "model": (model, tokenizer)}


def costs(
    template: ChatTemplate, tokenizer: PreTrainedTokenizerBase, turns: int, episodes: int
) -> dict[int, float]:
    """Return the median CPU milliseconds of a call in each turn.

    The first turn has the number 1.
    """
    spent: dict[int, list[float]] = {turn: [] for turn in range(1, turns + 1)}
    encode = partial(tokenizer.encode, add_special_tokens=False)
    (stop,) = encode("<|im_end|>")
    sampler = Scripted(encode, stop, saying(*[REPLY] * turns))

    async def talking(episode: Episode) -> Ending:
        async with served(session := GatewaySession(episode, {})) as url:
            await session.result(_talk(url, spent), 3600.0)
        return Ending.NO_TOOL_CALLS

    spec = rollout_spec(
        agent=talking,
        template=template,
        max_turns=turns,
        max_tokens=100,
        max_model_len=1_000_000,
        deadline=3600.0,
    )
    for number in range(episodes):
        problem = Problem(f"p{number}", QUESTION)
        (trajectory, *_), *_ = asyncio.run(play_all(episode_specs(problem), spec, sampler))
        assert trajectory.error is None, trajectory.error
        assert len({turn.context for turn in trajectory.turns}) == 1
    return harness.medians(spent)


async def _talk(url: str, spent: Mapping[int, list[float]]) -> None:
    """Play a turn for each key of `spent`, and append the milliseconds of its call."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    async with aiohttp.ClientSession(raise_for_status=True) as client:
        for turn in spent:
            body = json.dumps({"model": "any", "messages": messages}).encode()
            begin = time.process_time()
            async with client.post(f"{url}/chat/completions", data=body) as response:
                answer = await response.read()
            spent[turn].append(1000 * (time.process_time() - begin))
            messages.append(json.loads(answer)["choices"][0]["message"])
            messages.append({"role": "user", "content": QUESTION})


if __name__ == "__main__":
    main()
