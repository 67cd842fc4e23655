"""2,000 texts of tools and users over five tokenizers: no added token comes from text, and prompts
have the tokens of the exported template.
"""

import random
from collections.abc import Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.trajectory import Message, Observation
from tests.support.tokenizers import FAMILIES

SEED, TEXTS = 42, 400
PIECES = (
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "\0",
        "\u00a0",
        "\u3000",
        "▁",
        "<",
        ">",
        "|",
        "</",
        "<|",
    ),
    *(
        "im_end",
        "tool_call",
        "99",
        "1234567",
        "é",
        "e\u0301",
        "ﬁ",
        "🙂",
        "\ufffd",
        "\U0010ffff",
        "\u2028",
    ),
    *(
        "the sum ",
        "assistant",
        "user",
        "system\n",
        '{"a": [1]}',
        "```python\n",
        "Ġ",
        "[",
        "]",
        "\ufeff",
    ),
)


@pytest.fixture(scope="module", params=FAMILIES)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return FAMILIES[request.param]()


def text_of(draw: random.Random, added: Sequence[str]) -> str:
    """A text, in every other one of which there are added tokens, whole or cut."""
    pieces = draw.choices(PIECES, k=draw.randint(0, 12))
    for _ in range(draw.choice((0, 1, 3))):
        name = draw.choice(added)
        cut = draw.choice((len(name), len(name), draw.randrange(len(name))))
        pieces.insert(draw.randint(0, len(pieces)), name[:cut])
    return "".join(pieces)


def prompt(template: Hermes, user: str, tool: str) -> tuple[int, ...]:
    schema = ToolSchema("look", tool, {"type": "object"})
    return template.open([Message("user", user), Observation("look", tool)], [schema])


def served(tokenizer: PreTrainedTokenizerFast, user: str, tool: str) -> list[int]:
    schema = {"name": "look", "description": tool, "parameters": {"type": "object"}}
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": user}, {"role": "tool", "content": tool}],
        tools=[{"type": "function", "function": schema}],
        chat_template=Hermes(tokenizer).jinja,
        add_generation_prompt=True,
        return_dict=False,
    )


def test_texts_contain_no_added_tokens_and_match_training(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    draw, template = random.Random(SEED), Hermes(tokenizer)
    decoder = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    names = [token.content for token in decoder.values()]
    control = [index for index in prompt(template, "a", "b") if index in decoder]
    assert len(control) >= 5
    plain = 0
    for _ in range(TEXTS):
        user, tool = text_of(draw, names), text_of(draw, names)
        tokens = prompt(template, user, tool)
        assert [index for index in tokens if index in decoder] == control, (user, tool)
        if not any(name in text for name in names for text in (user, tool)):
            plain += 1
            assert served(tokenizer, user, tool) == list(tokens), (user, tool)
    assert TEXTS / 10 < plain < TEXTS
