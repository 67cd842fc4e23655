"""Shelves and gates: prompts and executed calls after each decision."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from agentfly_core import (
    Conversation,
    Ending,
    HiddenStates,
    Problem,
    ToolCall,
    Trajectory,
    load_experiment,
)
from agentfly_core.inference.scripted import Scripted, ScriptedPolicy
from agentfly_core.recipes.meco.agents import (
    ANSWER,
    ASK,
    CALL,
    HIGH,
    LOW,
    AtRandom,
    Gated,
    GateMode,
    Reading,
    packed,
    unpacked,
)
from agentfly_core.recipes.meco.dataset import CAPITALS, capitals_and_sums, shelves
from agentfly_core.recipes.meco.demonstrations import both_ways
from agentfly_core.recipes.meco.fitting import fit_gate, readings
from agentfly_core.recipes.meco.probe import GateDecision, MetaCogProbe
from agentfly_core.recipes.meco.tools import count_boxes
from agentfly_core.testing import rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all
from agentfly_core.testing.letters import STOP, call_text, encode
from tests.support.project import ROOT

PROBLEM = Problem("shelf-417", "Boxes on shelf 417?", {"answer": "58", "shelf": 417})
COUNT = call_text(ToolCall("count_boxes", {"shelf": 417}))


class Readable(Scripted):
    """Replies of a script with planted states: layer number, tokens of the prompt."""

    policy = "digest"

    async def hidden(
        self, prompt: Sequence[int], layers: Sequence[int] | None, speaker: str
    ) -> HiddenStates:
        chosen = tuple(range(3) if layers is None else layers)
        states = np.array([[layer, len(prompt)] for layer in chosen], "f4")
        return HiddenStates(chosen, states, self.policy)


async def rollout(
    agent: Gated | AtRandom | Reading, policy: ScriptedPolicy, *problems: Problem
) -> tuple[list[Trajectory], dict[str, float]]:
    rules, sampler = rollout_spec(count_boxes, agent=agent), Readable(encode, STOP, policy)
    trajectories, _, counts = await play_all(episode_specs(*problems), rules, sampler)
    return trajectories, counts


async def played(agent: Gated | AtRandom | Reading, policy: ScriptedPolicy) -> Trajectory:
    (trajectory,), _ = await rollout(agent, policy, PROBLEM)
    return trajectory


async def obedient(conversation: Conversation) -> str:
    """Count the boxes, or say 50 if asked to answer at once."""
    last = conversation.messages[-1].content
    return last if last.isdigit() else "50" if last == ANSWER else COUNT


def gated(folder: Path, decision: GateDecision, mode: GateMode) -> Gated:
    low, high = {"answer": (-1, -1), "call": (1, 1), "own": (-1, 1)}[decision]
    probe = MetaCogProbe((1,), np.zeros((1, 2)), np.zeros(1), "digest", l_yes=high, l_no=low)
    probe.save(folder / "probe.npz")
    return Gated(str(folder / "probe.npz"), mode)


def texts(trajectory: Trajectory) -> list[str]:
    return [item.content for turn in trajectory.turns for item in turn.read]


@pytest.mark.parametrize(
    ("decision", "mode", "read", "answer"),
    [
        ("answer", "force", [PROBLEM.prompt, ANSWER], "50"),
        ("call", "force", [PROBLEM.prompt, CALL, "58"], "58"),
        ("own", "force", [PROBLEM.prompt, "58"], "58"),
        ("answer", "advise", [PROBLEM.prompt, ANSWER], "50"),
        ("call", "advise", [PROBLEM.prompt, CALL, "58"], "58"),
        ("answer", "off", [PROBLEM.prompt, "58"], "58"),
    ],
)
async def test_a_decision_chooses_between_answer_and_call(
    tmp_path: Path, decision: GateDecision, mode: GateMode, read: Sequence[str], answer: str
) -> None:
    trajectory = await played(gated(tmp_path, decision, mode), obedient)
    assert texts(trajectory) == read
    assert trajectory.answer == answer


async def test_an_empty_message_is_not_added(tmp_path: Path) -> None:
    gated(tmp_path, "answer", "force")
    trajectory = await played(Gated(str(tmp_path / "probe.npz"), answer=""), obedient)
    assert texts(trajectory) == [PROBLEM.prompt]
    assert trajectory.observations == ()
    reading = json.loads((await played(Reading(answer=""), obedient)).answer or "")
    assert unpacked(reading["states"])[0, 1] == len(f"^u{PROBLEM.prompt}$^a")


@pytest.mark.parametrize(("mode", "executed"), [("advise", 1), ("force", 0)])
async def test_a_model_that_calls_in_spite_of_advice(
    tmp_path: Path, mode: GateMode, executed: int
) -> None:
    async def stubborn(conversation: Conversation) -> str:
        last = conversation.messages[-1].content
        return last if last.isdigit() else COUNT

    trajectory = await played(gated(tmp_path, "answer", mode), stubborn)
    assert len(trajectory.observations) == executed


async def test_a_forced_call_is_asked_for_twice(tmp_path: Path) -> None:
    async def late(conversation: Conversation) -> str:
        return ["50", COUNT, "58"][conversation.turn]

    async def never(conversation: Conversation) -> str:
        return "50"

    agent = gated(tmp_path, "call", "force")
    trajectory = await played(agent, late)
    assert texts(trajectory) == [PROBLEM.prompt, CALL, CALL, "58"]
    trajectory = await played(agent, never)
    assert (len(trajectory.turns), trajectory.ending) == (2, Ending.NO_TOOL_CALLS)


async def test_a_probe_of_another_policy_fails_the_episode(tmp_path: Path) -> None:
    agent = gated(tmp_path, "answer", "force")
    agent.probe.__dict__["policy"] = "an earlier one"
    trajectory = await played(agent, obedient)
    assert trajectory.ending is Ending.FAILED
    assert "Fit a new probe" in (trajectory.error or "")


async def test_a_gate_leaves_the_decision_to_another_policy(tmp_path: Path) -> None:
    agent = gated(tmp_path, "answer", "force")
    agent.stale, agent.probe.__dict__["policy"] = "own", "an earlier one"
    assert texts(await played(agent, obedient)) == [PROBLEM.prompt, "58"]


def test_states_are_needed_unless_the_gate_is_off(tmp_path: Path) -> None:
    assert gated(tmp_path, "own", "advise").reads_hidden_states
    assert not Gated(mode="off").reads_hidden_states
    with pytest.raises(ValueError, match=r"agent\.probe is empty"):
        Gated()


async def test_a_reading_has_states_contrast_and_own_choice() -> None:
    prompts = []

    async def policy(conversation: Conversation) -> str:
        prompts.append([one.content for one in conversation.messages])
        return "Y" if prompts[-1][-1] == ASK else COUNT

    trajectory = await played(Reading(), policy)
    reading = json.loads(trajectory.answer or "")
    states = unpacked(reading["states"])
    assert states[:, 0].tolist() == [0, 1, 2]
    assert states[0, 1] == len(f"^u{PROBLEM.prompt}$^u{ANSWER}$^a")
    assert (unpacked(reading["contrast"])[:, 1] > 0).all() == (len(HIGH) > len(LOW))
    assert reading["calls"] is True
    assert reading["policy"] == "digest"
    assert reading["p_yes"] == 0.5  # "Y" is neither
    assert prompts == [[PROBLEM.prompt, ASK], [PROBLEM.prompt]]
    assert trajectory.observations == ()


def test_packed_states_keep_shape_and_three_digits() -> None:
    states = np.random.default_rng(1).normal(size=(4, 7))
    np.testing.assert_allclose(unpacked(packed(states)), states, rtol=1e-3)


async def test_the_random_gate_has_its_shares() -> None:
    problems = [
        Problem(str(number), "Boxes?", {"shelf": 1, "answer": "1"}) for number in range(400)
    ]
    _, counts = await rollout(AtRandom(0.25, 0.5), obedient, *problems)
    assert counts["gate/answer"] == pytest.approx(100, abs=30)
    assert counts["gate/call"] == pytest.approx(200, abs=35)
    assert sum(counts[f"gate/{one}"] for one in ("answer", "call", "own")) == 400


@pytest.mark.slow
def test_a_policy_without_correct_answers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    changes = ["model=nano:calculator", "data.train=16", "data.validation=12", "data.test=3"]
    experiment = load_experiment("meco", *changes, store=str(tmp_path / "store"))
    with pytest.raises(ValueError, match="0 of 12 answers without tools"):
        fit_gate(experiment, "base", folder=str(tmp_path))
    read = readings(experiment, "base", "test")
    assert read.states.shape == read.contrasts.shape == (3, 4, 128)
    assert np.isfinite(read.states).all()
    assert ((read.first_token > 0) & (read.first_token < 1)).all()


def test_fixed_shelves_keep_their_boxes_and_others_do_not() -> None:
    splits = shelves(seed=1, train=640, validation=160, test=160, shelves=40)
    boxes: dict[str, dict[int, set[str]]] = {"fixed": {}, "changing": {}}
    for problem in (one for split in splits.values() for one in split):
        of_kind = boxes[problem.facts["kind"]]
        of_kind.setdefault(problem.facts["shelf"], set()).add(problem.facts["answer"])
    assert {len(each) for each in boxes["fixed"].values()} == {1}
    assert min(len(each) for each in boxes["changing"].values()) > 5
    assert len(boxes["fixed"]) == len(boxes["changing"]) == 20
    numbers = {name: {one.facts["shelf"] for one in split} for name, split in splits.items()}
    assert not numbers["validation"] & numbers["test"]
    for split in ("validation", "test"):
        assert len(numbers[split] & boxes["fixed"].keys()) == 10
    assert numbers["validation"] | numbers["test"] == numbers["train"]
    assert len({one.id for split in splits.values() for one in split}) == 960
    with pytest.raises(ValueError, match=r"data\.shelves is 901"):
        shelves(seed=1, train=1, validation=0, test=0, shelves=901)


def _countries(problems: Sequence[Problem]) -> set[str]:
    return {one.id.partition("-")[2] for one in problems if one.facts["kind"] != "sum"}


def test_capitals_and_sums_are_in_one_split_each() -> None:
    half = len(CAPITALS) // 2
    splits = capitals_and_sums(seed=1, train=4, validation=half, test=half)
    problems = [one for split in splits.values() for one in split]
    assert len({one.id for one in problems}) == 4 + 2 * half
    countries = {name: _countries(split) for name, split in splits.items()}
    assert not countries["validation"] & countries["test"]
    assert {one.facts["kind"] for one in splits["test"]} == {"capital", "country", "sum"}
    for problem in problems:
        assert problem.facts["answer"] in problem.facts["options"]
        if problem.facts["kind"] == "sum":
            x, y = map(int, problem.id.split("-")[1:])
            assert int(problem.facts["answer"]) == x + y
            assert not {str(x), str(y)} & {*problem.facts["options"]}


async def test_demonstrations_show_both_ways() -> None:
    problems = shelves(seed=1, train=60, validation=0, test=0, shelves=40)["train"]
    policy = both_ways(problems, 0)

    async def written(conversation: Conversation) -> str:
        reply = await policy(conversation)
        if "tool_call" not in reply:
            return reply
        return call_text(ToolCall("count_boxes", {"shelf": conversation.problem.facts["shelf"]}))

    trajectories, _ = await rollout(AtRandom(0.5, 0.25), written, *problems)
    assert all(one.answer == one.problem.facts["answer"] for one in trajectories)
    counted = sum(len(one.observations) for one in trajectories)
    assert 15 <= counted <= 45
