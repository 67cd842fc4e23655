"""Functions as weights: trials and roll-back, proposals of a script, and a simulated policy."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import ToolError
from agentfly_core.recipes.forge import actions, function_sets
from agentfly_core.recipes.forge.agents import Forge
from agentfly_core.recipes.forge.function_sets import Function
from agentfly_core.recipes.forge.state import State, remember, remember_all
from agentfly_core.records.trajectory import Problem, ToolCall
from agentfly_core.rewards.exact import exact
from agentfly_core.testing import Simulated, Visible, problems_of, rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from agentfly_core.testing.letters import call_text

SEED = 1104
Policy = Callable[[Conversation], Awaitable[str]]
CODES = {
    "product": "def product(a, b):\n    return a * b",
    "count": "def count(letter, word):\n    return word.count(letter)",
    "backwards": "def backwards(word):\n    return word[::-1]",
    "binary": "def binary(n):\n    return f'{n:b}'",
}
ARGUMENTS = {
    "product": {"a": "integer", "b": "integer"},
    "count": {"letter": "string", "word": "string"},
    "backwards": {"word": "string"},
    "binary": {"n": "integer"},
}
QUESTIONS = {
    "product": r"What is (\d+) times (\d+)\?",
    "count": r"How often is (.) in (\w+)\?",
    "backwards": r"What is (\w+) backwards\?",
    "binary": r"What is (\d+) in binary\?",
}


def function(name: str, code: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Computes {name}.",
        "arguments": ARGUMENTS.get(name, {}),
        "code": code or CODES[name],
    }


def add(name: str, code: str = "") -> str:
    return json.dumps({"action": "add", "function": function(name, code)})


def solver(visible: Visible) -> str | None:
    """Add numbers; of other questions it calls the function, if the system message lists one."""
    if visible.speaker != "solver":
        return None
    if len(visible.texts) > 2:
        return visible.texts[-1]
    listed, question = visible.texts
    if match := re.fullmatch(r"What is (\d+) \+ (\d+)\?", question):
        return str(int(match[1]) + int(match[2]))
    for name, pattern in QUESTIONS.items():
        if f"- {name}: " in listed and (match := re.fullmatch(pattern, question)):
            values = zip(ARGUMENTS[name].items(), match.groups(), strict=True)
            arguments = {key: int(v) if kind == "integer" else v for (key, kind), v in values}
            return call_text(ToolCall(name, arguments))
    if "- lookup: " in listed:
        return call_text(ToolCall("lookup", {"question": question}))
    return None


def proposer(share: float) -> Callable[[Visible], str | None]:
    """A share of the proposals is a function for a wrong answer; the others do damage."""

    def skill(visible: Visible) -> str | None:
        if visible.speaker != "optimizer":
            return None
        if visible.texts[-1].startswith("Done."):
            return "TERMINATE"
        lines = visible.texts[1].splitlines()
        names = [one["name"] for one in json.loads(lines[1])]
        wrong = [line for line in lines if line.startswith("wrong: ")]
        lacking = [
            name
            for name, pattern in QUESTIONS.items()
            if name not in names and any(re.search(pattern, line) for line in wrong)
        ]
        if lacking and visible.draw.random() < share:
            return add(visible.draw.choice(lacking))
        if names:
            return json.dumps({"action": "remove", "name": visible.draw.choice(names)})
        return add("idle", "def idle():\n    return 0")

    return skill


def problems(train: int = 20, test: int = 20, seed: int = SEED) -> dict[str, list[Problem]]:
    path = "agentfly_core.recipes.forge.dataset:questions"
    return problems_of(path, seed=seed, train=2 * train + 1, validation=1, test=test)


async def played(
    policy: Policy, drawn: Sequence[Problem], memory: Path, agent: Forge
) -> tuple[list[Any], list[Any]]:
    spec = rollout_spec(
        agent=agent,
        max_turns=20,
        max_tokens=100_000,
        max_model_len=1_000_000,
        max_observation_tokens=9_000,
    )
    rules = replace(spec, memory=memory)
    trajectories, *_ = await play_all(episode_specs(*drawn), rules, scripted(policy))
    return trajectories, list(await score(trajectories, {exact: 1.0}))


async def run_of(
    policy: Policy,
    drawn: Sequence[Problem],
    folder: Path,
    steps: int,
    remembers: Any = remember,
    agent: Forge | None = None,
) -> State:
    """The state after some steps, as training makes them."""
    memory = folder / "0"
    memory.mkdir(parents=True)
    for step in range(1, steps + 1):
        trajectories, scores = await played(policy, drawn, memory, agent or Forge(max_actions=1))
        new = folder / str(step)
        new.mkdir()
        remembers(memory, trajectories, scores, 0, new)
        memory = new
    return State.read(memory)


async def success(policy: Policy, drawn: Sequence[Problem], memory: Path) -> float:
    trajectories, scores = await played(policy, drawn, memory, Forge())
    return fmean(
        float(scored.reward)
        for one, scored in zip(trajectories, scores, strict=True)
        if one.answered is not None
    )


def saying(replies: Sequence[str]) -> tuple[Policy, list[str]]:
    """A policy whose optimizer says these in turn, and all texts that it reads."""
    left, read = iter(replies), list[str]()
    solving = Simulated([solver])

    async def policy(conversation: Conversation) -> str:
        read.extend(message.content for message in conversation.messages)
        return next(left) if conversation.speaker == "optimizer" else await solving(conversation)

    return policy, read


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls of the test's own functions without a sandbox."""

    async def call(one: Function, arguments: dict[str, Any] | None) -> str:
        own: dict[str, Any] = {}
        try:
            exec(one.code, own)
            value = own[one.name](**arguments) if arguments is not None else None
        except Exception as error:
            raise ToolError(str(error)) from None
        return value if isinstance(value, str) else json.dumps(value)

    monkeypatch.setattr(function_sets, "call", call)
    monkeypatch.setattr(actions, "call", call)
    yield


@pytest.mark.usefixtures("in_process")
async def test_a_script_of_proposals_has_the_expected_history(tmp_path: Path) -> None:
    regression = {
        "action": "revise",
        "function": function("count", "def count(**_):\n    return 7"),
    }
    policy, _ = saying(
        [
            add("count"),
            add("binary", "def binary(:"),  # refused, and asked again
            json.dumps(regression),
            json.dumps({"action": "remove", "name": "count"}),
            add("count"),  # it exists: refused
            "TERMINATE",
        ]
    )
    reached = await run_of(policy, problems()["train"], tmp_path, steps=12)
    assert [(one.validation, one.accepted) for one in reached.trials] == [
        (0.2, True),
        (0.4, True),
        (0.2, False),
        (0.2, False),
    ]
    assert [one.name for one in reached.best] == ["count"]
    assert reached.finished


@pytest.mark.usefixtures("in_process")
async def test_patience_ends_the_proposals(tmp_path: Path) -> None:
    idle = [add(f"idle{n}", f"def idle{n}():\n    return 0") for n in range(9)]
    policy, _ = saying(idle)
    agent = Forge(max_actions=1, patience=2)
    reached = await run_of(policy, problems(5)["train"], tmp_path, steps=12, agent=agent)
    assert [one.accepted for one in reached.trials] == [True, False, False]
    assert reached.finished and reached.best == ()


@pytest.mark.usefixtures("in_process")
async def test_a_function_of_training_answers_is_rejected(tmp_path: Path) -> None:
    drawn = problems()["train"]
    table = {one.prompt: one.facts["answer"] for one in drawn if one.facts["role"] == "train"}
    code = f"def lookup(question):\n    return {table!r}.get(question, 'unknown')"
    memoriser = function("lookup", code) | {"arguments": {"question": "string"}}
    policy, _ = saying([json.dumps({"action": "add", "function": memoriser}), "TERMINATE"])
    reached = await run_of(policy, drawn, tmp_path, steps=5)
    _, tabled = reached.trials
    assert tabled.train == 1.0 and not tabled.accepted
    assert reached.best == ()


@pytest.mark.usefixtures("in_process")
async def test_no_request_has_answers_of_validation_or_test(tmp_path: Path) -> None:
    drawn = problems()
    for number, one in enumerate([*drawn["train"], *drawn["test"]]):
        if one.facts["role"] != "train":
            one.facts["answer"] = f"canary-{number}"
    policy, read = saying([add("count"), add("binary"), add("backwards"), "TERMINATE"])
    await run_of(policy, [*drawn["train"], *drawn["test"]], tmp_path, steps=8)
    assert len(read) > 100 and not [text for text in read if "canary-" in text]
    requests = [text for text in read if text.startswith("Functions of the agent:")]
    held_out = [one.prompt for one in drawn["train"] if one.facts["role"] == "validation"]
    assert requests and not [text for text in requests for prompt in held_out if prompt in text]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("remembers", [remember, remember_all])
async def test_roll_back_makes_the_difference(tmp_path: Path, remembers: Any) -> None:
    shares = []
    for seed in range(3):
        policy = Simulated([solver, proposer(0.2)], seed=seed)
        drawn, folder = problems(5, 20, seed=SEED + seed), tmp_path / str(seed)
        agent = Forge(max_actions=1, patience=100)
        await run_of(policy, drawn["train"], folder, 61, remembers, agent)
        assert await success(policy, drawn["test"], folder / "0") == 0.2
        shares.append(await success(policy, drawn["test"], folder / "61"))
    assert fmean(shares) >= 0.8 if remembers is remember else fmean(shares) <= 0.4
