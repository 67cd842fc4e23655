"""Variables that a chat template reads, such as the switch of reasoning and the date."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean

NOT_VARIABLES = {"messages", "tools", "documents", "add_generation_prompt"}
SWITCHES = ("enable_thinking", "thinking")
"""Names of the variables with which templates switch reasoning on or off."""


def jinja_of(tokenizer: PreTrainedTokenizerBase, tools: Sequence[dict[str, JSON]]) -> str:
    """Return the Jinja text of a tokenizer's chat template for conversations with tools.

    Raises ValueError if the tokenizer lacks a chat template.
    """
    if not tokenizer.chat_template:
        raise ValueError("template: the model has no chat template. Set template=hermes.")
    return str(tokenizer.get_chat_template(tools=[*tools]))


def switch_of(jinja: str, variables: Mapping[str, JSON]) -> str:
    """Return the name of the variable with which a chat template (`jinja`) switches reasoning on or
    off. Return "" if the template has no such variable.

    Raises ValueError if `variables` contains a variable that the template does not read.
    """
    from jinja2 import Environment, meta  # imported here, because only this function needs it

    # removed, because Jinja does not support the tag `generation` of transformers
    text = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", jinja)
    syntax = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    own = meta.find_undeclared_variables(syntax) - NOT_VARIABLES
    for name in variables:
        if name not in own:
            raise ValueError(
                f"template.{name}: this model's chat template reads no such variable."
                f"{did_you_mean(name, sorted(own))}"
            )
    return next((name for name in SWITCHES if name in own), "")


def with_date(jinja: str, variables: Mapping[str, JSON], date: str) -> dict[str, Any]:
    """Return the variables, plus the function `strftime_now` from which templates read the date.

    Raises ValueError if the template needs a date and `date` is empty.
    """
    dated = "strftime_now" in jinja and "date_string" not in variables
    if dated and not date:
        raise ValueError(
            "template.date: this model's chat template inserts the current date, so prompts would "
            "change every day. Set a date, such as template.date=2026-01-31."
        )
    try:
        now = {"strftime_now": datetime.fromisoformat(date).strftime} if date else {}
    except ValueError:
        raise ValueError(
            f"template.date: got {date!r}, expected a date such as 2026-01-31."
        ) from None
    return {**variables, **now}
