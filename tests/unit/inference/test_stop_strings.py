"""Stop strings of the samplers that work in this process."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.stop_strings import ReplyText
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.system.formats.text import before_stop, first_stop
from agentfly_core.testing.episodes import saying
from agentfly_core.testing.letters import STOP, encode

PROMPT = (1, 40, 50, 60)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerFast:
    of_nano: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(nano)
    return of_nano


def request(params: SamplingParams, seed: int = 0) -> Request:
    return Request(PROMPT, params, Conversation(Problem("p", "?"), seed, 0, (), (), seed))


def stopped(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[int], *stop: str) -> Sequence[int]:
    """The tokens up to the first complete stop string, or all tokens."""
    text = ReplyText(tokenizer.backend_tokenizer, PROMPT, stop)
    place = next((place for place, token in enumerate(tokens) if text.stops_at(token)), None)
    return tokens if place is None else tokens[: place + 1]


def test_the_first_complete_stop_string_counts() -> None:
    text = "Thought: 3.\nObservation: 4\nAnswer: 4"
    assert first_stop(text, ["Answer:", "Observation:"]) == (12, 24)
    assert before_stop(text, ["Answer:", "Observation:"]) == "Thought: 3.\n"
    assert first_stop("abc", ["bc", "abc"]) == (1, 3), "both end at c"
    assert first_stop(text, ["Question:"]) is None
    assert before_stop(text, ()) == text


def test_a_reply_ends_with_the_completing_token(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokens = tokenizer.encode("ab12345", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(tokens)[-5:] == ["1", "2", "3", "4", "5"]
    assert stopped(tokenizer, tokens, "23") == tokens[:-2]
    assert stopped(tokenizer, tokens, "6", "34") == tokens[:-1]
    assert stopped(tokenizer, tokens, "32") == tokens


def test_the_rest_of_the_last_token_is_kept(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = tokenizer.encode("1name2", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(tokens) == ["1", "name", "2"]
    assert stopped(tokenizer, tokens, "a") == tokens[:2]


def test_a_character_of_several_tokens_is_read_whole(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokens = tokenizer.encode("1é2", add_special_tokens=False)
    assert len(tokens) == 4, "é is two bytes, and a token each"
    assert stopped(tokenizer, tokens, "é") == tokens[:3]
    assert stopped(tokenizer, tokens, "\N{REPLACEMENT CHARACTER}") == tokens


def test_the_text_of_special_tokens_is_read(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = [*tokenizer.encode("12"), *tokenizer.convert_tokens_to_ids(["<|im_start|>"]), 7]
    assert stopped(tokenizer, tokens, "<|im_start|>") == tokens[:3]


async def test_an_in_process_reply_ends_at_its_stop_string(
    nano: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    sampler = TransformersSampler()
    sampler.load(nano, 3)
    stop = ("a", "9", "<|im_start|>")
    cut = SamplingParams(1.0, 60, tuple(range(60, 70)), stop)
    whole = SamplingParams(1.0, 60, tuple(range(60, 70)))
    async with sampler.shard(32):
        replies = await sampler.reply([request(cut, seed) for seed in range(32)])
        free = await sampler.reply([request(whole, seed) for seed in range(32)])
    assert {reply.finish for reply in replies} == {"stop", "stop_string"}
    for reply, other in zip(replies, free, strict=True):
        assert reply.tokens == other.tokens[: len(reply.tokens)]
        texts = [tokenizer.decode(reply.tokens[:size]) for size in range(len(reply.tokens) + 1)]
        holds = [any(one in text for one in stop) for text in texts]
        if reply.finish == "stop_string":
            assert holds[-1] and not any(holds[:-1])
        else:
            # their last bits may change with how many rows are left in the batch
            assert reply.logprobs == pytest.approx(other.logprobs, rel=1e-5)
            assert replace(reply, logprobs=other.logprobs) == other and not any(holds[:-1])


async def test_a_stop_string_in_the_last_token_is_no_cut(nano: Path) -> None:
    sampler = TransformersSampler()
    sampler.load(nano, 0)
    alphabet = tuple("abcdefghijklmnopqrstuvwxyz0123456789")
    replies = await sampler.reply(
        [request(SamplingParams(1.0, 1, (), alphabet), seed) for seed in range(16)]
    )
    assert {reply.finish for reply in replies} == {"length", "stop_string"}


async def test_a_scripted_reply_ends_after_its_stop_string() -> None:
    sampler = Scripted(encode, STOP, saying("Think. Observation: 4"))
    params = SamplingParams(1.0, 100, (STOP,), ("Observation:",))
    kept = "Think. Observation:"
    assert await sampler.sample(request(params)) == Sampled(
        encode(kept), (0.0,) * len(kept), -1, "stop_string"
    )


async def test_a_scripted_reply_is_cut_before_its_stop_string() -> None:
    sampler = Scripted(encode, STOP, saying("abc|d"))
    for length, kept, finish in ((3, "abc", "length"), (4, "abc|", "stop_string")):
        reply = await sampler.sample(request(SamplingParams(1.0, length, (STOP,), ("|",))))
        assert (reply.tokens, reply.finish) == (encode(kept), finish)


def test_tokens_decode_to_their_text(tokenizer: PreTrainedTokenizerFast) -> None:
    """Stop strings are matched in the parsed text, independent of the prompt."""
    tokens = tokenizer.encode("x = 3\nObservation: é", add_special_tokens=False)
    text = "x = 3\nObservation: é"
    for begin, end in pairwise(range(0, len(text), 3)):
        assert text[begin:end] in tokenizer.decode(stopped(tokenizer, tokens, text[begin:end]))
