"""The fields of a chat completion request, and how the gateway treats them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agentfly_core.system.formats.json_value import JSON


class Treatment(StrEnum):
    """How the gateway treats a field of a request.

    HONOURED fields take effect. NEUTRAL fields may have only a value that changes nothing.
    OVERRULED fields are ignored; a metric counts how often each of them is sent, and the first time
    is also logged. A request with a REFUSED field gets an error response.
    """

    HONOURED = "honoured"
    NEUTRAL = "neutral value only"
    OVERRULED = "ignored and counted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A rule for one field of a request: how the gateway treats the field.

    Example: `FieldRule(Treatment.NEUTRAL, "1 or 2", (1, 2))` accepts only the values 1 and 2.

    - `note`: a text for error messages; "1 or 2" in the example
    - `neutral`: the accepted values of a field with the treatment NEUTRAL
    """

    treatment: Treatment
    note: str = ""
    neutral: tuple[JSON, ...] = ()


def _neutral(*values: JSON) -> FieldRule:
    note = " or ".join(f"`{json.dumps(value)}`" for value in values)
    return FieldRule(Treatment.NEUTRAL, note, values)


def _honoured(note: str = "") -> FieldRule:
    return FieldRule(Treatment.HONOURED, note)


_IGNORED = (
    *("user", "metadata", "store", "service_tier", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *("reasoning_effort", "verbosity", "moderation"),
)
_REFUSED = ("functions", "function_call", "audio", "prediction", "web_search_options")
_AS_IN_TRAINING = "replies use the experiment's temperature, as training does"
FIELDS: Mapping[str, FieldRule] = {
    "messages": _honoured("texts, text parts, tool calls, `reasoning_content`"),
    "model": _honoured("selects the speaker; any name is accepted"),
    "tools": _honoured("functions"),
    "max_tokens": _honoured("at most `agent.max_tokens`"),
    "max_completion_tokens": _honoured("at most `agent.max_tokens`"),
    "stop": _honoured("only strings that `agent.stop` lists"),
    "n": _honoured("1 to 128"),
    "stream": _honoured("one chunk per reply"),
    "stream_options": _honoured("`include_usage`"),
    "logprobs": _honoured("tokens as `token_id:17`, without alternatives"),
    "chat_template_kwargs": _honoured("`enable_thinking`"),
    "temperature": FieldRule(Treatment.OVERRULED, _AS_IN_TRAINING),
    "seed": FieldRule(Treatment.OVERRULED, "seeds depend on the episode and the prompt"),
    **dict.fromkeys(_IGNORED, FieldRule(Treatment.OVERRULED)),
    "top_p": _neutral(1),
    "frequency_penalty": _neutral(0),
    "presence_penalty": _neutral(0),
    "top_logprobs": _neutral(0),
    "logit_bias": _neutral({}),
    "tool_choice": _neutral("auto"),
    "parallel_tool_calls": _neutral(True),
    "response_format": _neutral({"type": "text"}),
    "modalities": _neutral(["text"]),
    **dict.fromkeys(_REFUSED, FieldRule(Treatment.REFUSED)),
}
"""The rule of each field of a request. A field with the value null counts as absent. A field that
is missing in this mapping is refused.
"""
