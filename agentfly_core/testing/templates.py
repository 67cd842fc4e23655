"""Check that a model can be played in its own chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.inference.templates.probes import table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_template(tokenizer: PreTrainedTokenizerBase, **settings: Any) -> dict[str, str]:
    """Return what `template: model` does with ten short conversations of this tokenizer.

        check_template(AutoTokenizer.from_pretrained("my-model"))["a call"]  # "continues"

    `settings` are those of the template. Raises ValueError for a tokenizer that cannot be used, and
    for a prompt with other tokens than the served one.
    """
    verdicts = table(ModelTemplate(tokenizer, **settings))
    for name, verdict in verdicts.items():
        if verdict.startswith("refused"):
            raise ValueError(f"The chat template with {name}: {verdict}.")
    return verdicts
