"""The examples and claims of docs/how-to/tools-and-rewards.md hold."""

import json
import re
import sys
import threading
from dataclasses import fields, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from transformers import AutoTokenizer

from agentfly_core.authoring.reward import Reward, RewardOptions
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import Tool, ToolOptions
from agentfly_core.config import loading
from agentfly_core.config.import_path import load
from agentfly_core.experiment import checks
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.records import dataset
from agentfly_core.records.trajectory import Ending, Problem
from agentfly_core.testing.episodes import episode_specs, play, play_all, score_of
from tests.support.experiments import experiment_of
from tests.support.project import ROOT

TOOLS, DATA, READY_MADE = (
    (ROOT / f"docs/{name}.md").read_text()
    for name in ("how-to/tools-and-rewards", "how-to/data", "reference/ready-made")
)
PAGE = TOOLS + READY_MADE + DATA


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """The experiment of the page, in a folder with its Python file."""
    (tmp_path / "my_quiz.py").write_text(
        "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    )
    (tmp_path / "quiz.yaml").write_text(re.search(r"```yaml\n(model.*?)```", PAGE, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_quiz", raising=False)  # may be loaded by another test
    return loading.read("quiz.yaml").settings


async def test_the_quiz_of_the_page_is_valid_and_solvable(settings, nano):
    checks.check(settings)
    problems = dataset.build(settings.data, settings.seed)["train"]
    tokenizer = AutoTokenizer.from_pretrained(nano)
    rules = rollout_spec(experiment_of(settings).whole, {}, tokenizer)
    policy = policy_at(settings.warm_start.demonstrations, {}, problems, 0)
    encode = partial(tokenizer.encode, add_special_tokens=False)
    sampler = Scripted(encode, rules.template.stop_tokens[0], policy)
    played, *_ = await play_all(episode_specs(*problems), rules, sampler)
    assert [(t.ending, t.answer) for t in played] == [
        (Ending.TERMINAL, "Santiago"),
        (Ending.TERMINAL, "Tokyo"),
    ]
    scores = await score(played, {load("my_quiz:right"): 1.0})
    assert [one.rewards for one in scores] == [{"right": 1.0, "right/short": 1.0}] * 2


async def test_the_reward_of_the_page_prefers_the_briefest_answer(settings):
    played = [replace(await play([text]), chain=n) for n, text in enumerate(("Oslo.", "Oslo"))]
    scores = await score(played, {load("my_quiz:briefest"): 1.0})
    assert [one.reward for one in scores] == [0.0, 1.0]


class Server(BaseHTTPRequestHandler):
    """A model that is busy at first, then replies with the question."""

    asked: ClassVar[list[str]] = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body["messages"][0]["content"])
        verdict = "yes" if "Answer: Santiago\n" in self.asked[-1] else "no"
        answer = json.dumps({"choices": [{"message": {"content": verdict}}]}).encode()
        self.send_response(503 if len(self.asked) == 1 else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_): ...


async def test_the_judge_of_the_page_retries_a_busy_server(settings):
    chile = Problem("Chile", "Which city is the capital of Chile?", {"answer": "Santiago"})
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        judge = load("my_quiz:Judge").with_settings(url=f"http://127.0.0.1:{server.server_port}")
        judge = replace(judge, backoff=0.0)
        rewards = [
            (await score_of(await play([reply], problem=chile), judge)).reward
            for reply in ("Santiago", "Lima")
        ]
        server.shutdown()
    assert rewards == [1.0, 0.0]
    assert len(Server.asked) == 3


@pytest.mark.parametrize(("part", "options"), [(Tool, ToolOptions), (Reward, RewardOptions)])
def test_the_page_has_all_decorator_arguments_with_defaults(part, options):
    text = PAGE[PAGE.index(f"| `@{part.kind}(...)` |") :]
    documented = dict(
        re.findall(r"^\| `(\w+)` \| (.*?) \|", text[: text.index("\n\n")], re.MULTILINE)
    )
    defaults = {one.name: one.default for one in fields(part)}
    defaults = {name: defaults[name] for name in options.__optional_keys__}
    assert documented.keys() == defaults.keys()
    numbers = {
        name: default for name, default in defaults.items() if isinstance(default, int | float)
    }
    assert {name: documented[name] for name in numbers} == {
        name: f"`{default}`" for name, default in numbers.items()
    }


def test_the_claims_of_the_page_hold():
    paths = re.findall(r"`((?:rewards|tools|environments)\.[a-z_]+:\w+)`", PAGE)
    assert [path for path in paths if not load(f"agentfly_core.{path}")] == []
