"""The settings of a site (the machine that runs experiments): sampler, learner, devices, threads
and memory.
"""

import importlib.util
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from agentfly_core.config.credentials import VARIABLE
from agentfly_core.config.mismatch import UNSHOWN
from agentfly_core.config.reference import NAME
from agentfly_core.config.section import Positive, Section
from agentfly_core.system import hardware
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean, redact

T = TypeVar("T")
Gpus = tuple[Annotated[int, Field(ge=0)], ...]


def _without_secret(instead: str) -> AfterValidator:
    """Return a validator that refuses a URI with a secret.

    The error message does not show the secret. The message ends with the text `instead`. This text
    explains where to put the secret.
    """

    def check(uri: str) -> str:
        if redact(uri) != uri:
            raise PydanticCustomError(
                UNSHOWN, f"got a URI with a secret, which would be stored with runs; {instead}"
            )
        return uri

    return AfterValidator(check)


def _variable(held: str, example: str) -> AfterValidator:
    """Return a validator that refuses a text which is not the name of an environment variable.

    `held` describes the content of the expected variable, such as "the key". `example` is the name
    of such a variable. The error message contains both texts. The refused text may be a secret, so
    the message does not contain this text.
    """

    def check(name: str) -> str:
        if name and not VARIABLE.fullmatch(name):
            raise PydanticCustomError(
                UNSHOWN,
                f"expected the name of an environment variable with {held}, such as {example}",
            )
        return name

    return AfterValidator(check)


_Uri = Annotated[
    str, _without_secret("set MLFLOW_TRACKING_PASSWORD for MLflow, and AWS_* variables for S3")
]


def _counted(workers: T) -> T | JSON:
    """Convert `{"use": "local", "count": 2}` to the number of workers. Keep any other value."""
    match workers:
        case {"use": "local", "count": int(count)}:
            return count
    return workers


def _places(site: Mapping[str, Any]) -> int:
    if hostfile := site["hostfile"]:
        return sum(hardware.slots(hostfile).values())
    return max(1, len(site["learner_gpus"]))


class Endpoint(Section):
    """A chat service in OpenAI's format: `{url: "https://api.openai.com/v1", model: gpt-5-mini,
    api_key_env: OPENAI_API_KEY}`.

    `max_requests` limits the number of requests, including retries, of one agentfly command such as
    `agentfly train`. `max_tokens` limits the total number of tokens in the prompts and replies of
    the command. `extra` has further fields of each request. `extra: {temperature: null}` removes
    the field `temperature` from requests.
    """

    url: Annotated[
        str,
        Field(pattern=r"^https?://[^\s?#]+$"),
        _without_secret("set api_key_env to the name of an environment variable with the key"),
    ]
    model: str
    api_key_env: Annotated[str, _variable("the key", "OPENAI_API_KEY")] = ""
    extra: dict[str, Any] = Field(default_factory=dict)
    timeout: Annotated[float, Field(gt=0)] = Field(
        default=120.0, description="seconds of an attempt"
    )
    attempts: Positive = 5
    concurrency: Positive = 8
    max_answer_bytes: Positive = 1_048_576
    max_requests: Positive = 10_000
    max_tokens: Positive = 10_000_000


class Site(Section):
    """The settings of the machine, or of the machines, where an experiment runs.

    The settings are recorded with a run, and may change when the run continues.
    """

    name: str = "local"
    store: _Uri = "."
    sampler: Literal["vllm", "transformers"] = (
        # vLLM is an optional dependency
        "vllm" if importlib.util.find_spec("vllm") else "transformers"
    )
    device: Literal["cpu", "cuda"] = "cpu"
    hostfile: str = Field(
        default="", description="learner's nodes in DeepSpeed's hostfile format, this machine first"
    )
    sampler_gpus: Gpus = Field(
        default_factory=lambda site: (0,) if site["device"] == "cuda" else ()
    )
    learner_gpus: Gpus = Field(
        default=(),
        description="this machine's GPUs for the learner, by default one per rank from GPU 0 on",
    )
    ranks: Positive = Field(default_factory=_places)
    zero_stage: Annotated[int, Field(ge=0, le=3)] = Field(
        # ZeRO divides states among ranks, so it does nothing for a single rank
        default_factory=lambda site: 0 if site["ranks"] == 1 else 1
    )
    offload: Literal["none", "optimizer", "all"] = Field(
        default="none",
        description=("keep the optimizer state, or with `all` also the weights, in host memory"),
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="recompute activations in the backward pass instead of storing them",
    )
    token_budget: Positive = Field(
        default=1024, description="tokens of one micro-batch, padding included"
    )
    threads: Positive = Field(default_factory=lambda: os.cpu_count() or 1)
    vllm_memory_gib: Annotated[float, Field(gt=0)] = 0.5
    concurrency: Positive = Field(default=32, description="requests in flight at the sampler")
    workers: Annotated[int, Field(ge=0), BeforeValidator(_counted)] = Field(
        default=0,
        description="number of processes that play episodes, by default 1 for `train` and "
        "`evaluate`; with 0, the process of the command plays",
    )
    programs: Positive = Field(
        default=128,
        description="number of programs of `agent: {use: program}` that run at the same time",
    )
    slots: Positive = Field(
        default=1,
        description=("number of runs that Prefect workers execute at the same time on a CPU"),
    )
    # not TMPDIR, which differs between users
    locks: str = Field(default="/tmp", description="folder with the locks on GPUs and run slots")
    mlflow_tracking_uri: _Uri = ""
    ping_url_env: Annotated[str, _variable("the URL", "PING_URL")] = Field(
        default="",
        description="name of the environment variable with a URL to call after each night",
    )
    endpoints: dict[Annotated[str, Field(pattern=f"^{NAME}$")], Endpoint] = Field(
        default_factory=dict,
        description="chat services by name, for `--policy endpoint:NAME` and `agent.frozen`",
    )
    price_per_hour: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of an hour in your currency, for reports"
    )

    @field_validator("sampler_gpus", "learner_gpus", mode="before")
    @classmethod
    def _listed(cls, gpus: T) -> T | list[str]:
        """Convert a text such as `1,2,3` from an environment variable to a list of texts."""
        return str(gpus).split(",") if isinstance(gpus, str | int) else gpus

    @field_validator("sampler_gpus", "learner_gpus")
    @classmethod
    def _distinct(cls, gpus: tuple[int, ...]) -> tuple[int, ...]:
        if len({*gpus}) < len(gpus):
            raise ValueError("expected each GPU only once")
        return gpus

    @field_validator("hostfile")
    @classmethod
    def _readable(cls, hostfile: str) -> str:
        if hostfile:
            hardware.slots(hostfile)
        return hostfile

    @field_validator("endpoints", mode="before")
    @classmethod
    def _written_as_json(cls, endpoints: T) -> T | JSON:
        """Parse a JSON text from an environment variable, and keep any other value."""
        return strict_json.parse(endpoints) if isinstance(endpoints, str) else endpoints

    @model_validator(mode="after")
    def _fits_the_device(self) -> Self:
        needed = {"none": 0, "optimizer": 1, "all": 3}[self.offload]
        if self.zero_stage < needed:
            raise ValueError(
                f"got offload {self.offload!r}, which needs zero_stage {needed} or more, but "
                f"zero_stage is {self.zero_stage}"
            )
        if needed and self.device == "cpu":
            raise ValueError(
                f"got offload {self.offload!r} with `device: cpu`; remove offload, because it "
                "frees only GPU memory"
            )
        sampler, learner = list(self.sampler_gpus), list(self.learner_gpus)
        if bool(sampler) != (self.device == "cuda") or (learner and self.device == "cpu"):
            raise ValueError(
                f"got sampler_gpus {sampler} and learner_gpus {learner} with `device: "
                f"{self.device}`. {'Remove both' if self.device == 'cpu' else 'Set sampler_gpus'}"
            )
        if self.sampler == "transformers" and len(sampler) > 1:
            raise ValueError(
                f"got sampler_gpus {sampler}, but `sampler: transformers` uses only one GPU: "
                "list one number"
            )
        return self

    @model_validator(mode="after")
    def _ranks_fit_the_places(self) -> Self:
        if (places := sum(map(len, self.nodes.values()))) != self.ranks:
            shown = "; ".join(
                f"{name} {','.join(map(str, here))}" for name, here in self.nodes.items()
            )
            raise ValueError(
                f"got {self.ranks} ranks, but learner_gpus or the hostfile sets "
                f"{places} ranks ({shown}): remove `ranks`, or change learner_gpus or the hostfile"
            )
        return self

    def endpoint(self, name: str) -> Endpoint:
        """Return the chat service with this name. Raises ValueError for an unknown name."""
        if name not in self.endpoints:
            hint = did_you_mean(name, list(self.endpoints))
            raise ValueError(
                f"The site {self.name!r} has no endpoint {name!r}.{hint} Add it to "
                f"conf/site/{self.name}.yaml: "
                f'endpoints: {{{name}: {{url: "https://...", model: ..., api_key_env: ...}}}}.'
            )
        return self.endpoints[name]

    @property
    def nodes(self) -> dict[str, tuple[int, ...]]:
        """The learner's workers on each node, as indices: `{"localhost": (0, 1, 2)}`.

        On GPUs, the index of a worker is the index of the worker's GPU. With `learner_gpus: [1, 2,
        3]`, the workers on the first node have the indices (1, 2, 3).
        """
        counts = hardware.slots(self.hostfile) if self.hostfile else {"localhost": self.ranks}
        nodes = {name: tuple(range(count)) for name, count in counts.items()}
        return {**nodes, next(iter(nodes)): self.learner_gpus} if self.learner_gpus else nodes

    @property
    def gpus(self) -> tuple[int, ...]:
        """The indices of the GPUs of this machine that the sampler and the learner use."""
        learner = next(iter(self.nodes.values())) if self.device == "cuda" else ()
        return tuple(sorted({*self.sampler_gpus, *learner}))

    @property
    def shares_gpus(self) -> bool:
        """Whether vLLM and the learner use the same GPU, and therefore take turns."""
        learner = next(iter(self.nodes.values()))
        return self.sampler == "vllm" and not {*self.sampler_gpus}.isdisjoint(learner)
