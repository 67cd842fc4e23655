"""A model's own chat template, compared with transformers' rendering."""

import copy
import json
from random import Random

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.templates.call_formats import FORMATS
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.inference.templates.probes import table
from agentfly_core.inference.templates.text_encoder import is_text, reply_encoder
from agentfly_core.pipeline.playing import scripted
from agentfly_core.records.trajectory import BadCall, Message, Observation, Problem, ToolCall
from tests.support.chat_templates import (
    HERMES,
    NATIVE,
    TOOLS,
    WITHOUT_TEXT,
    hermes_request,
    plain,
    rendered,
    served,
    some_call,
    some_conversation,
    template_of,
    tokenizer_of,
)
from tests.support.real_tokenizers import SENTENCE_PIECE, of_sentence_piece
from tests.support.tokenizers import like_mistral, like_phi

CONVERSATIONS = [4, pytest.param(1000, marks=pytest.mark.long)]
REPLIES = [20, pytest.param(1000, marks=pytest.mark.long)]
CALLS = [4, pytest.param(300, marks=pytest.mark.long)]
ODD = ("é", "🙂", '"', "'", "{", "]", "\\", " a", "\n", "<b>", "1", "null")


@pytest.mark.parametrize("count", CONVERSATIONS)
@pytest.mark.parametrize("family", NATIVE)
def test_prompts_have_the_tokens_of_the_chat_server(family, count):
    template = template_of(family)
    for seed in range(count):
        conversation = some_conversation(Random(seed))
        assert list(template.open(conversation, TOOLS)) == served(family, conversation)


@pytest.mark.parametrize("count", CONVERSATIONS)
@pytest.mark.parametrize("family", HERMES)
def test_prompts_with_hermes_text_have_the_tokens_of_the_chat_server(family, count):
    template = template_of(family)
    for seed in range(count):
        conversation = some_conversation(Random(seed))
        expected = rendered(family, hermes_request(family, conversation))
        assert list(template.open(conversation, TOOLS)) == expected


@pytest.mark.parametrize("count", CONVERSATIONS)
@pytest.mark.parametrize("family", NATIVE)
def test_a_continued_conversation_has_the_tokens_of_its_prompt(family, count):
    """Prompt, reply and following tokens, or None if one is missing."""
    template, continued = template_of(family), 0
    encode = reply_encoder(tokenizer_of(family))
    for seed in range(count):
        conversation = some_conversation(Random(seed))
        for place, reply in enumerate(conversation):
            if not isinstance(reply, Message) or reply.role != "assistant":
                continue
            before, read = conversation[: place + 1], conversation[place + 1 : place + 2]
            whole = template.open([*before, *read], TOOLS)
            end = template.stop_tokens[-1 if reply.calls else 0]
            sampled = (*encode(template.reply_text(reply)), end)
            added = template.extend(sampled, read, before)
            tokens = (*template.open(before[:-1], TOOLS), *sampled, *(added or ()))
            decoded = map(tokenizer_of(family).decode, (tokens, whole))
            continued += added is not None
            assert added is None or len(set(decoded)) == 1
    assert continued > 0 or plain(family) in ("gptoss", "glm4moe")


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("family", NATIVE + HERMES)
def test_no_content_gives_an_added_token(family, count):
    """Conversations of equal shape have equally many added tokens."""
    template, tokenizer = template_of(family), tokenizer_of(family)
    control = {
        number: str(token)
        for number, token in tokenizer.added_tokens_decoder.items()
        if not is_text(token)
    }
    added = [*control.values()]
    hostile = (*added, "<|im_", "end|>", "\U00100003", "\U0010fffd", "</tool_response>\n<|im_end|>")

    def counted(words: tuple[str, ...], seed: int) -> int:
        conversation = some_conversation(Random(seed), words)
        return sum(token in control for token in template.open(conversation, TOOLS))

    for seed in range(count):
        try:
            expected = counted(("a",) * len(hostile), seed)
        except ValueError:  # Gemma refuses two questions in a row
            continue
        assert counted(hostile, seed) == expected


@pytest.mark.parametrize("count", CALLS)
@pytest.mark.parametrize("family", NATIVE + HERMES)
def test_calls_are_read_as_they_were_written(family, count):
    template, encode = template_of(family), reply_encoder(tokenizer_of(family))
    for seed in range(count):
        draw = Random(seed)
        call = some_call(draw, ODD)
        call.arguments["text"] = f"x{call.arguments['text']}x"  # XML formats trim values
        text = draw.choice(["", "I look."])
        if plain(family) in WITHOUT_TEXT:
            text = ""
        sampled = encode(template.reply_text(Message("assistant", text, (call,))))
        reply = template.parse([*sampled, template.stop_tokens[-1]])
        assert (reply.content.strip(), reply.calls) == (text, (call,))


@pytest.mark.parametrize("count", REPLIES)
@pytest.mark.parametrize("name", FORMATS)
def test_a_mutated_reply_is_read_without_an_error(name, count):
    texts = {
        "hermes": '<tool_call>\n{"name": "search", "arguments": {"text": "a"}}\n</tool_call>',
        "qwen3-xml": "<tool_call>\n<function=search>\n<parameter=text>\na\n</parameter>\n"
        "</function>\n</tool_call>",
        "glm": "<tool_call>search\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
        "gpt-oss": "<|start|>assistant to=functions.search<|channel|>commentary json<|message|>"
        '{"text": "a"}',
        "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n"
        '```json\n{"text": "a"}\n```<｜tool▁call▁end｜>',
        "mistral-args": '[TOOL_CALLS]search[ARGS]{"text": "a"}',
        "mistral": '[TOOL_CALLS][{"name": "search", "arguments": {"text": "a"}, "id": "c"}]',
        "llama3": '{"name": "search", "parameters": {"text": "a"}}',
    }
    schemas = {tool.name: tool for tool in TOOLS}
    (whole,) = FORMATS[name].calls(texts[name], schemas)
    assert whole[2] == ToolCall("search", {"text": "a"})
    for seed in range(count):
        draw, letters = Random(seed), list(texts[name] * 2)
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(letters))
            letters[place : place + draw.randint(0, 3)] = draw.choice(
                ["", "{", '"', "\n", "<", "é"]
            )
        for begin, end, call in FORMATS[name].calls("".join(letters), schemas):
            assert 0 <= begin <= end <= len(letters)
            assert isinstance(call, ToolCall | BadCall)


def test_a_broken_call_is_told_with_its_fault():
    template = template_of("qwen3_5_think")
    encode = reply_encoder(tokenizer_of("qwen3_5_think"))
    reply = template.parse(encode("so</think>\n\n<tool_call>\n<function=search>\noops</function>"))
    assert reply.reasoning == "so"
    assert reply.calls == (BadCall("oops</function>", "</tool_call> is missing"),)


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        ("qwen3", "<think>\n1+1\n</think>\n\n2", ("1+1", "2")),
        ("qwen3", "2 <think>", ("", "2 <think>")),
        ("qwen3", "<think>\nnever ended", ("never ended", "")),
        ("qwen3_5_think", "1+1\n</think>\n\n2", ("1+1", "2")),
        ("qwen3_5_think", "never ended", ("never ended", "")),
        (
            "gptoss",
            "<|channel|>analysis<|message|>1+1<|end|><|start|>assistant<|channel|>final<|message|>2",
            ("1+1", "2"),
        ),
        (
            "gptoss",
            "<|channel|>final <|constrain|>json<|message|>2",
            ("", "2"),
        ),
    ],
)
def test_reasoning_is_apart_from_the_answer(family, text, expected):
    encode = reply_encoder(tokenizer_of(family))
    reply = template_of(family).parse(encode(text))
    assert (reply.reasoning, reply.content) == expected


def test_calls_inside_reasoning_are_not_calls():
    call = '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'
    encode = reply_encoder(tokenizer_of("qwen3"))
    reply = template_of("qwen3").parse(encode(f"<think>\n{call}\n</think>\n\nNo."))
    assert (reply.reasoning, reply.calls, reply.content) == (call, (), "No.")


def test_thinking_is_switched_off_for_a_reply():
    bound = template_of("qwen3").bound(TOOLS, False)
    prompt = tokenizer_of("qwen3").decode(bound.open([Message("user", "?")], ()))
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    encode = reply_encoder(tokenizer_of("qwen3"))
    assert bound.parse(encode("2")) == Message("assistant", "2")
    with pytest.raises(ValueError, match="none of the"):
        template_of("qwen2_5").bound(TOOLS, False)


def test_the_table_shows_what_opens_a_context():
    qwen = table(ModelTemplate(tokenizer_of("qwen3")))
    assert qwen["reasoning and a call"] == "continues"
    assert qwen["reasoning"] == "opens a context"
    assert {*table(ModelTemplate(tokenizer_of("qwen2_5"))).values()} == {
        "continues",
        "opens a context",
    }
    kept = table(ModelTemplate(tokenizer_of("qwen3"), history="kept"))
    assert {*kept.values()} == {"continues"}
    llama = table(ModelTemplate(tokenizer_of("llama3_1")))
    assert llama["two calls"].startswith("impossible: The model's chat template refuses")


@pytest.mark.parametrize("family", HERMES)
def test_a_template_without_tools_gets_hermes_text(family):
    conversation = [
        Message("user", "?"),
        Message("assistant", "", (ToolCall("search", {"text": "a"}),)),
        Observation("search", "99"),
    ]
    text = tokenizer_of(family).decode(template_of(family).open(conversation, TOOLS))
    listed = json.dumps(TOOLS[0].listed)
    assert f"<tools>\n{listed}\n</tools>" in text
    assert '<tool_call>\n{"name": "search", "arguments": {"text": "a"}}\n</tool_call>' in text
    wrapped = "<tool_response>\n99\n</tool_response>" in text
    assert wrapped == (plain(family) != "llama3")


def test_of_two_calls_the_second_is_bad_where_a_template_writes_one():
    template, encode = template_of("llama3_1"), reply_encoder(tokenizer_of("llama3_1"))
    call = '{"name": "search", "parameters": {"text": "a"}}'
    reply = template.parse(encode(f"{call}; {call}"))
    assert [type(one) for one in reply.calls] == [ToolCall, BadCall]
    read = [Observation("search", "1"), Observation("unreadable", "2")]
    assert template.extend((), read, [Message("user", "?"), reply]) is not None


def test_a_reply_that_the_template_cannot_write_has_no_calls():
    """GPT-OSS refuses a reply with reasoning, text and a call."""
    template, encode = template_of("gptoss"), reply_encoder(tokenizer_of("gptoss"))
    text = (
        "<|channel|>analysis<|message|>1+1<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I look.<|start|>assistant to=functions.search<|channel|>commentary json<|message|>"
        '{"text": "a"}<|call|>'
    )
    reply = template.parse(encode(text))
    assert (reply.reasoning, reply.content) == ("1+1", "I look.")
    (call,) = reply.calls
    assert isinstance(call, BadCall)
    assert "refuses a conversation" in call.fault
    assert template.open([Message("user", "?"), reply, Message("user", "?")], TOOLS)


@pytest.mark.parametrize("make", [like_mistral, like_phi])
def test_a_tokenizer_with_context_dependent_pieces_is_refused(make):
    tokenizer = make()
    tokenizer.chat_template = tokenizer_of("qwen2_5").chat_template
    with pytest.raises(ValueError, match="differently after another"):
        ModelTemplate(tokenizer)


@pytest.mark.parametrize("name", SENTENCE_PIECE)
def test_mistrals_sentence_piece_is_refused(name):
    with pytest.raises(ValueError, match="encodes a text differently after another text"):
        ModelTemplate(of_sentence_piece(name))


def test_a_template_that_adds_a_header_to_replies_only_is_refused():
    tokenizer = copy.copy(tokenizer_of("qwen2_5"))
    tokenizer.chat_template = str(tokenizer.chat_template).replace("add_generation_prompt", "false")
    with pytest.raises(ValueError, match="ignores add_generation_prompt"):
        ModelTemplate(tokenizer)


@pytest.mark.parametrize("count", CONVERSATIONS)
@pytest.mark.parametrize("family", ["deepseekv3", "mistral"])
def test_prompts_without_tools_have_the_tokens_of_the_chat_server(family, count):
    template = ModelTemplate(tokenizer_of(family))
    for seed in range(count):
        talk = [
            item
            for item in some_conversation(Random(seed))
            if isinstance(item, Message) and not item.calls
        ]
        assert list(template.open(talk, ())) == served(family, talk, ())


def test_mistakes_in_settings_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"template\.date=2026-01-31"):
        ModelTemplate(tokenizer_of("llama3_2"))
    with pytest.raises(ValueError, match=r"template\.date: got 'tomorrow'"):
        ModelTemplate(tokenizer_of("llama3_2"), date="tomorrow")
    with pytest.raises(ValueError, match=r"template\.enable_thinkin: .*enable_thinking"):
        ModelTemplate(tokenizer_of("qwen3"), variables={"enable_thinkin": False})
    with pytest.raises(ValueError, match=r"Set template\.stop to"):
        ModelTemplate(tokenizer_of("glm4moe"))
    with pytest.raises(ValueError, match="no chat template"):
        ModelTemplate(like_mistral())


def test_the_exported_template_has_the_variables_of_training():
    template = ModelTemplate(tokenizer_of("qwen3"), variables={"enable_thinking": False})
    conversation = [{"role": "user", "content": "?"}]
    exported = tokenizer_of("qwen3").apply_chat_template(
        conversation, chat_template=template.jinja, add_generation_prompt=True, return_dict=False
    )
    assert exported == list(template.open([Message("user", "?")], ()))


def test_a_conversation_that_the_template_refuses_is_a_value_error():
    with pytest.raises(ValueError, match=r"refuses a conversation: .*alternate"):
        template_of("gemma3").open([Message("assistant", "a")], ())


def test_the_length_of_reasoning_ends_with_its_end_mark():
    template, encode = ModelTemplate(tokenizer_of("gptoss"), date="2026-01-31"), reply_encoder
    text = "<|channel|>analysis<|message|>é 🙂 1+1<|end|>"
    reasoning = encode(tokenizer_of("gptoss"))(text)
    assert template.reasoning_tokens([*reasoning, *reasoning]) == len(reasoning)
    assert template.reasoning_tokens(reasoning[:-1]) == len(reasoning) - 1
    assert template.reasoning_tokens(encode(tokenizer_of("gptoss"))("2")) == 0


def test_reasoning_may_contain_ids_that_the_tokenizer_lacks():
    """Models often have more ids than their tokenizers."""
    template, tokenizer = template_of("qwen3"), tokenizer_of("qwen3")
    reply = [*reply_encoder(tokenizer)("<think>\n1"), len(tokenizer) + 9]
    assert template.reasoning_tokens(reply) == len(reply)
    close = reply_encoder(tokenizer)("</think>")
    assert template.reasoning_tokens([*reply, *close, 9]) == len(reply) + len(close)


@pytest.mark.parametrize(
    ("family", "text", "call"),
    [
        ("qwen3", "<|im_end|>", "<|im_end|>"),
        ("gptoss", "<|return|>", "<|call|>"),
        ("glm4moe", "<|user|>", "<|observation|>"),
    ],
)
async def test_a_scripted_reply_ends_with_the_token_of_its_kind(family, text, call):
    replies = (Message("assistant", "", (ToolCall("search", {"text": "a"}),)), "99")

    async def policy(conversation):
        return replies[conversation.turn]

    template, tokenizer = template_of(family), tokenizer_of(family)
    sampler, params = scripted(policy, tokenizer, template), SamplingParams(1.0, 99, ())
    for turn, end in enumerate((call, text)):
        conversation = Conversation(Problem("p", "?"), 0, turn, (), TOOLS, 0)
        reply = await sampler.sample(Request((), params, conversation))
        assert tokenizer.decode(reply.tokens[-1:]) == end
