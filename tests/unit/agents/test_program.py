"""Programs as agents: their processes, answers and ends."""

import os
import signal
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from agentfly_core.agents.program import FunctionProgram, ProgramAgent
from agentfly_core.config.parts import program_files
from agentfly_core.gateway.process import MOST_OUTPUT, ProgramEnd
from agentfly_core.records.trajectory import Ending, Problem, Trajectory
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, saying, scripted
from agentfly_core.testing.letters import as_letters
from tests.support.waiting import until

PROBLEM = Problem("add-41-58", "41+58?", {"answer": "99", "hint": "add", "secret": 1})
ASK = """
    import json, os, signal, sys, time, urllib.request

    problem = json.loads(sys.stdin.readline())

    def ask(text):
        body = {"model": "any", "messages": [{"role": "user", "content": text}]}
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]["content"]

"""


async def played(
    folder: Path, lines: str, *replies: str, settings: Any = None, **rules: Any
) -> Trajectory:
    """The episode of a program of these lines, which may call `ask`."""
    program = folder / "program.py"
    program.write_text(dedent(ASK) + dedent(lines))
    agent = ProgramAgent((sys.executable, str(program)), **(settings or {}))
    spec = rollout_spec(agent=agent, **rules)
    sampler = scripted(saying(*(replies or ("99", "98"))))
    (trajectory, *_), *_ = await play_all(episode_specs(PROBLEM), spec, sampler)
    return trajectory


async def test_the_last_line_of_a_program_is_the_answer_of_its_episode(tmp_path):
    trajectory = await played(tmp_path, "print('so:'); print(ask(problem['prompt']) + '!')")
    assert (trajectory.answer, trajectory.ending) == ("99!", Ending.NO_TOOL_CALLS)
    assert as_letters(trajectory) == "^u41+58?$^a99$"


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (b"", None),
        (b"\n \n", None),
        (b"thinking\n 99 \n\n", "99"),
        (b'{"answer": "99"}\n', "99"),
        (b'{"answer": [9, "\xc3\xa4"]}', '[9, "\u00e4"]'),
        (b'{"answer": "99", "counts": {"retry": 2}}', "99"),
        (b'{"counts": {"retry": 2}}', '{"counts": {"retry": 2}}'),
        (b'{"answer": 99', '{"answer": 99'),
        (b"\xff", "\ufffd"),
        (b'{"answer": "9\xe2\x80\xa89"}', "9\u20289"),
    ],
)
def test_an_answer_is_text_or_a_field_of_json(output, answer):
    assert ProgramEnd(0, output, b"").answer == answer


@pytest.mark.parametrize("end", ["", "raise SystemExit(1)"], ids=["success", "failure"])
async def test_counts_of_a_program_are_metrics_of_the_rollout(tmp_path, end):
    program = tmp_path / "counts.py"
    program.write_text(f"""print('{{"answer": "99", "counts": {{"retry": 2}}}}')\n{end}""")
    spec = rollout_spec(agent=ProgramAgent((sys.executable, str(program))))
    *_, metrics = await play_all(episode_specs(PROBLEM, chains=3), spec, scripted(saying("99")))
    assert metrics["retry"] == 6


@pytest.mark.parametrize("counts", ['{"retry": "2"}', "[2]"])
async def test_counts_that_are_no_integers_are_refused(tmp_path, counts):
    lines = f"""ask('x'); print('{{"answer": "99", "counts": {counts}}}')"""
    trajectory = await played(tmp_path, lines)
    assert trajectory.ending is Ending.AGENT_ERROR
    assert 'expected integers such as {"retry": 2}' in trajectory.error


def test_secrets_in_the_outputs_of_a_program_are_replaced(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hf_Xq81kd93")
    end = ProgramEnd(1, b"It is hf_Xq81kd93\n", b"hf_Xq81kd93 failed")
    assert end.answer == "It is [MY_TOKEN]"
    assert end.how == "ended with exit code 1: [MY_TOKEN] failed"


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (("python", "a.py", "none.txt", "b.txt"), ["a.py", "b.txt"]),
        ((sys.executable, "a.py"), ["a.py"]),
        (("./a.py", "b.txt"), ["./a.py", "b.txt"]),
    ],
)
def test_a_program_has_the_files_that_count_in_its_experiment(
    tmp_path, monkeypatch, command, files
):
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.txt", "c.txt"):
        Path(name).write_text("")
    agent = {"use": "program", "command": command, "files": ["c.txt"]}
    assert (
        ProgramAgent(command, files=("c.txt",)).files == program_files(agent) == ["c.txt", *files]
    )


async def test_a_program_reads_the_problem_and_the_named_facts_only(tmp_path):
    trajectory = await played(
        tmp_path, "ask('x'); print(sorted(problem.items()))", settings={"facts": ("hint", "none")}
    )
    assert trajectory.answer == "[('hint', 'add'), ('id', 'add-41-58'), ('prompt', '41+58?')]"


async def test_a_program_inherits_named_variables_only(tmp_path, monkeypatch):
    for name in ("MY_SECRET_TOKEN", "MY_FOLDER"):
        monkeypatch.setenv(name, name)
    lines = "ask('x'); print([name for name in os.environ if name.startswith(('MY', 'OPENAI'))])"
    trajectory = await played(tmp_path, lines, settings={"environment": ("MY_FOLDER", "MY_NONE")})
    assert trajectory.answer == "['MY_FOLDER', 'OPENAI_BASE_URL', 'OPENAI_API_KEY']"


@pytest.mark.parametrize(
    ("lines", "ending", "error"),
    [
        ("ask('x'); sys.exit('no idea')", Ending.AGENT_ERROR, "exit code 1: no idea"),
        ("sys.exit(3)", Ending.FAILED, "exit code 3"),
        ("time.sleep(600)", Ending.FAILED, "did not end within 0.6 s"),
    ],
)
async def test_a_failing_program_is_scored_after_its_first_reply_only(
    tmp_path, monkeypatch, lines, ending, error
):
    if "sleep" in lines:
        monkeypatch.setattr("agentfly_core.agents.program.SHARE", 0.01)
    trajectory = await played(tmp_path, lines, deadline=60.0)
    assert trajectory.ending is ending
    assert error in (trajectory.error or "")


@pytest.mark.parametrize(("deaths", "ending"), [(1, Ending.NO_TOOL_CALLS), (2, Ending.FAILED)])
async def test_a_killed_program_is_started_once_more(tmp_path, deaths, ending):
    (tmp_path / "deaths").write_text("")
    lines = f"""
        print(ask('x'))
        path = '{tmp_path / "deaths"}'
        if len(open(path).read()) < {deaths}:
            open(path, 'a').write('x')
            os.kill(os.getpid(), signal.SIGKILL)
    """
    trajectory = await played(tmp_path, lines)
    assert (trajectory.ending, (tmp_path / "deaths").read_text()) == (ending, "x" * deaths)
    assert len(trajectory.turns) == 1


async def test_a_program_that_fails_at_a_limit_ends_by_this_limit(tmp_path):
    trajectory = await played(tmp_path, "ask('x'); ask('y'); ask('z')", max_turns=2)
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.MAX_TURNS, 2)


async def test_a_program_that_recovers_at_a_limit_gives_its_answer(tmp_path):
    lines = """
        try:
            ask('x'), ask('y'), ask('z')
        except OSError:
            print('99')
    """
    trajectory = await played(tmp_path, lines, max_turns=2)
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "99")


async def test_a_missing_program_fails_its_episode():
    spec = rollout_spec(agent=ProgramAgent(("no-such-program",)))
    (trajectory, *_), *_ = await play_all(episode_specs(PROBLEM), spec, scripted(saying("99")))
    assert trajectory.ending is Ending.FAILED
    assert "no-such-program" in (trajectory.error or "")


async def test_large_outputs_are_read_to_the_end_and_kept_in_part(tmp_path):
    lines = f"""
        ask('x')
        for stream in (sys.stdout, sys.stderr):
            stream.write(('x' * 100 + chr(10)) * {MOST_OUTPUT // 10})
        print('99')
    """
    assert (await played(tmp_path, lines)).answer == "99"


async def test_the_descendants_of_a_program_end_with_it(tmp_path):
    lines = """
        import subprocess
        ask('x')
        child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
        print(child.pid)
    """
    trajectory = await played(tmp_path, lines)
    assert trajectory.answer
    pid = int(trajectory.answer)
    until(lambda: not runs(pid))


async def test_a_program_that_leaves_a_daemon_gives_its_answer(tmp_path, monkeypatch):
    monkeypatch.setattr("agentfly_core.gateway.process.ENDED_SECONDS", 0.5)
    lines = """
        import subprocess
        ask('x')
        sleep = [sys.executable, '-c', 'import time; time.sleep(60)']
        print(subprocess.Popen(sleep, start_new_session=True).pid)
    """
    trajectory = await played(tmp_path, lines)
    assert trajectory.answer
    os.kill(int(trajectory.answer), signal.SIGKILL)


async def test_a_function_of_problem_and_url_is_an_agent(tmp_path):
    threads = []

    def solve(problem: Problem, base_url: str) -> str:
        names: dict[str, Any] = {"__name__": "program"}
        threads.append(base_url)
        import json
        import urllib.request

        body = {"model": "any", "messages": [{"role": "user", "content": problem.prompt}]}
        request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            names = json.load(response)
        return str(names["choices"][0]["message"]["content"])

    spec = rollout_spec(agent=FunctionProgram(solve))
    (trajectory, *_), *_ = await play_all(episode_specs(PROBLEM), spec, scripted(saying("99")))
    assert (trajectory.answer, trajectory.agent) == ("99", "solve")


async def test_an_error_without_a_message_ends_its_episode_only():
    def fails(problem: Problem, base_url: str) -> str:
        raise ValueError

    spec = rollout_spec(agent=FunctionProgram(fails))
    (trajectory,), *_ = await play_all(episode_specs(PROBLEM), spec, scripted(saying("99")))
    assert trajectory.ending is Ending.FAILED
    assert "raised ValueError, without a message" in (trajectory.error or "")
