from __future__ import annotations

from pathlib import Path

from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.scripted import Scripted
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import STOP, as_letters, encode, loss_mask
from agentfly_core.tools.calculator import calculator


def request(max_tokens: int) -> Request:
    return Request(encode("41+58"), SamplingParams(1.0, max_tokens, (STOP,)), 0, ("add", 2, 1))


async def test_a_scripted_reply_ends_with_the_stop_token_and_is_certain() -> None:
    sampler = Scripted(encode, STOP, lambda problem, chain, turn: f"{problem} {chain} {turn}")
    assert await sampler.sample(request(100)) == Sampled(encode("add 2 1$"), (0.0,) * 8, -1, "stop")


async def test_a_scripted_reply_is_cut_like_a_models() -> None:
    sampler = Scripted(encode, STOP, lambda problem, chain, turn: "12345")
    assert await sampler.sample(request(5)) == Sampled(encode("12345"), (0.0,) * 5, -1, "length")
    assert (await sampler.sample(request(6))).finish == "stop"


async def test_a_loaded_policy_labels_what_follows() -> None:
    sampler = Scripted(encode, STOP, lambda problem, chain, turn: "1")
    sampler.load(Path("nowhere"), 7)
    assert (await sampler.sample(request(5))).policy_version == 7


async def test_demonstrations_are_episodes_played_from_a_script() -> None:
    answers = {"add-1": "1+2", "add-2": "3+4"}

    def script(problem: str, chain: int, turn: int) -> str:
        return (
            f"<calculator expression={answers[problem]}>",
            "=3" if problem == "add-1" else "=7",
        )[turn]

    problems = [Problem("add-2", "3+4?"), Problem("add-1", "1+2?")]
    first, second = (
        await play_all(episode_specs(*problems), rollout_spec(calculator), scripted(script))
    )[0]
    assert as_letters(first) == "^u1+2?$^a<calculator expression=1+2>$^t3$^a=3$"
    assert [as_letters(second), loss_mask(second)] == [
        "^u3+4?$^a<calculator expression=3+4>$^t7$^a=7$",
        ".........xxxxxxxxxxxxxxxxxxxxxxxxxxxx......xxx",
    ]
