"""1,000 replies of any text: always a message, its calls readable or not."""

import json
import random
from pathlib import Path

from transformers import AutoTokenizer

from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.trajectory import BadCall, Message, ToolCall

SEED = 15


SENT = '{"name": "look_up", "arguments": {"key": "é\\u00e9", "count": [1, 2.5, null, {"a": true}]}}'
CALL = f"<tool_call>\n{SENT}\n</tool_call>"
PIECES = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "{",
    "}",
    "[",
    '"',
    "\\",
    "\\ud800",
    "NaN",
    "1e999",
    "9" * 200,
    "[" * 200,
)
PIECES += (
    '"name": ',
    '"arguments": {}',
    "<|im_end|>",
    "<|im_start|>",
    "💥",
    ", ",
    ": ",
    "\0",
    "\n",
)


def random_reply(draw: random.Random) -> str:
    """A reply with calls, some of which are spoilt."""
    text = draw.choice(
        (CALL, f"I look.\n{CALL}", f"{CALL}\n{CALL}", "".join(draw.choices(PIECES, k=12)))
    )
    for _ in range(draw.choice((0, 1, 1, 2, 5))):
        start = draw.randrange(len(text) + 1)
        text = text[:start] + draw.choice((*PIECES, "")) + text[start + draw.choice((0, 1, 5)) :]
    return text


def test_1000_replies_are_read_as_text_and_calls_good_or_bad(nano: Path) -> None:
    draw, tokenizer = random.Random(SEED), AutoTokenizer.from_pretrained(nano)
    template, good = Hermes(tokenizer), 0
    for _ in range(1000):
        tokens = tokenizer(
            random_reply(draw), add_special_tokens=False, split_special_tokens=draw.random() < 0.5
        ).input_ids
        for _ in range(draw.choice((0, 0, 3))):
            tokens.insert(draw.randrange(len(tokens) + 1), draw.randrange(len(tokenizer)))
        reply = template.parse(tokens)
        assert isinstance(reply, Message)
        json.dumps(reply.content).encode()
        for call in reply.calls:
            assert isinstance(call, ToolCall | BadCall)
            if isinstance(call, ToolCall):
                good += 1
                json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()
    assert good > 200
