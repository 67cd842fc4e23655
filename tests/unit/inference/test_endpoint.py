"""A chat service as the policy that plays, held against others and never trained."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.experiment.run_layout import PlayLayout, rollouts
from agentfly_core.records.parquet import EPISODES, read_trajectories
from agentfly_core.records.trajectory import ToolCall, Trajectory
from agentfly_core.store.store import Store
from flows.__main__ import main
from tests.support.capitals import EXPERIMENT
from tests.support.chat_service import HttpReply, completion, serving


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """That of a project folder, the working directory, with one experiment."""
    (tmp_path / "atlas.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    return Store.at(".", tmp_path / "cache")


def played(url: str, monkeypatch: pytest.MonkeyPatch, *words: str, **settings: Any) -> int:
    """The exit status of `agentfly play` with the service of the site."""
    endpoint = {"url": url, "model": "wise", "attempts": 1, **settings}
    monkeypatch.setenv("AGENTFLY_ENDPOINTS", json.dumps({"sage": endpoint}))
    return main(["play", "atlas.yaml", "--policy", "endpoint:sage", *words])


def episodes(store: Store, name: str) -> list[Trajectory]:
    """The stored episodes."""
    scored = store.artifact(PlayLayout(name).scored)
    folders = [store.open(rollout) for rollout in rollouts(scored)]
    return [t for folder in folders for t in read_trajectories(folder / EPISODES)]


def knows(body: dict[str, Any], _: int) -> HttpReply:
    """Look the capital up and answer with the result of the atlas."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return completion("", ("answer", json.dumps({"text": last["content"]})))
    country = last["content"].removeprefix("What is the capital of ").removesuffix("?")
    return completion("I look.", ("look_up", json.dumps({"country": country})))


@pytest.mark.slow
def test_a_request_is_never_sent_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(knows) as there:
        assert played(there.url, monkeypatch, "-n", "6") == 0
        assert len(there.asked) == 12
        assert played(there.url, monkeypatch, "-n", "6") == 0
        assert len(there.asked) == 12
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["endpoint:sage plays.", "6 episodes of 3 problems: 6 terminal"]
    assert episodes(store, "atlas-1") == episodes(store, "atlas-2")
    first = episodes(store, "atlas-1")[0].turns[0].reply
    assert (first.content, first.calls) == ("I look.", (ToolCall("look_up", {"country": "Chile"}),))
    tools = [tool["function"]["name"] for tool in there.asked[0]["tools"]]
    assert (tools, there.asked[0]["max_tokens"]) == (["look_up", "answer"], 200)


def test_episodes_of_a_problem_have_different_answers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda body, number: completion(f"It is number {number}.")) as there:
        assert played(there.url, monkeypatch, "-n", "6") == 0
    replies = {t.turns[0].reply.content for t in episodes(store, "atlas-1")}
    assert replies == {f"It is number {number}." for number in range(6)}


@pytest.mark.parametrize(
    ("answer", "settings", "message"),
    [
        ((400, {}, b"unknown field"), {}, "'sage' refuses a request: 400 unknown field"),
        ((500, {}, b"on fire"), {}, "'sage' gave no answer in 1 attempt: 500 on fire"),
        (completion("Oslo"), {"max_requests": 2}, "endpoints.sage.max_requests"),
        (
            completion("Oslo"),
            {"api_key_env": "NO_SUCH_KEY"},
            "variable NO_SUCH_KEY is not set",
        ),
    ],
    ids=["refused", "lost", "budget", "no key"],
)
def test_a_failed_request_ends_the_command_with_a_remedy(
    answer: HttpReply,
    settings: dict[str, Any],
    message: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(lambda body, number: answer) as there:
        assert played(there.url, monkeypatch, "-n", "3", **settings) == 2
    captured = capsys.readouterr()
    assert message in captured.err + captured.out
    assert "Traceback" not in captured.err


def test_an_endpoint_missing_in_the_site_is_refused(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", "atlas.yaml", "--policy", "endpoint:sage"]) == 2
    assert "The site 'local' has no endpoint 'sage'." in capsys.readouterr().err
