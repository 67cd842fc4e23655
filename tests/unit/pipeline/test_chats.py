"""Chats of a file as the demonstrations of a warm start."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.demonstrations import DemonstrationPlayer
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.records.dataset import split
from agentfly_core.records.parquet import EPISODES, HELD_OUT, read_trajectories
from agentfly_core.records.trajectory import Observation, Trajectory
from agentfly_core.rollout.resources import resources_for
from agentfly_core.store.stage_metrics import measured
from agentfly_core.tools.calculator import calculator
from tests.support.chats import chat_of_episode, chats_read, json_lines
from tests.support.experiments import experiment

TOOLS = ("agentfly_core.tools.calculator:calculator", "agentfly_core.tools.answer:answer")
HERMES = "agentfly_core.inference.templates.chatml:Hermes"
SUMS = {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 16, "test": 8}
CALL = {"function": {"name": "calculator", "arguments": {"expression": "1+1"}}}
CHAT = [
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    {"role": "tool", "content": "2"},
    {"role": "assistant", "content": "2"},
]
Imitated = Callable[..., Experiment]


@pytest.fixture
def imitating(tmp_path: Path) -> Imitated:
    """An experiment that imitates these rows."""

    def made(*rows: Any, show_tools: bool = False, **changes: Any) -> Experiment:
        path = json_lines(tmp_path / "chats.jsonl", rows)
        return experiment(
            tmp_path,
            **{
                "template": {"use": HERMES, "show_tools": show_tools},
                "data": {**SUMS, "validation": 0},
                "tools": TOOLS,
                "warm_start": {"demonstrations": f"file:{path}"},
                **changes,
            },
        )

    return made


def published(of: Experiment) -> Path:
    return of.store.open(chats_read(of))


def spans(of: Experiment) -> list[tuple[bool, str]]:
    """Texts of the only chat's spans, and whether each is trained."""
    (chat,) = read_trajectories(published(of) / EPISODES)
    tokenizer, _ = inputs.tokenizer(of)
    pieces = [(False, turn.given.tokens) for turn in chat.turns]
    replies = [(turn.sampled[0].trained, turn.sampled[0].tokens) for turn in chat.turns]
    pairs = [piece for pair in zip(pieces, replies, strict=True) for piece in pair]
    return [(trained, tokenizer.decode(list(tokens))) for trained, tokens in pairs]


def test_replies_are_trained_with_their_end_tokens(imitating: Imitated) -> None:
    call = '{"name": "calculator", "arguments": {"expression": "1+1"}}'
    assert spans(imitating({"messages": CHAT})) == [
        (False, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"),
        (True, f"Let me see.\n<tool_call>\n{call}\n</tool_call><|im_end|>"),
        (
            False,
            "\n<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (True, "2<|im_end|>"),
    ]


def test_a_message_with_train_false_is_read(imitating: Imitated) -> None:
    for key, value in (("train", False), ("weight", 0)):
        rows = {"messages": [CHAT[0], {**CHAT[1], key: value}, *CHAT[2:]]}
        assert [trained for trained, _ in spans(imitating(rows))] == [False, False, False, True]


def test_the_prompt_of_a_completion_is_read(imitating: Imitated) -> None:
    pairs = (
        {"prompt": CHAT[:3], "completion": CHAT[3:]},
        {"prompt": CHAT[:3], "response": "2"},
    )
    for row in pairs:
        assert [trained for trained, _ in spans(imitating(row))] == [False, False, False, True]
    row = {"instruction": "1+1?", "input": "In words.", "output": "two"}
    assert spans(imitating(row)) == [
        (False, "<|im_start|>user\n1+1?\n\nIn words.<|im_end|>\n<|im_start|>assistant\n"),
        (True, "two<|im_end|>"),
    ]


def test_a_reply_is_trained_to_its_end_behind_a_stop_string(imitating: Imitated) -> None:
    of = imitating({"prompt": "1+1?", "output": "2. So 2."}, agent={"stop": ["."]})
    assert spans(of)[1] == (True, "2. So 2.<|im_end|>")


def test_the_system_message_is_the_experiments_or_the_rows(imitating: Imitated) -> None:
    row = {"messages": [{"role": "system", "content": "Be brief."}, *CHAT]}
    assert spans(imitating(row))[0][1].startswith("<|im_start|>system\nBe brief.<|im_end|>")
    briefed = {"agent": {"system": "Add."}}
    assert spans(imitating({"messages": CHAT}, **briefed))[0][1].startswith(
        "<|im_start|>system\nAdd.<|im_end|>"
    )
    with pytest.raises(ValueError, match=r"chats\.jsonl, row 1: .* agent\.system is 'Add\.'"):
        published(imitating(row, **briefed))


def test_tools_of_a_row_are_shown_as_it_lists_them(imitating: Imitated) -> None:
    own = {"name": "calculator", "description": "Adds.", "parameters": {"type": "object"}}
    row = {"messages": CHAT, "tools": [{"type": "function", "function": own}]}
    assert '"description": "Adds."' in spans(imitating(row, show_tools=True, tools=[]))[0][1]
    with pytest.raises(ValueError, match="lists the tool 'calculator' with a description"):
        published(imitating(row, show_tools=True))
    schema = calculator.schema
    same = {"name": "calculator", "description": schema.description}
    same = {**same, "parameters": schema.parameters}
    for tools in (["calculator"], [{"type": "function", "function": same}]):
        shown = spans(imitating({**row, "tools": tools}, show_tools=True))[0][1]
        assert json.dumps(schema.description) in shown
        assert '"name": "answer"' not in shown


def test_tools_answer_as_recorded(imitating: Imitated) -> None:
    wrong = {"messages": [*CHAT[:2], {"role": "tool", "content": "The answer is 3."}, CHAT[3]]}
    ask = {"function": {"name": "ask", "arguments": {}}}
    unknown = {"messages": [CHAT[0], {**CHAT[1], "tool_calls": [ask]}, *CHAT[2:]]}
    unknown["tools"] = [{"name": "ask", "description": "Asks.", "parameters": {}}]
    assert "The answer is 3." in spans(imitating(wrong))[2][1]
    assert "<tool_response>\n2\n</tool_response>" in spans(imitating(unknown))[2][1]


def test_a_file_of_played_demonstrations_keeps_tokens_and_order(
    imitating: Imitated, tmp_path: Path
) -> None:
    script = {
        "demonstrations": "agentfly_core.datasets.demonstrations:calculator",
        "settings": {"spoilt": 0.5},
    }
    scripted = imitating(warm_start=script)
    tokenizer, _ = inputs.tokenizer(scripted)
    spec = rollout_spec(scripted.whole, {}, tokenizer)
    problems = split(scripted.store.open(inputs.dataset(scripted)), "train")
    warm_start, quotas = scripted.settings.warm_start, scripted.settings.quotas
    assert warm_start is not None
    player = DemonstrationPlayer(spec, tokenizer, problems, warm_start, quotas, 0, 0.0)
    (tmp_path / "played").mkdir()
    with resources_for(spec.limits) as resources:
        player.play(64, tmp_path / "played", resources)
    played = read_trajectories(tmp_path / "played" / EPISODES)
    recorded = read_trajectories(published(imitating(*map(chat_of_episode, played))) / EPISODES)
    assert [_content(chat) for chat in recorded] == [_content(episode) for episode in played]


def _content(episode: Trajectory) -> list[Any]:
    turns = [(turn.read, turn.given, turn.reply, turn.sampled[0].tokens) for turn in episode.turns]
    return [turns, episode.closing, episode.agent, episode.role]


def test_chats_of_held_out_problems_are_apart(imitating: Imitated) -> None:
    of = imitating()
    data = split(of.store.open(inputs.dataset(of)), "test")
    reply = {"role": "assistant", "content": "2"}
    rows = [{"messages": [{"role": "user", "content": p.prompt}, reply]} for p in data[:3]]
    rows[1]["messages"].insert(0, {"role": "system", "content": "Be brief."})
    after = {"messages": [*rows[0]["messages"], {"role": "user", "content": "Sure?"}, reply]}
    folder = published(imitating(*rows, after, {"messages": CHAT}))
    assert [t.problem.prompt for t in read_trajectories(folder / EPISODES)] == ["1+1?"]
    held_out = [t.problem.id for t in read_trajectories(folder / HELD_OUT)]
    assert held_out == [f"chats.jsonl:{number:08d}" for number in (1, 2, 3, 4)]
    with pytest.raises(ValueError, match=r"all 3 chats .*data\.test"):
        published(imitating(*rows))


USER = CHAT[0]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"prompt": "1+1?"}, "the row has none of the fields messages, conversations, completion"),
        ({"messages": CHAT, "output": "2"}, "'messages' and 'output' could each be the chat"),
        ({"messages": [USER]}, "the field 'messages' lacks an assistant message"),
        ({"prompt": "1+1?", "output": ""}, "the field 'output' is '', expected text or messages"),
        ({"messages": CHAT, "tools": ["answer"]}, "the row calls the tool 'calculator', which"),
        ({"messages": CHAT, "tools": ["ask"]}, "the row lists the tool 'ask', which"),
        (
            {"prompt": "1+1?", "output": "2<|im_end|>2"},
            "contains the special token '<|im_end|>' in its text",
        ),
        (
            {"messages": [USER, {**CHAT[3], "reasoning_content": "One more."}]},
            "message 2 has the reasoning 'One more.', which the template does not write",
        ),
        ({"prompt": "1" * 3000, "output": "2"}, "but agent.max_model_len is 2048; raise"),
    ],
)
def test_an_unusable_row_is_refused_with_its_number(
    row: Any, fault: str, imitating: Imitated
) -> None:
    with pytest.raises(ValueError, match=r"1 row .*\(tolerated: 0\)") as raised:
        published(imitating({"messages": CHAT}, row))
    assert "The first: chats.jsonl, row 2: " in str(raised.value)
    assert fault in str(raised.value)


def test_tolerated_rows_are_left_out(imitating: Imitated, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    settings = {"tolerate_bad_rows": 2, "columns": {"dialogue": "messages"}}
    warm_start = {"demonstrations": f"file:{path}", "settings": settings}
    of = imitating({"dialogue": CHAT}, {"dialogue": 3}, {}, warm_start=warm_start)
    artifact = chats_read(of)
    metrics = measured(of.store, artifact).metrics
    assert {name: metrics[name] for name in ("demonstrations", "held_out", "left_out")} == {
        "demonstrations": 1,
        "held_out": 0,
        "left_out": 2,
    }


def test_another_content_of_the_file_gives_other_demonstrations(imitating: Imitated) -> None:
    keys = []
    for rows in ([{"messages": CHAT}], [{"messages": CHAT[:2]}]):
        of = imitating(*rows)
        model, data = inputs.base_model(of), inputs.dataset(of)
        keys.append(StageKeys(of.settings).demonstrations(model, data, {}).key)
    assert keys[0] != keys[1]


def test_the_tokens_of_nano_are_learned_from_chats(imitating: Imitated) -> None:
    of = imitating({"messages": CHAT}, {"prompt": "1+1?", "output": "zwölf"}, model="nano")
    assert len(read_trajectories(published(of) / EPISODES)) == 2


def test_answers_after_the_last_reply_are_closing(imitating: Imitated) -> None:
    (chat,) = read_trajectories(published(imitating({"messages": CHAT[:3]})) / EPISODES)
    assert chat.closing == (Observation("calculator", "2"),)
