"""Families whose chat templates the tests render, as rows of a table for users."""

from dataclasses import dataclass

from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.inference.templates.probes import table
from tests.support import model_families
from tests.support.chat_templates import OPTIONS, plain, tokenizer_of

PROBES = ("a reply", "a call", "reasoning and a call")
WORDS = {"continues": "continues", "opens a context": "new"}


@dataclass(frozen=True)
class Family:
    """A family with its template in tests, and the vocabulary of its tokenizer there.

    `trained` is the architecture that tests train, "" for none, and `author` wrote the template.
    """

    title: str
    template: str
    tokenizer: str
    trained: str = ""
    author: str = "own"

    @property
    def row(self) -> str:
        """The family as a row: what is real, the format of calls, and three of the probes."""
        options = OPTIONS.get(plain(self.template), {})
        template = ModelTemplate(tokenizer_of(self.template), **options)
        verdicts = table(template)
        assert not self.trained or self.trained in model_families.FAMILIES
        calls = template.markup.calls if template.markup.dialect.native else "Hermes text"
        cells = [self.title, self.author, self.tokenizer, self.trained or "-", calls]
        return f"| {' | '.join(cells + [WORDS[verdicts[probe]] for probe in PROBES])} |"


OWN, SUBSTITUTE = "own", "Qwen2.5's"
FAMILIES = (
    Family("Qwen2.5", "qwen2_5", OWN, "qwen2.5"),
    Family("Qwen3", "qwen3", OWN, "qwen3"),
    Family("Qwen3.5", "qwen3_5_think", OWN, "qwen3.5"),
    Family("Llama 3.0", "llama3-own", OWN, "llama3"),
    Family("Llama 3.1", "llama3_1-own", OWN, "llama3"),
    Family("Mistral", "mistral", OWN, "mistral", "mistral-common's"),
    Family("Gemma 3", "gemma3-own", OWN, "gemma3"),
    Family("R1 distills of Qwen", "deepseek_r1_distill", SUBSTITUTE, "qwen2.5"),
    Family("DeepSeek V3", "deepseekv3", OWN),
    Family("GLM 4.5", "glm4moe", SUBSTITUTE),
    Family("GPT-OSS", "gptoss-own", OWN),
    Family("Nemotron 3 Nano", "nemotron_3_nano", SUBSTITUTE, "nemotron-h"),
)
