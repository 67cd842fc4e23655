"""Replies in a model's own chat template: their calls, ids, and whether they are rewritten."""

import copy
import re
from random import Random
from typing import Any

import pytest

from agentfly_core.inference.templates.call_formats import FORMATS
from agentfly_core.inference.templates.model import ModelTemplate, reply_tokens
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall
from tests.support.chat_templates import (
    HERMES,
    NATIVE,
    TOOLS,
    WITHOUT_TEXT,
    plain,
    some_call,
    template_of,
    tokenizer_of,
)

RESPONSE_TEMPLATE: dict[str, Any] = {
    "start_anchor": "<|im_start|>assistant\n",
    "defaults": {"role": "assistant"},
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"<<(?P<name>\w+)>>",
            "close": "<<end>>",
            "content": "json",
            "repeats": True,
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {},
    },
}


def test_replies_are_read_by_the_tokenizers_response_template():
    """Its calls are in none of our formats."""
    tokenizer = copy.copy(tokenizer_of("qwen3"))
    text = str(tokenizer.chat_template)
    text = text.replace('<tool_call>\\n{"name": "', "<<").replace('", "arguments": ', ">>")
    text = text.replace("}\\n</tool_call>", "<<end>>").replace("<tool_call>", "<<NAME>>")
    tokenizer.chat_template = text
    with pytest.raises(ValueError, match=r"Set template\.calls"):
        ModelTemplate(tokenizer, calls="").bound(TOOLS, None)
    tokenizer.response_template = RESPONSE_TEMPLATE
    template, encode = ModelTemplate(tokenizer).bound(TOOLS, None), reply_encoder(tokenizer)
    reply = template.parse(encode('<think>\n1+1\n</think>\n\nSo. <<search>>{"text": "a"}<<end>>'))
    call = ToolCall("search", {"text": "a"})
    assert reply == Message("assistant", "So.", (call,), reasoning="1+1")
    (bad,) = template.parse(encode("<<search>>{oops<<end>>")).calls
    assert isinstance(bad, BadCall) and "response_template refuses it" in bad.fault


def test_a_reply_that_the_template_refuses_is_read_in_our_format():
    tokenizer = copy.copy(tokenizer_of("qwen3"))
    calls = {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True}
    fields = {
        **RESPONSE_TEMPLATE["fields"],
        "tool_calls": {**calls, "transform": {"function": "{content}"}},
    }
    tokenizer.response_template = {**RESPONSE_TEMPLATE, "fields": fields}
    template, encode = ModelTemplate(tokenizer).bound(TOOLS, None), reply_encoder(tokenizer)
    call = '<tool_call>\n{"name": "search", "arguments": {"text": "a"}}\n</tool_call>'
    assert template.parse(encode(call)).calls == (ToolCall("search", {"text": "a"}),)
    reply = template.parse(encode(f"{call}<tool_call>oops</tool_call>"))
    assert [type(one) for one in reply.calls] == [ToolCall, BadCall]


@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("family", NATIVE + HERMES)
def test_a_mutated_reply_is_read_as_a_message_that_is_read_alike(family, count):
    template, encode, calls = template_of(family), reply_encoder(tokenizer_of(family)), 0
    signs = ["", "{", '"', "\n", "<", "é", "1", " ", "\\", *template.markup.stop]
    for seed in range(count):
        draw = Random(seed)
        thought = draw.choice(["", "1+1"])
        letters = [
            *template.reply_text(Message("assistant", "", (some_call(draw),), reasoning=thought))
        ]
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(letters))
            letters[place : place + draw.randint(0, 3)] = draw.choice(signs)
        reply = template.parse(encode("".join(letters)))
        broken = "|>" in reply.reasoning or (reply.content and plain(family) in WITHOUT_TEXT)
        broken = broken or not (reply.content or reply.calls)
        if not broken and all(getattr(call, "name", "") == "search" for call in reply.calls):
            again = template.parse(reply_tokens(template, template.tokenizer, reply))
            assert again.calls == reply.calls
            for part in ("reasoning", "content"):
                assert getattr(again, part).strip() == getattr(reply, part).strip()
            calls += len(reply.calls)
    assert calls > count / 30


@pytest.mark.parametrize("family", NATIVE + HERMES)
def test_a_reply_in_the_templates_own_words_is_not_rewritten(family):
    template = template_of(family)
    for seed in range(10):
        draw = Random(seed)
        calls = (some_call(draw),) if draw.random() < 0.5 else ()
        text = "" if calls else "The sum is 99."
        message = Message("assistant", text, calls)
        reply = template.parse(reply_tokens(template, template.tokenizer, message))
        assert (reply.content, reply.calls, reply.rewritten) == (text, calls, False)


@pytest.mark.parametrize(
    ("pieces", "rewritten"),
    [
        (["99"], False),
        (["<think>\n1+1\n</think>\n\n2"], False),
        (["<think>\n\n</think>\n\n2"], False),
        (["<think>1+1</think>2"], True),
        (["su", "m"], True),
        (['<tool_call>\n{"name": "search", "arguments": {"text": "a"}}\n</tool_call>'], False),
        (['<tool_call>\n{"name":"search","arguments":{"text":"a"}}\n</tool_call>'], True),
        (["<tool_call>\n{oops\n</tool_call>"], False),
        (["an <|im_start|>"], True),
    ],
)
def test_a_reply_is_rewritten_if_the_template_gives_it_other_tokens(pieces, rewritten):
    encode, template = reply_encoder(tokenizer_of("qwen3")), template_of("qwen3")
    tokens = [token for piece in pieces for token in encode(piece)]
    assert template.parse(tokens).rewritten == rewritten
    assert template.parse([*tokens, template.stop_tokens[0]]).rewritten == rewritten


MISTRAL = '[TOOL_CALLS][{"name": "search", "arguments": {"text": "a"}, "id": "aB3dE6gH9"}]'


def test_a_call_and_its_answer_have_the_id_that_the_model_wrote():
    template, tokenizer = template_of("mistral"), tokenizer_of("mistral")
    sampled = [*reply_encoder(tokenizer)(MISTRAL), template.stop_tokens[-1]]
    reply = template.parse(sampled)
    before, read = [Message("user", "?"), reply], [Observation("search", "é")]
    added = template.extend(sampled, read, before)
    assert added is not None
    assert '"call_id": "aB3dE6gH9"' in tokenizer.decode(added)
    assert (*template.open(before[:1], TOOLS), *sampled, *added) == template.open(
        [*before, *read], TOOLS
    )


@pytest.mark.parametrize("written", ["", ', "id": "too long to be one"', ', "id": 7'])
def test_a_call_without_a_usable_id_gets_the_same_one_each_time(written):
    template, tokenizer = template_of("mistral"), tokenizer_of("mistral")
    calls = [
        MISTRAL.replace(', "id": "aB3dE6gH9"', written).replace('"a"', a) for a in ('"a"', "1")
    ]
    replies = [template.parse(reply_encoder(tokenizer)(call)) for call in calls]
    ids = []
    for reply in replies:
        read = [Message("user", "?"), reply, Observation("search", "é")]
        text = tokenizer.decode(template.open(read, TOOLS))
        assert text == tokenizer.decode(template.open(read, TOOLS))
        ids.append(re.findall(r'"(?:call_)?id": "(\w{9})"', text))
    assert [len({*pair}) for pair in ids] == [1, 1]
    assert ids[0] != ids[1]


def test_the_id_before_the_arguments_is_read():
    text = '[TOOL_CALLS]search[CALL_ID]aB3dE6gH9[ARGS]{"text": "a"}'
    ((_, _, call),) = FORMATS["mistral-args"].calls(text, {})
    assert call == ToolCall("search", {"text": "a"})
    assert call.id == "aB3dE6gH9"
