"""Check that a model can be used with its own chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.inference.templates.probes import table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_template(tokenizer: PreTrainedTokenizerBase, **settings: Any) -> dict[str, str]:
    """Check that a tokenizer's own chat template works in training (the setting `template: model`).

    The template is tried on ten short conversations. Returns a text for each conversation. For
    example, "continues" means that new messages can be appended to the existing tokens.

        check_template(AutoTokenizer.from_pretrained("my-model"))["a call"]  # "continues"

    `settings` are settings of the template. Raises ValueError if the tokenizer cannot be used, or
    if the tokens of a prompt differ from the tokens that the served model would read.
    """
    verdicts = table(ModelTemplate(tokenizer, **settings))
    for name, verdict in verdicts.items():
        if verdict.startswith("refused"):
            raise ValueError(
                f"The chat template cannot be used for the conversation {name!r}: {verdict}."
            )
    return verdicts
