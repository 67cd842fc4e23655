"""The chat template of an experiment without `template`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.inference.templates.chatml import TOOLS, Hermes
from agentfly_core.inference.templates.chatml_jinja import jinja_text
from agentfly_core.inference.templates.model import ModelTemplate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def default_template(tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    """Return the model's own chat template.

    Hermes is used for models without one, for nano models and for exports of Hermes.

    The choice depends only on the tokenizer: equal models get the same template. Settings
    can choose another template, see `TemplatePart`. Raises ValueError for a template that cannot be
    used.
    """
    from agentfly_core.models.nano import CHATML  # it loads transformers, which takes seconds

    own = tokenizer.chat_template
    if not own or own in (CHATML, jinja_text(TOOLS)):
        return Hermes(tokenizer)
    if own == jinja_text(None):
        return Hermes(tokenizer, show_tools=False)
    return ModelTemplate(tokenizer)
