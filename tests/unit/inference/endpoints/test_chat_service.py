"""Requests to a chat service are repeated after failures, within the budget, and cached."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.config.site import Endpoint
from agentfly_core.inference.endpoints.budget import BudgetSpent
from agentfly_core.inference.endpoints.chat import ChatRequest
from agentfly_core.inference.endpoints.chat_service import (
    ChatService,
)
from agentfly_core.inference.sampler import NoReply
from agentfly_core.records.trajectory import Message
from agentfly_core.store.store import Store
from tests.support.chat_service import HttpReply, Service, completion, serving
from tests.support.waiting import LIMIT

HELLO = ChatRequest((Message("user", "Hello."),))


def service(url: str, folder: Path, **settings: Any) -> ChatService:
    """The client of a service, which repeats a request at once, with answers in a folder."""
    endpoint = Endpoint(url=url, model="wise", **settings)
    store = Store.at(str(folder), folder / "cache")
    return ChatService("judge", endpoint, store, pause=0.0)


def texts(client: ChatService, *draws: int, request: ChatRequest = HELLO) -> list[str]:
    """The replies to one request, in order."""

    async def ask() -> list[str]:
        async with client.open() as chat:
            return [(await chat.ask(request, draw)).content for draw in draws]

    return asyncio.run(ask())


def counting(_: Any, number: int) -> HttpReply:
    return completion(f"answer {number}")


def first(*refusals: HttpReply) -> Any:
    """A service that refuses before it answers."""

    def says(_: Any, number: int) -> HttpReply:
        return refusals[number] if number < len(refusals) else completion("at last")

    return says


def test_a_stored_answer_is_reused_by_other_processes(tmp_path: Path) -> None:
    with serving(counting) as there:
        assert texts(service(there.url, tmp_path), 7, 7, 8) == ["answer 0", "answer 0", "answer 1"]
        assert texts(service(there.url, tmp_path), 8, 7) == ["answer 1", "answer 0"]
        assert len(there.asked) == 2
        other = ChatRequest(HELLO.messages, temperature=0.0)
        assert texts(service(there.url, tmp_path), 7, request=other) == ["answer 2"]


def test_concurrent_requests_use_the_first_stored_answer(tmp_path: Path) -> None:
    async def both(client: ChatService) -> Sequence[str]:
        async with client.open() as chat:
            replies = await asyncio.gather(chat.ask(HELLO, 7), chat.ask(HELLO, 7))
        return [reply.content for reply in replies]

    with serving(counting) as there:
        one, other = asyncio.run(both(service(there.url, tmp_path)))
        assert one == other
        assert texts(service(there.url, tmp_path), 7) == [one]


def test_the_key_is_in_no_error_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "sk-very-secret-1")
    refusal = (401, {}, b"no such key: sk-very-secret-1")
    with serving(first(refusal)) as there:
        client = service(there.url, tmp_path, api_key_env="JUDGE_API_KEY")
        with pytest.raises(NoReply, match=r"401 no such key: \[JUDGE_API_KEY\]"):
            texts(client, 7)
        assert texts(client, 7) == ["at last"]
    assert {h["Authorization"] for h in there.headers} == {"Bearer sk-very-secret-1"}
    assert {h["path"] for h in there.headers} == {"/v1/chat/completions"}
    stored = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert len(stored) == 1
    assert "secret" not in stored[0]
    monkeypatch.delenv("JUDGE_API_KEY")
    with pytest.raises(ValueError, match="JUDGE_API_KEY is not set"):
        texts(client, 7)


@pytest.mark.parametrize(
    "refusal",
    [
        (429, {}, b"slow down"),
        (503, {}, b"busy"),
        (200, {}, b"<html>"),
        (200, {}, b"{}"),
        (200, {}, b"x" * 3000),
        (200, {"Content-Length": "9999", "Connection": "close"}, b"cut"),
    ],
    ids=["too many", "busy", "no JSON", "no choices", "too long", "cut"],
)
def test_a_failed_attempt_is_repeated(refusal: HttpReply, tmp_path: Path) -> None:
    with serving(first(refusal)) as there:
        client = service(there.url, tmp_path, max_answer_bytes=2000, timeout=LIMIT)
        assert texts(client, 7) == ["at last"]
        assert len(there.asked) == 2


def test_the_error_after_three_attempts_has_the_last_answer(tmp_path: Path) -> None:
    with serving(lambda body, number: (500, {}, b"on fire")) as there:
        client = service(there.url, tmp_path, attempts=3)
        with pytest.raises(ServiceFailure, match=r"'judge' .* 3 attempts: 500 on fire"):
            texts(client, 7)
        assert len(there.asked) == 3
    with pytest.raises(ServiceFailure, match="in 3 attempts"):
        texts(client, 7)


def test_a_redirection_is_refused(tmp_path: Path) -> None:
    with serving(lambda body, number: (307, {"Location": "http://127.0.0.1:9/"}, b"")) as there:
        with pytest.raises(NoReply, match="307"):
            texts(service(there.url, tmp_path), 7)
        assert len(there.asked) == 1


def test_only_sent_requests_count_in_the_budget(
    tmp_path: Path,
) -> None:
    with serving(first((503, {}, b"busy"))) as there:
        client = service(there.url, tmp_path, max_requests=2)
        assert texts(client, 7, 7, 7) == ["at last"] * 3
        with pytest.raises(BudgetSpent, match=r"2 requests.* 2\. .*judge\.max_requests"):
            texts(client, 8)
        assert len(there.asked) == 2


def test_no_request_is_sent_without_tokens_left(tmp_path: Path) -> None:
    with serving(counting) as there:
        client = service(there.url, tmp_path, max_tokens=15)
        texts(client, 1, 2)
        with pytest.raises(BudgetSpent, match=r"20 tokens.* 15\. .*endpoints\.judge\.max_tokens"):
            texts(client, 3)
        assert len(there.asked) == 2


def test_extra_fields_are_sent_and_null_removes_a_field(tmp_path: Path) -> None:
    with serving(counting) as there:
        extra = {"max_tokens": None, "max_completion_tokens": 64, "reasoning_effort": "low"}
        texts(service(there.url, tmp_path, extra=extra), 7)
        assert there.asked == [
            {
                "messages": [{"role": "user", "content": "Hello."}],
                "temperature": 1.0,
                "model": "wise",
                "max_completion_tokens": 64,
                "reasoning_effort": "low",
            }
        ]


def test_the_site_limits_concurrent_requests(tmp_path: Path) -> None:
    here, most, lock = 0, 0, threading.Lock()
    barrier = threading.Barrier(2, timeout=LIMIT)

    def says(_: Any, number: int) -> HttpReply:
        nonlocal here, most
        with lock:
            here += 1
            most = max(most, here)
        barrier.wait()
        with lock:
            here -= 1
        return completion("done")

    async def many(there: Service) -> None:
        client = service(there.url, tmp_path, concurrency=2)
        async with client.open() as one, client.open() as other:
            chats = [one, other] * 3
            await asyncio.gather(*(chat.ask(HELLO, draw) for draw, chat in enumerate(chats)))

    with serving(says) as there:
        asyncio.run(many(there))
    assert most == 2


def test_a_new_event_loop_has_room_for_its_requests(tmp_path: Path) -> None:
    """Requests of a loop that is held never end, so they must not count in the next loop."""
    with serving(counting) as there:
        client = service(there.url, tmp_path, concurrency=1)

        async def three(begin: int) -> Sequence[Message]:
            async with client.open() as chat:
                draws = range(begin, begin + 3)
                return await asyncio.gather(*(chat.ask(HELLO, draw) for draw in draws))

        for begin in (0, 3):
            asyncio.run(three(begin))
        assert len(there.asked) == 6


def reporting(tokens: Any) -> Any:
    """A service that reports these tokens for each answer."""
    status, headers, content = completion("answer")
    answer = {**json.loads(content), "usage": {"total_tokens": tokens}}
    return lambda _body, _number: (status, headers, json.dumps(answer).encode())


@pytest.mark.parametrize("tokens", [-1e9, -1_000_000_000, 0, True])
def test_a_service_that_reports_no_tokens_spends_the_budget(tmp_path: Path, tokens: Any) -> None:
    with serving(reporting(tokens)) as there, pytest.raises(BudgetSpent):
        texts(service(there.url, tmp_path, max_tokens=200), *range(20))


@pytest.mark.parametrize("variable", ["JUDGE_API_KEY", "JUDGE"])
def test_a_key_in_an_answer_is_redacted_before_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "sk-very-secret-1")

    def echo(_body: Any, _number: int) -> HttpReply:
        return completion("sk-very-secret-1", ("look_up", '{"key": "sk-very-secret-1"}'))

    with serving(echo) as there:
        client = service(there.url, tmp_path, api_key_env=variable)
        assert texts(client, 0) == texts(client, 0) == [f"[{variable}]"]
    (stored,) = (tmp_path / "answers").rglob("*.json")
    assert "secret" not in stored.read_text()
