"""200 odd rows: each is read, or refused by its number."""

import csv
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core.datasets.chat_files import ChatFile, ChatRow
from agentfly_core.datasets.files import read
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.trajectory import Problem

Row = dict[str, Any]


def chat(number: int) -> list[Row]:
    """A usable chat, different for each number."""
    call = {"id": "a", "function": {"name": "add", "arguments": json.dumps({"x": number})}}
    return [
        {"role": "user", "content": f"{number}+1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": str(number + 1)},
        {"role": "assistant", "content": f"It is {number + 1}."},
    ]


def without(number: int, place: int, **changes: Any) -> Row:
    """The chat with changes of one message."""
    messages = chat(number)
    messages[place] = {**messages[place], **changes}
    return {"messages": messages}


def nested(levels: int) -> Any:
    return {"x": nested(levels - 1)} if levels else "deep"


READABLE: list[Callable[[int], Row]] = [
    lambda n: {"messages": chat(n)},
    lambda n: {"messages": [{"role": "developer", "content": "Add."}, *chat(n)]},
    lambda n: {"messages": chat(n), "tools": ["add"], "source": {"url": "x", "tags": [1, None]}},
    lambda n: {"messages": chat(n), "prompt": f"{n}+1?"},
    lambda n: {"prompt": chat(n)[:1], "completion": chat(n)[1:]},
    lambda n: {"instruction": f"Add {n}.", "input": "", "output": "1"},
    lambda n: {
        "conversations": [{"from": "human", "value": f"{n}?"}, {"from": "gpt", "value": "1"}]
    },
    lambda n: {"question": f"\u2028{n}\u200b 🙂 é", "response": '"quotes", \\ and <b>'},
    lambda n: without(
        n, 0, content=[{"type": "text", "text": f"{n}"}, {"type": "text", "text": "?"}]
    ),
    lambda n: without(n, 3, weight=1, refusal=None, annotations=[]),
    lambda n: {"messages": json.dumps(chat(n))},
    lambda n: without(n, 2, content=""),
]
REFUSED: list[Callable[[int], Row | str]] = [
    lambda n: '{"messages": [',
    lambda n: f'{{"prompt": "{n}", "prompt": "{n}", "output": "1"}}',
    lambda n: f'{{"prompt": "{n}", "output": "1", "score": NaN}}',
    lambda n: f'["{n}"]',
    lambda n: '{"prompt": "\\ud800", "output": "1"}',
    lambda n: without(n, 0, role="bot"),
    lambda n: without(n, 1, role="assistant", content="", tool_calls=[]),
    lambda n: without(n, 0, content="  "),
    lambda n: without(n, 0, content=[{"type": "image_url", "image_url": {"url": "x"}}]),
    lambda n: without(n, 0, content=[[{"type": "text", "text": "?"}]]),
    lambda n: without(n, 0, content=n),
    lambda n: without(n, 1, tool_calls=[{"function": {"name": "add", "arguments": "{x: 1"}}]),
    lambda n: without(n, 2, tool_call_id="b"),
    lambda n: without(n, 3, role="system"),
    lambda n: {"messages": chat(n)[1:]},
    lambda n: {"messages": [*chat(n), {"role": "assistant", "content": "Sure."}]},
    lambda n: {"messages": [*chat(n)[:2], chat(n)[3]]},
    lambda n: {"messages": chat(n), "prompt": "Another question?", "output": "1"},
    lambda n: {"messages": chat(n), "conversations": chat(n + 1)},
    lambda n: {"messages": str(chat(n))},
    lambda n: {"messages": []},
    lambda n: {"messages": {"role": "user", "content": "?"}, "output": "1"},
    lambda n: {"prompt": None, "output": "1"},
    lambda n: {"prompt": f"{n}?", "output": "1", "tools": [{"type": "function"}]},
    lambda n: {"prompt": f"{n}?", "output": "1", "deep": nested(40)},
    lambda n: {"instruction": f"{n}?", "input": ["a"], "output": "1"},
]


def odd_rows(seed: int) -> list[tuple[bool, str]]:
    """200 lines, and whether each can be read."""
    draw, rows = random.Random(seed), list[tuple[bool, str]]()
    makers = [(True, make) for make in READABLE] + [(False, make) for make in REFUSED]
    for number in range(200):
        readable, make = makers[number] if number < len(makers) else draw.choice(makers)
        row = make(number)
        rows.append((readable, row if isinstance(row, str) else json.dumps(row)))
    draw.shuffle(rows)
    return rows


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("mark", "end"), [("", "\n"), ("\ufeff", "\r\n")])
def test_odd_rows_are_read_or_refused_by_number(
    seed: int, mark: str, end: str, tmp_path: Path
) -> None:
    rows, path = odd_rows(seed), tmp_path / "rows.jsonl"
    path.write_bytes((mark + "".join(line + end for _, line in rows)).encode())
    problems, chats = [row for _, row in read(path)], [*ChatFile().read(path)]
    for number, (readable, line) in enumerate(rows, 1):
        for row, kind in ((problems[number - 1], Problem), (chats[number - 1], ChatRow)):
            assert isinstance(row, kind if readable else BadRow), (line, row)
            if isinstance(row, BadRow):
                assert (row.source, row.row) == ("rows.jsonl", number)


def test_odd_cells_of_tables_are_read_or_refused_by_number(tmp_path: Path) -> None:
    cells = [(json.dumps(chat(1)), "2"), (str(chat(2)), "3"), ("", "4"), ("Why?\r\nWhy?", "")]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("messages", "answer"), *cells])
    kinds = [type(row) for _, row in read(tmp_path / "a.csv")]
    assert kinds == [Problem, BadRow, BadRow, Problem]
    rows = [{"prompt": "1?", "score": 1.0}, {"prompt": "2?", "score": math.nan}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (_, first), (_, second) = read(tmp_path / "a.parquet")
    assert isinstance(first, Problem)
    assert isinstance(second, BadRow)
    assert second.fault.startswith("the field 'score' cannot be stored as JSON")
