"""The chat template that an experiment without the setting `template` uses."""

from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.inference.templates.chatml import TOOLS, Hermes
from agentfly_core.inference.templates.chatml_jinja import jinja_text
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.models.type_names import PreTrainedTokenizerBase


def default_template(tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    """Return the chat template of a model for the setting `template.use: default`.

    The result is the model's own chat template. In three cases, the result is instead Hermes, i.e.
    ChatML with tool calls as JSON:

    - The model lacks a chat template.
    - The model is a tiny built-in model (`nano` or `nano:<recipe>`).
    - The model was exported with the Jinja template of Hermes.

    The result depends only on the tokenizer. Raises ValueError if the model's template cannot be
    used.
    """
    from agentfly_core.models.nano import CHATML  # imports transformers, which takes seconds

    own = tokenizer.chat_template
    if not own or own in (CHATML, jinja_text(TOOLS)):
        return Hermes(tokenizer)
    if own == jinja_text(None):
        return Hermes(tokenizer, show_tools=False)
    return ModelTemplate(tokenizer)
