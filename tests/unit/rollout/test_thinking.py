"""Episodes with a model's own template: contexts, reasoning and its budget."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentfly_core.authoring.chat_template import ChatTemplate, Conversation
from agentfly_core.inference.sampler import Request, SamplerSession, SamplingParams
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.inference.templates.model import ModelTemplate, writer
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.records.trajectory import Ending, Message, Sampled, Trajectory
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.rollout.thinking import sample_spans
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec
from tests.support.chat_templates import tokenizer_of

QWEN3 = tokenizer_of("qwen3")
ENCODE = reply_encoder(QWEN3)
CLOSE = QWEN3.convert_tokens_to_ids("</think>")


class Written(SamplerSession):
    """Returns texts in order, cut at `max_tokens` and the first stop token."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.requests = list(texts), list[Request]()

    async def sample(self, request: Request) -> Sampled:
        self.requests.append(request)
        tokens = ENCODE(self.texts.pop(0))[: request.params.max_tokens]
        stops = [at for at, token in enumerate(tokens) if token in request.params.stop_tokens]
        cut = tuple(tokens[: stops[0] + 1] if stops else tokens)
        return Sampled(cut, (-0.5,) * len(cut), 3, "stop" if stops else "length")


def request(most: int) -> Request:
    params = SamplingParams(1.0, most, (QWEN3.convert_tokens_to_ids("<|im_end|>"),))
    return Request((1, 2), params, Conversation(ADD, 0, 0, (), (), 7))


def shown(spans: Sequence[Sampled]) -> list[tuple[str, str, bool]]:
    return [(QWEN3.decode(list(s.tokens)), s.finish, s.trained) for s in spans]


async def test_reasoning_is_a_span_of_its_own():
    session = Written("<think>\n1+1\n</think>\n\n2<|im_end|>")
    spans = await sample_spans(session, request(50), ModelTemplate(QWEN3))
    assert shown(spans) == [
        ("<think>\n1+1\n</think>", "stop", True),
        ("\n\n2<|im_end|>", "stop", True),
    ]


async def test_reasoning_is_not_trained_on_request():
    session = Written("<think>\n1+1\n</think>\n\n2<|im_end|>")
    spans = await sample_spans(session, request(50), ModelTemplate(QWEN3, train_reasoning=False))
    assert [span.trained for span in spans] == [False, True]


async def test_a_forced_end_of_reasoning_has_entropies_where_asked():
    session, asking = Written("<think>\n1 2 3 4 5 6 7 8", "2<|im_end|>"), request(50)
    asking = replace(asking, params=replace(asking.params, entropies=True))
    _, end, _ = await sample_spans(session, asking, ModelTemplate(QWEN3, thinking_budget=6))
    assert end.entropies == (0.0,) * len(end.tokens)


async def test_at_the_budget_untrained_tokens_end_the_reasoning():
    session = Written("<think>\n1 2 3 4 5 6 7 8", "2<|im_end|>")
    spans = await sample_spans(session, request(50), ModelTemplate(QWEN3, thinking_budget=6))
    assert shown(spans) == [
        ("<think>\n1 2 ", "length", True),
        ("\n</think>\n\n", "length", False),
        ("2<|im_end|>", "stop", True),
    ]
    first, second = session.requests
    assert tuple(second.prompt) == (1, 2, *spans[0].tokens, *spans[1].tokens)
    assert first.conversation.seed != second.conversation.seed


async def test_a_reply_without_room_for_its_end_ends_at_the_budget():
    session = Written("<think>\n1 2 3 4 5 6 7 8")
    spans = await sample_spans(session, request(8), ModelTemplate(QWEN3, thinking_budget=6))
    assert shown(spans) == [("<think>\n1 2 ", "length", True)]


async def test_reasoning_within_the_budget_ends_by_itself():
    session = Written("<think>\n1\n</think>\n\nlost", "\n\n2<|im_end|>")
    spans = await sample_spans(session, request(50), ModelTemplate(QWEN3, thinking_budget=20))
    assert shown(spans) == [
        ("<think>\n1\n</think>", "stop", True),
        ("\n\n2<|im_end|>", "stop", True),
    ]
    assert CLOSE in session.requests[0].params.stop_tokens
    assert CLOSE not in session.requests[1].params.stop_tokens


async def test_a_reply_without_reasoning_has_one_request():
    session = Written("2<|im_end|>")
    spans = await sample_spans(session, request(50), ModelTemplate(QWEN3, thinking_budget=20))
    assert shown(spans) == [("2<|im_end|>", "stop", True)]


async def asks_twice(episode: Episode) -> Ending:
    await episode.reply(*episode.opening)
    await episode.reply(Message("user", "And then?"))
    return Ending.NO_TOOL_CALLS


async def switches(episode: Episode) -> Ending:
    await episode.reply(*episode.opening)
    await episode.reply(Message("user", "And then?"), thinking=False)
    return Ending.NO_TOOL_CALLS


async def trajectory_of(agent: Agent, reply: Message, template: ChatTemplate) -> Trajectory:
    async def policy(conversation: Conversation) -> Message:
        return reply

    sampler = Scripted(ENCODE, template.stop_tokens[0], policy, writer(template))
    spec = rollout_spec(agent=agent, template=template, system="Be brief.")
    (trajectory,), _, _ = await play_all(episode_specs(ADD), spec, sampler)
    return trajectory


THOUGHT = Message("assistant", "99", reasoning="41+58")


async def test_a_dropped_thought_opens_a_context_with_the_servers_prompt():
    first, second = (await trajectory_of(asks_twice, THOUGHT, ModelTemplate(QWEN3))).turns
    assert (first.context, second.context) == (0, 1)
    assert first.reply == second.reply == THOUGHT
    assert second.read == (Message("user", "And then?"),)
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "41+58?"},
        {"role": "assistant", "content": "99", "reasoning_content": "41+58"},
        {"role": "user", "content": "And then?"},
    ]
    served = QWEN3.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert list(second.given.tokens) == served


async def test_every_sampled_token_of_both_contexts_is_trained_once():
    trajectory = await trajectory_of(asks_twice, THOUGHT, ModelTemplate(QWEN3))
    batch = pack([trajectory])
    assert batch.tokens.shape[0] == 2
    assert int(batch.sampled.sum()) == trajectory.sampled_tokens


async def test_a_kept_history_is_one_context():
    template = ModelTemplate(QWEN3, history="kept")
    first, second = (await trajectory_of(asks_twice, THOUGHT, template)).turns
    assert (first.context, second.context) == (0, 0)
    tail = "\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"
    assert QWEN3.decode(second.given.tokens) == tail


async def test_another_setting_of_thinking_opens_a_context():
    first, second = (await trajectory_of(switches, THOUGHT, ModelTemplate(QWEN3))).turns
    assert (first.context, second.context) == (0, 1)
    ends = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert QWEN3.decode(second.given.tokens).endswith(ends)


async def test_a_template_without_reasoning_refuses_a_thinking_switch():
    with pytest.raises(
        EpisodeBroken, match=r"reply\(thinking=False\) works only with template=model"
    ):
        await trajectory_of(switches, Message("assistant", "99"), Hermes(QWEN3))


@pytest.mark.parametrize("reasoning", ["short", "reasoning that is longer than its budget"])
async def test_a_scripted_reply_is_written_once(reasoning):
    text = f"<think>\n{reasoning}\n</think>\n\n99"

    async def policy(conversation):
        return text

    session = Scripted(ENCODE, request(1).params.stop_tokens[0], policy)
    spans = await sample_spans(session, request(99), ModelTemplate(QWEN3, thinking_budget=4))
    assert "".join(said for said, _, _ in shown(spans)) == f"{text}<|im_end|>"
