"""Check a model before training. All functions that training needs are tried on this machine."""

import asyncio
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from agentfly_core.authoring.chat_template import ChatTemplate, Conversation
from agentfly_core.config.parts import AgentPart
from agentfly_core.config.reference import LocalModel, model_reference
from agentfly_core.config.site import Site
from agentfly_core.inference import vllm_server
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request, Sampler, SamplingParams
from agentfly_core.inference.templates import probes
from agentfly_core.inference.templates.default import default_template
from agentfly_core.inference.templates.dialect import SCHEMA
from agentfly_core.inference.templates.model import ModelTemplate, reply_tokens, writer
from agentfly_core.inference.templates.text_encoder import TextEncoder
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.models import lora, model_config, pretrained, probe
from agentfly_core.models.known import require
from agentfly_core.records.trajectory import Message, Problem, Sampled
from agentfly_core.system.formats.text import fault, sentence
from agentfly_core.training.policy import Policy, load_policy
from agentfly_core.training.prefix_tree import PrefixTrees, build_trees, flatten

TEXTS = (
    "What is 41 + 58?",
    "  two spaces, a tab\tand a line\n\n",
    "Grüße, naïve café, 你好, здравствуйте, 🙂",
    '{"expression": "(3 - 1) * 2", "nested": {"list": [1, null, "\\\\n"]}}',
    "def f(x):\n    return x\r\n",
)
"""Texts that must be unchanged after a tokenizer has encoded and decoded them."""
LENGTH, SHARED, PROMPTS, REPLY = 64, 40, (24, 9, 3), 32
"""Lengths in tokens. LENGTH is the length of a test sequence. SHARED is the length of the common
prefix of two test sequences. PROMPTS has the lengths of the prompts in a batch. REPLY is the length
of each reply.
"""
PROBLEM = Problem("admission", "")
DATE = "2026-01-31"
"""The date for chat templates that need a date, while a model is checked. Experiments use the
setting `template.date` instead.
"""
NOISE = 0.05
"""Standard deviation of the noise that `_changed` adds to the weights of a model, as a multiple of
the standard deviation of each weight tensor.
"""
LEARNER_BYTES = 16
"""The number of bytes for a trained parameter, its gradient and its Adam states.

The number is the same for training in float32, and for training in bfloat16 with a float32 copy of
the weights (arXiv 1910.02054, section 3.1).
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of one check of a model.

    Example: `Proof("tokenizer", True, "49152 tokens, 5 texts decoded unchanged")`.
    """

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Candidate:
    """A model to check, with its dtype and the site (the settings of the machine).

    Example: `Candidate(Path("/tmp/x/policy"), "float32", Site())`.
    """

    folder: Path
    dtype: str
    site: Site

    def config(self) -> PreTrainedConfig:
        """Read the model's `config.json`."""
        config = model_config.of_reference(LocalModel(str(self.folder)))
        assert config
        return config

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, including the model's chat template."""
        return model_config.tokenizer(str(self.folder))

    def policy(self) -> Policy:
        """Load the model in the same way as the learner loads it."""
        return load_policy(str(self.folder), self.dtype).to(self.site.device)

    def plain(self) -> PreTrainedModel:
        """Load the model with transformers instead of the learner's code.

        The log-probabilities of this model are the expected values for the checks of the learner.
        """
        model = lora.load(self.folder, None, self.dtype)
        model.to(self.site.device)  # type: ignore[arg-type] # the decorator hides the method's type
        model.eval()
        return model

    def row(self) -> list[int]:
        """Return LENGTH random tokens, for which log-probabilities are compared.

        A text that the model generated might repeat tokens. With repeated tokens, a wrong attention
        mask might not be detected.
        """
        size = self.config().get_text_config(decoder=True).vocab_size
        return torch.randint(size, (LENGTH,), generator=torch.Generator().manual_seed(0)).tolist()


def admit(model: str, dtype: str, site: Site, scratch: Path) -> Iterator[Proof]:
    """Run all checks of a model, and yield the result of each check.

    The first check loads the files. If it fails, the other checks are skipped. `scratch` is an
    empty directory with room for three copies of the model.
    """
    candidate = Candidate(scratch / "policy", dtype, site)
    candidate.folder.mkdir()
    files = _tried("files", partial(_files, model, candidate))
    yield files
    if not files.passed:
        return
    tries: dict[str, Callable[[Candidate], str]] = {
        "architecture": _architecture,
        "tokenizer": _tokenizer,
        "template": _template,
        "tool call": _tool_call,
        "learner, rows": _rows,
        "learner, shared prefixes": _trees,
        "sampler transformers": partial(_sampler, serve=_in_process),
    }
    # vLLM is an optional dependency
    if importlib.util.find_spec("vllm"):
        tries["sampler vLLM"] = partial(_sampler, serve=_vllm)
    for name, attempt in {**tries, "memory": _memory}.items():
        yield _tried(name, partial(attempt, candidate))


def require_learnable(folder: Path, dtype: str, site: Site) -> None:
    """Raise ValueError if the learner and transformers compute different log-probabilities for a
    model.

    Only models that the learner can train are checked. Other models can still be sampled and
    evaluated.
    """
    candidate = Candidate(folder, dtype, site)
    # such a model can still be played and evaluated
    if not model_config.untrainable(candidate.config(), shares_prefixes=False):
        for attempt in (_rows, _trees):
            attempt(candidate)


def _tried(name: str, attempt: Callable[[], str]) -> Proof:
    try:
        return Proof(name, True, attempt())
    except ValueError as error:
        return Proof(name, False, str(error))
    except Exception as error:  # a model may raise errors of many types
        return Proof(name, False, sentence(fault(error)))


def _files(model: str, candidate: Candidate) -> str:
    require(model_reference(model))
    pretrained.materialise(model, candidate.folder, candidate.dtype)
    files = [path for path in candidate.folder.iterdir() if path.is_file()]
    return f"{sum(path.stat().st_size for path in files) / 2**20:,.0f} MiB, complete and finite"


def _architecture(candidate: Candidate) -> str:
    config = candidate.config()
    model_config.require_trainable(config, shares_prefixes=False)
    return config.model_type


def _tokenizer(candidate: Candidate) -> str:
    tokenizer = candidate.tokenizer()
    encoder = TextEncoder(tokenizer)
    for text in TEXTS:
        if (back := tokenizer.decode(list(encoder.encode(text)))) != text:
            raise ValueError(f"The tokenizer decodes the tokens of {text!r} as {back!r}.")
    return f"{len(tokenizer)} tokens, {len(TEXTS)} texts decoded unchanged"


def _chat_template(tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    try:
        return default_template(tokenizer)
    except ValueError:  # the template may need a date
        return ModelTemplate(tokenizer, date=DATE)


def _template(candidate: Candidate) -> str:
    template = _chat_template(candidate.tokenizer())
    if not isinstance(template, ModelTemplate):
        return "Hermes on ChatML"
    verdicts = probes.table(template)
    if refused := [f"{name}: {one}" for name, one in verdicts.items() if one.startswith("refused")]:
        raise ValueError("; ".join(refused))
    counts = Counter(verdict.partition(":")[0] for verdict in verdicts.values())
    return ", ".join(f"{kind} in {many}" for kind, many in counts.items()) + " conversations"


def _tool_call(candidate: Candidate) -> str:
    tokenizer = candidate.tokenizer()
    template = _chat_template(tokenizer)
    if isinstance(template, ModelTemplate):
        template = template.bound((SCHEMA,), None)
    message = Message("assistant", "", (probes.CALL,))
    text = writer(template)(message)
    calls = template.parse(reply_tokens(template, tokenizer, message)).calls
    if calls != (probes.CALL,):
        raise ValueError(
            f"The chat template writes a call as {text!r}, but this text is parsed as {calls}."
        )
    return repr(text)


def _rows(candidate: Candidate) -> str:
    row = candidate.row()
    return _compared(candidate, _learned(candidate.policy(), row), _expected(candidate, row))


def _trees(candidate: Candidate) -> str:
    config = candidate.config()
    if reasons := model_config.untrainable(config, shares_prefixes=True):
        return f"Not supported: {' '.join(reasons)}"
    one = candidate.row()
    # reversed, because the rows must differ right after the shared tokens
    other = one[:SHARED] + one[SHARED:][::-1]
    rows = torch.tensor([one, other])
    trees = build_trees(rows, torch.tensor([len(one)] * 2), 2 * len(one))
    order = torch.tensor(trees[0].rows)
    logprobs = _learned(candidate.policy(), rows[order].tolist(), flatten(rows[order], trees))
    expected = torch.cat([_expected(candidate, rows[index].tolist()) for index in order])
    return _compared(candidate, logprobs, expected)


def _sampler(
    candidate: Candidate, serve: Callable[[Candidate], AbstractContextManager[Sampler]]
) -> str:
    with serve(candidate) as sampler:
        sampler.load(candidate.folder, 0)
        # prompts of several lengths lead to padding in the batch
        prompts, policy = [candidate.row()[:length] for length in PROMPTS], candidate.policy()
        replies = asyncio.run(_replies(sampler, prompts))
        learned = [
            _learned(policy, [*prompt, *reply.tokens])[len(prompt) - 1 :]
            for prompt, reply in zip(prompts, replies, strict=True)
        ]
        sampled = torch.tensor([reply.logprobs for reply in replies])
        agrees = _compared(candidate, sampled, torch.stack(learned).cpu())
        sampler.load(_changed(candidate), 1)  # raises WrongWeights if the weights differ
    return f"{agrees}; weights swapped"


async def _replies(sampler: Sampler, prompts: Sequence[Sequence[int]]) -> list[Sampled]:
    # without stop tokens, all replies have REPLY tokens and can be stacked
    params = SamplingParams(1.0, REPLY, ())
    async with sampler.shard(len(prompts)) as session:
        requests = [
            Request(tuple(prompt), params, Conversation(PROBLEM, chain, 0, (), (), seed=chain))
            for chain, prompt in enumerate(prompts)
        ]
        return await asyncio.gather(*map(session.sample, requests))


@contextmanager
def _vllm(candidate: Candidate) -> Iterator[Sampler]:
    config = candidate.config()
    if candidate.site.device == "cpu":
        model_config.require_served_on_cpu(config)
    here, logs = candidate, candidate.folder.parent
    with vllm_server.served(
        here.folder, here.dtype, AgentPart(), here.site, logs, "admission", restarts=0
    ) as service:
        yield VLLM(service, here.dtype, 1)


def _in_process(candidate: Candidate) -> AbstractContextManager[Sampler]:
    return nullcontext(TransformersSampler(candidate.site.device, candidate.dtype))


def _changed(candidate: Candidate) -> Path:
    """Write a copy of the model with noise in all weights.

    The sampler under test loads the original model and then this copy, which tests the replacement
    of weights. The file `probe.json` of the copy contains tokens and their log-probabilities. The
    sampler must compute the same log-probabilities.
    """
    folder = candidate.folder.parent / "changed"
    if not folder.exists():
        model, draw = lora.load(candidate.folder, None, candidate.dtype), torch.Generator()
        for weight in model.parameters():
            # correction=0: a weight of one element has the deviation 0, not nan
            size = NOISE * weight.data.float().std(correction=0)
            noise = size * torch.randn(weight.shape, generator=draw.manual_seed(1))
            weight.data += noise.to(weight.dtype)
        folder.mkdir()
        pretrained.write(model, candidate.tokenizer(), folder)
    return folder


def _memory(candidate: Candidate) -> str:
    config = candidate.config()
    # on the device "meta", parameters have shapes but occupy no memory
    with torch.device("meta"):
        count = AutoModelForCausalLM.from_config(config).num_parameters()
    learner = count * LEARNER_BYTES
    sampler = count * getattr(torch, candidate.dtype).itemsize
    return (
        f"{count / 1e6:,.1f} M parameters; the learner needs {learner / 2**30:.1f} GiB plus "
        f"activations, the sampler needs {sampler / 2**30:.1f} GiB plus its cache"
    )


@torch.no_grad()
def _learned(policy: Policy, row: Sequence[int], trees: PrefixTrees | None = None) -> Tensor:
    """Compute the log-probabilities of a sequence of tokens (`row`) with the learner.

    The first token is left out.
    """
    tokens = torch.tensor(row, device=policy.model.device)
    tokens = tokens if tokens.dim() == 2 else tokens[None]
    sampled = torch.ones_like(tokens, dtype=torch.bool)
    # the first token has no context, so it has no log-probability
    sampled[:, 0] = False
    where = None if trees is None else trees.to(tokens.device)
    logprobs: Tensor = policy(tokens, sampled, 1.0, where)[0]
    return logprobs[sampled]


def _expected(candidate: Candidate, row: Sequence[int]) -> Tensor:
    """Compute the log-probabilities of a sequence of tokens (`row`) with transformers.

    The first token is left out.
    """
    return torch.tensor(probe.of_model(candidate.plain(), row))


def _compared(candidate: Candidate, logprobs: Tensor, expected: Tensor) -> str:
    """Describe the difference between two tensors of log-probabilities.

    Raises ValueError if the difference is larger than the tolerance for the model's dtype.
    """
    distances, limit = (logprobs.cpu() - expected).abs(), probe.TOLERANCE[candidate.dtype]
    # the median, because rounding to bfloat16 changes some unlikely tokens more
    distance = float(distances.max() if candidate.dtype == "float32" else distances.median())
    # `not <=`, because nan must not pass
    if not distance <= limit:
        raise ValueError(
            f"The log-probabilities differ from those of transformers by {distance:.2g}, expected "
            f"{limit:g} or less."
        )
    return f"log-probabilities differ by {distance:.1e}"
