"""A deterministic sampler that uses transformers in this process, for machines without vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, PreTrainedModel

from agentfly_core.inference.sampler import HiddenStates, Request, SamplerSession
from agentfly_core.inference.stop_strings import ReplyText, fast_tokenizer
from agentfly_core.models import lora
from agentfly_core.models.probe import Probe, of_model
from agentfly_core.records.trajectory import Finish, Sampled


class TransformersSampler:
    """A sampler that decodes the requests of all episodes in a shard as one batch.

    A shard contains episodes that run concurrently. An agent may run several branches, which
    request replies independently. A batch starts when all running branches of all episodes have
    requested a reply. Replies depend on the batch and the seed, but not on the order in which
    requests arrive. The generation settings in the policy directory are ignored. For greedy
    replies, log-probabilities at temperature 1 are returned. Decoding runs in its own thread.
    """

    def __init__(self, device: str = "cpu", dtype: str = "float32", threads: int = 1) -> None:
        self._device, self._dtype = device, dtype
        self._worker = ThreadPoolExecutor(1, "sampler", _have_threads, (threads,))
        self._loaded: tuple[Path, int] | None = None
        self._model: PreTrainedModel | None = None
        self._tokenized_in, self._digest = Path(), ""

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load a policy, and compare its log-probabilities with probe.json in the policy directory.

        If the policy is an adapter, `base` is the directory of its base model. Raises ValueError if
        the policy cannot be loaded. Raises WrongWeights if the log-probabilities differ too much.
        """
        if self._loaded != (policy, version):
            # the old policy is freed first, because memory may have room for only one policy
            self._model = self._loaded = None
            self._model = self._worker.submit(self._read, policy, base).result()
            self._loaded = policy, version
            self._tokenized_in = base or policy

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        yield _Shard(self, episodes)

    def rest(self) -> None:
        """Free cached GPU memory. The policy stays loaded."""
        if self._device != "cpu":
            torch.cuda.empty_cache()

    async def reply(self, requests: Sequence[Request]) -> list[Sampled]:
        """Sample the replies to the requests as one batch.

        The rows of the batch and the replies have the order of the requests.
        """
        assert self._loaded and self._model, "load a policy before a shard is played"
        version = self._loaded[1]
        model, loop = self._model, asyncio.get_running_loop()
        rows = await loop.run_in_executor(
            self._worker, lambda: _decode(model, list(map(self._row, requests)))
        )
        return [row.sampled(version) for row in rows]

    async def hidden(self, prompt: Sequence[int], layers: Sequence[int] | None) -> HiddenStates:
        """Return the hidden states at the last token of a prompt.

        `layers` are indices of layers; None means all layers. Raises ValueError for an unknown
        layer.
        """
        assert self._model, "load a policy before a shard is played"
        model, digest, loop = self._model, self._digest, asyncio.get_running_loop()
        # a separate forward pass, because in a batch the last bits would depend on the other
        # prompts
        return await loop.run_in_executor(self._worker, _hidden, model, digest, prompt, layers)

    def _row(self, request: Request) -> _Row:
        draw = torch.Generator().manual_seed(request.conversation.seed)
        if not (stop := request.params.stop):
            return _Row(request, draw)
        tokenizer = fast_tokenizer(self._tokenized_in)
        return _Row(request, draw, ReplyText(tokenizer, request.prompt, stop))

    def _read(self, policy: Path, base: Path | None) -> PreTrainedModel:
        model = lora.load(policy, base, self._dtype)
        model.to(self._device)  # type: ignore[arg-type] # the decorator hides the method's type
        model.eval()
        probe = Probe.of(policy, base)
        probe.require(of_model(model, probe.tokens), self._dtype, "transformers", policy)
        self._digest = probe.digest
        return model


def _have_threads(count: int) -> None:
    # after `set_num_threads`, MKL uses this number of threads also for small products
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


class _Shard(SamplerSession):
    waits_for_all: ClassVar[bool] = True

    def __init__(self, sampler: TransformersSampler, episodes: int) -> None:
        self._sampler, self._branches = sampler, episodes
        self._waiting: list[tuple[Request, asyncio.Future[Sampled]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def sample(self, request: Request) -> Sampled:
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._decode_when_all_wait()
        return await future

    async def hidden(
        self, prompt: Sequence[int], layers: Sequence[int] | None, speaker: str
    ) -> HiddenStates:
        return await self._sampler.hidden(prompt, layers)

    def open(self) -> None:
        self._branches += 1

    def close(self) -> None:
        self._branches -= 1
        self._decode_when_all_wait()

    def _decode_when_all_wait(self) -> None:
        # drop requests that were cancelled, for example at an episode's deadline
        self._waiting = [item for item in self._waiting if not item[1].done()]
        # The batch starts when the last branch waits, not after a timer. With a timer, the batch
        # and so the bits of the result would depend on the load of the machine.
        if self._waiting and len(self._waiting) >= self._branches:
            # the order of a batch changes the last bits of products, so it must not depend on
            # arrival
            self._waiting.sort(
                key=lambda one: (
                    *one[0].conversation.order,
                    one[0].conversation.seed,
                    tuple(one[0].prompt),
                )
            )
            task = asyncio.create_task(self._decode(self._waiting))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            self._waiting = []

    async def _decode(self, batch: Sequence[tuple[Request, asyncio.Future[Sampled]]]) -> None:
        try:
            replies = await self._sampler.reply([request for request, _ in batch])
        except Exception as error:  # passed to the callers that wait for replies
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), reply in zip(batch, replies, strict=True):
            if not future.done():
                future.set_result(reply)


@dataclass
class _Row:
    """A reply that is being decoded, as a row of the batch."""

    request: Request
    draw: torch.Generator
    text: ReplyText | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: Finish | None = None

    def add(self, token: int, logprob: float, entropy: float) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if self.request.params.entropies:
            self.entropies.append(entropy)
        if token in self.request.params.stop_tokens:
            self.finish = "stop"
        elif self.text and self.text.stops_at(token):
            self.finish = "stop_string"
        elif len(self.tokens) == self.request.params.max_tokens:
            self.finish = "length"

    def sampled(self, version: int) -> Sampled:
        assert self.finish
        tokens, logprobs = tuple(self.tokens), tuple(self.logprobs)
        return Sampled(tokens, logprobs, version, self.finish, tuple(self.entropies))


@torch.inference_mode()
def _decode(model: PreTrainedModel, rows: list[_Row]) -> list[_Row]:
    prompts = [torch.tensor(row.request.prompt) for row in rows]
    ones = [torch.ones_like(prompt) for prompt in prompts]
    tokens = pad_sequence(prompts, batch_first=True, padding_side="left").to(model.device)
    mask = pad_sequence(ones, batch_first=True, padding_side="left").to(model.device)
    going = rows
    cache = DynamicCache(config=model.config)
    while True:
        # positions count tokens, not columns, so that padding on the left does not shift a prompt
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        # the cache is a positional argument, because transformers 5.24 renamed it
        out = model(tokens, mask, positions, cache, use_cache=True, logits_to_keep=1)
        logits = out.logits[:, -1]  # [rows, vocabulary]
        for row, token, logprob, entropy in zip(going, *_choose(logits, going), strict=True):
            row.add(token, logprob, entropy)
        stay = [i for i, row in enumerate(going) if not row.finish]
        if not stay:
            return rows
        mask = pad(mask, (0, 1), value=1)
        if len(stay) < len(going):
            going, mask = [going[i] for i in stay], mask[stay]
            chosen = torch.tensor(stay, device=model.device)
            # finished rows leave the batch, so that they are not decoded until the longest reply
            # ends
            cache.reorder_cache(chosen)  # type: ignore[arg-type] # any integer tensor works
        tokens = torch.tensor([[row.tokens[-1]] for row in going], device=model.device)


@torch.inference_mode()
def _hidden(
    model: PreTrainedModel, digest: str, prompt: Sequence[int], layers: Sequence[int] | None
) -> HiddenStates:
    row = torch.tensor([list(prompt)], device=model.device)
    out = model(row, output_hidden_states=True, use_cache=False, logits_to_keep=1)
    every = out.hidden_states
    chosen = tuple(range(len(every)) if layers is None else layers)
    if strange := [layer for layer in chosen if layer not in range(len(every))]:
        raise ValueError(f"Got layer {strange[0]}, expected 0 to {len(every) - 1} for this model.")
    values = torch.stack([every[layer][0, -1].float() for layer in chosen])
    return HiddenStates(chosen, values.cpu().numpy(), digest)


def _choose(logits: Tensor, rows: Sequence[_Row]) -> tuple[list[int], list[float], Sequence[float]]:
    """Choose the next token of each row. Return tokens, log-probabilities and entropies.

    Entropies are computed if at least one row requests them. Otherwise, all entropies are 0. Tokens
    are drawn by inverse transform sampling in float64.
    """
    temperature = torch.tensor(
        [[row.request.params.temperature] for row in rows], device=logits.device
    )
    greedy = temperature == 0
    logprobs = torch.log_softmax(logits.float() / temperature.masked_fill(greedy, 1.0), dim=-1)
    cumulative = logprobs.double().exp().cumsum(-1)
    draws = torch.cat(
        [torch.rand(1, 1, generator=row.draw, dtype=torch.float64) for row in rows]
    ).to(logits.device)
    # scaled by the sum of the probabilities, which is not exactly 1 after rounding
    drawn = torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True)
    chosen = torch.where(greedy, logprobs.argmax(-1, keepdim=True), drawn)
    entropies: Sequence[float] = [0.0] * len(rows)
    if any(row.request.params.entropies for row in rows):
        entropies = torch.special.entr(logprobs.exp()).sum(-1).tolist()
    return chosen.squeeze(1).tolist(), logprobs.gather(1, chosen).squeeze(1).tolist(), entropies
