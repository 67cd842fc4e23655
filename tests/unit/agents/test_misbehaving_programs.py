"""Programs that misbehave: clear errors, and no other episode is affected."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Ending, Problem, Trajectory
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import as_letters
from tests.support.deadlines import end_after_first_reply

GOOD = [Problem(f"good-{number}", f"{number}?") for number in range(4)]
BAD = Problem("bad", "41+58?")
PROGRAM = """
    import json, os, sys, time, urllib.error, urllib.request
    from concurrent.futures import ThreadPoolExecutor

    problem, BASE = json.loads(sys.stdin.readline()), os.environ["OPENAI_BASE_URL"]

    HELLO = b'{"messages": [{"role": "user", "content": "hello"}]}'

    def post(data, url=BASE):
        try:
            with urllib.request.urlopen(f"{url}/chat/completions", data, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]

    def ask(text):
        body = {"messages": [{"role": "user", "content": text}]}
        status, completed = post(json.dumps(body).encode())
        return completed["choices"][0]["message"]["content"] if status == 200 else completed["code"]

    if problem["id"] == "bad":
        exec(BAD)
    else:
        print(ask(problem["prompt"]), ask("and?"))
"""


async def echo(conversation: Conversation) -> str:
    return f"{conversation.messages[-1].content}!"


async def beside_others(folder: Path, lines: str) -> Trajectory:
    """The episode of a program of these lines; four others beside it play as they do alone."""
    program = folder / "program.py"
    program.write_text(f"BAD = {dedent(lines)!r}\n{dedent(PROGRAM)}")
    agent = ProgramAgent((sys.executable, str(program)))
    spec = rollout_spec(agent=agent, max_turns=8, deadline=60.0)
    trajectories, *_ = await play_all(episode_specs(BAD, *GOOD), spec, scripted(echo))
    for one in trajectories[1:]:
        prompt = one.problem.prompt
        assert (one.error, one.answer, one.ending) == (
            None,
            f"{prompt}! and?!",
            Ending.NO_TOOL_CALLS,
        )
        assert as_letters(one) == f"^u{prompt}$^a{prompt}!$^uand?$^aand?!$"
    return trajectories[0]


@pytest.mark.parametrize(
    ("lines", "ending", "error"),
    [
        ("ask('x'); time.sleep(600)", Ending.AGENT_ERROR, "did not end within"),
        (
            "sys.exit(0)",
            Ending.FAILED,
            "ended without a request to the model and without an answer",
        ),
        ("os._exit(7)", Ending.FAILED, "ended with exit code 7"),
        ("sys.stdin.close(); os.abort()", Ending.FAILED, "was killed by SIGABRT"),
    ],
)
async def test_a_program_without_an_answer_has_a_clear_error(
    tmp_path, monkeypatch, lines, ending, error
):
    if "sleep" in lines:
        end_after_first_reply(monkeypatch, BAD.id)
    bad = await beside_others(tmp_path, lines)
    assert (bad.ending, bad.answer) == (ending, None)
    assert error in (bad.error or "")


@pytest.mark.long
async def test_a_program_without_a_request_ends_at_its_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr("agentfly_core.agents.program.SHARE", 0.4)
    bad = await beside_others(tmp_path, "time.sleep(600)")
    assert bad.ending is Ending.FAILED
    assert "did not end within" in (bad.error or "")


async def test_50_megabytes_of_output_are_read_and_kept_in_part(tmp_path):
    lines = """
        ask("x")
        for _ in range(50):
            sys.stdout.write("x" * 1_000_000)
            sys.stderr.write("y\\n" * 500_000)
        sys.exit("the end of it")
    """
    bad = await beside_others(tmp_path, lines)
    assert bad.ending is Ending.AGENT_ERROR
    assert (bad.error or "").partition(", at ")[0].endswith("the end of it.")
    assert len(bad.error or "") < 2000


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        ("post(b'{')", 400, "The body is not JSON"),
        ("post(b'')", 400, "The body is not JSON"),
        ("post(b'[' * 100_000)", 400, "The body is not JSON"),
        ("post(b'\\xff\\xfe')", 400, "The body is not UTF-8"),
        ("post(b'x' * 50_000_000)", 413, "Maximum request body size 4194304 exceeded"),
        ("post(b'[]')", 400, "expected a JSON object"),
        ("post(b'{\"messages\": [7]}')", 400, "not a chat completion"),
        ("post(HELLO, BASE + '/critic')", 404, "the path 'critic'"),
        ("post(HELLO, BASE + '/../../v1')", 404, "the path '../../v1'"),
        ("post(b'{}', BASE.rpartition('/v1')[0])", 404, "is not supported"),
        (
            "post(b'{}', BASE.replace(BASE.split('/')[-2], 'f' * 32))",
            404,
            "episode of this URL has ended",
        ),
    ],
)
async def test_a_wrong_request_is_refused_and_the_next_one_served(
    tmp_path, request_, status, message
):
    lines = f"status, error = {request_}; print(status, error['message'], ask('x'))"
    bad = await beside_others(tmp_path, lines)
    assert (bad.error, len(bad.turns)) == (None, 1)
    answer = bad.answer or ""
    assert answer.startswith(f"{status} ")
    assert message in answer
    assert answer.endswith(" x!")


@pytest.mark.parametrize("at_once", [1, 50])
async def test_1000_calls_end_at_the_limit_of_turns(tmp_path, at_once):
    lines = f"""
        with ThreadPoolExecutor({at_once}) as threads:
            replies = [*threads.map(ask, map(str, range(1000)))]
        print(replies.count("max_turns"))
    """
    bad = await beside_others(tmp_path, lines)
    assert (bad.error, len(bad.turns), bad.answer) == (None, 8, "992")
