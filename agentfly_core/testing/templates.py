"""Check that a model can be used with its own chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.inference.templates.probes import table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_template(tokenizer: PreTrainedTokenizerBase, **settings: Any) -> dict[str, str]:
    """Try `template: model` with this tokenizer on ten short conversations; return the outcomes.

        check_template(AutoTokenizer.from_pretrained("my-model"))["a call"]  # "continues"

    `settings` are settings of the template. Raises ValueError for a tokenizer that cannot be used,
    and for a prompt whose tokens differ from those of the served model.
    """
    verdicts = table(ModelTemplate(tokenizer, **settings))
    for name, verdict in verdicts.items():
        if verdict.startswith("refused"):
            raise ValueError(f"The chat template with {name}: {verdict}.")
    return verdicts
