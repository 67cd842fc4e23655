"""Parquet files of trajectories, scores and problems, with a public schema.

In a file of trajectories, each row is a trajectory. Rows are sorted by problem, chain (the index of
the episode among the problem's episodes) and agent. Tokens are int32 and log-probabilities float32.
The turns of a trajectory are sorted by context (turns with the same context form one sequence of
tokens). The functions that read a file return the turns in the order of time.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentfly_core.records import trajectory as record

NUMBER = b"agentfly.schema"
EPISODES, SCORES = "trajectories.parquet", "scores.parquet"
HELD_OUT = "held_out.parquet"
"""EPISODES, SCORES and HELD_OUT are names of parquet files in the output folders of stages."""
# sorted and without spaces, because equal episodes must have equal bytes
_text = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_Fields = list[tuple[str, pa.DataType]]
_SPAN: _Fields = [
    ("tokens", pa.list_(pa.int32())),
    ("logprobs", pa.list_(pa.float32())),
    ("policy_version", pa.int32()),
    ("finish", pa.string()),
    ("entropies", pa.list_(pa.float32())),
    ("trained", pa.bool_()),
]
_OF_CHATS: _Fields = [("messages", pa.string()), ("tools", pa.list_(pa.string()))]


def _texts(*names: str) -> _Fields:
    return [(name, pa.string()) for name in names]


_TURN: _Fields = [
    ("read", pa.string()),
    ("given", pa.list_(pa.int32())),
    ("reply", pa.string()),
    ("sampled", pa.list_(pa.struct(_SPAN))),
    ("context", pa.int32()),
    ("call", pa.int32()),
    ("temperature", pa.float64()),
    ("state", pa.string()),
    ("reward", pa.float64()),
    ("pictures", pa.list_(pa.string())),
]
TRAJECTORY = pa.schema(
    [
        *_texts("id", "episode", "problem", "prompt"),
        *_OF_CHATS,
        *_texts("facts", "task", "group"),
        ("chain", pa.int32()),
        *_texts("agent", "role"),
        ("turns", pa.list_(pa.struct(_TURN))),
        *_texts("closing", "ending", "error", "observed"),
        ("seed", pa.int64()),
        ("branch_parent", pa.string()),
        ("branch_turns", pa.int32()),
        *_texts("answered", "policy"),
    ],
    metadata={NUMBER: b"3"},
)
SCORED = pa.schema(
    [
        *_texts("trajectory_id", "rewards"),
        ("turn_rewards", pa.list_(pa.float64())),
        ("reward", pa.float64()),
        ("unscored", pa.string()),
    ],
    metadata={NUMBER: b"1"},
)
PROBLEM_1 = pa.schema(_texts("id", "prompt", "facts", "task"), metadata={NUMBER: b"1"})
"""Schema of datasets in which no problem has `messages` or `tools`. New files of such datasets
still have this schema, because the newer schema PROBLEM would change their digests.
"""
PROBLEM = pa.schema([*PROBLEM_1, *_OF_CHATS], metadata={NUMBER: b"2"})
_SPAN_FIELDS = tuple(name for name, _ in _SPAN)
_TURN_FIELDS = ("context", "call", "temperature", "state", "reward", "pictures")
PLAIN = ("id", "episode", "group", "chain", "agent", "role", "error", "seed", "answered", "policy")
"""Fields of a trajectory that are stored without conversion."""


def write_trajectories(path: Path, trajectories: Iterable[record.Trajectory]) -> None:
    """Write trajectories, sorted by problem, chain (the episode's index) and agent.

    A forked trajectory begins with the first turns of another trajectory, its parent. If both are
    in the same file, these turns are stored only with the parent.
    """
    in_order = sorted(trajectories, key=attrgetter("problem.id", "chain", "agent"))
    ids = {one.id for one in in_order}
    own = [
        replace(one, turns=one.own_turns) if one.branch and one.branch.parent in ids else one
        for one in in_order
    ]
    _write(path, [trajectory_row(t) for t in own], TRAJECTORY)


def trajectory_row(t: record.Trajectory) -> dict[str, Any]:
    """Convert a trajectory to a row of the schema TRAJECTORY."""
    return (
        _fields(t, PLAIN)
        | _problem_row(t.problem)
        | {
            "problem": t.problem.id,
            "answered": None if t.answered is None else _unicode(t.answered),
            "turns": [
                _turn_row(turn) for turn in sorted(t.turns, key=attrgetter("context", "call"))
            ],
            "closing": _text([_item_row(item) for item in t.closing]),
            "ending": t.ending.value,
            "observed": _text({name: asdict(score) for name, score in t.observed.items()}),
            "branch_parent": t.branch.parent if t.branch else None,
            "branch_turns": t.branch.turns if t.branch else None,
        }
    )


def read_trajectories(path: Path) -> list[record.Trajectory]:
    """Read trajectories. Raises ValueError if the schema of the file is not supported."""
    stored = [trajectory_of(row) for row in _read(path, TRAJECTORY)]
    if not any(one.branch for one in stored):
        return stored
    by_id, whole = {one.id: one for one in stored}, dict[str, record.Trajectory]()
    # The chain of a parent is smaller than the chains of its forks. In the order of chains, the
    # turns of a parent are therefore complete before the forks need them.
    for one in sorted(stored, key=attrgetter("chain")):
        whole[one.id] = one
        if one.branch and one.branch.parent in by_id:
            shared = whole[one.branch.parent].turns[: one.branch.turns]
            whole[one.id] = replace(one, turns=(*shared, *one.turns))
    return [whole[one.id] for one in stored]


def trajectory_of(row: Mapping[str, Any]) -> record.Trajectory:
    """Convert a row of the schema TRAJECTORY to a trajectory."""
    return record.Trajectory(
        **{name: row[name] for name in PLAIN},
        problem=_problem(row["problem"], row),
        turns=tuple(sorted(map(_turn, row["turns"]), key=attrgetter("call", "context"))),
        closing=tuple(record.Observation(**item) for item in json.loads(row["closing"])),
        ending=record.Ending(row["ending"]),
        observed={
            name: record.Unscored(**fields)
            if "reason" in fields
            else record.Score(**_tuples(fields))
            for name, fields in json.loads(row["observed"]).items()
        },
        branch=record.Branch(row["branch_parent"], row["branch_turns"])
        if row["branch_parent"] is not None
        else None,
    )


def write_scores(path: Path, scores: Iterable[record.Scored]) -> None:
    """Write scores to a file, in the order of `scores`."""
    rows = [
        {
            "trajectory_id": scored.trajectory_id,
            "rewards": _text(dict(scored.rewards)),
            "turn_rewards": scored.turn_rewards,
            "reward": None if isinstance(scored.reward, record.Unscored) else scored.reward,
            "unscored": scored.reward.reason
            if isinstance(scored.reward, record.Unscored)
            else None,
        }
        for scored in scores
    ]
    _write(path, rows, SCORED)


def read_scores(path: Path) -> list[record.Scored]:
    """Read scores. Raises ValueError if the schema of the file is not supported."""
    return [
        record.Scored(
            trajectory_id=row["trajectory_id"],
            rewards=json.loads(row["rewards"]),
            turn_rewards=tuple(row["turn_rewards"]),
            reward=row["reward"] if row["unscored"] is None else record.Unscored(row["unscored"]),
        )
        for row in _read(path, SCORED)
    ]


def write_problems(path: Path, problems: Iterable[record.Problem]) -> None:
    """Write problems to a file, in the order of `problems`.

    If a problem has the field `messages` or `tools`, the file has schema 2, otherwise schema 1.
    """
    rows = [{"id": p.id} | _problem_row(p) for p in problems]
    of_chats = any(row["messages"] or row["tools"] is not None for row in rows)
    _write(path, rows, PROBLEM if of_chats else PROBLEM_1)


def read_problems(path: Path, rows: Sequence[int] | None = None) -> list[record.Problem]:
    """Read all problems, or only the problems with the row indices in `rows`.

    Raises ValueError if the schema of the file is not supported.
    """
    return [_problem(row["id"], row) for row in _read(path, PROBLEM, PROBLEM_1, rows=rows)]


def read_column(path: Path, name: str) -> list[str]:
    """Read one text column of a file, such as the ids of problems."""
    values: list[str] = pq.read_table(path, columns=[name])[name].to_pylist()
    return values


def count_rows(path: Path) -> int:
    """Return the number of rows of a file."""
    return int(pq.read_metadata(path).num_rows)


def _write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _read(
    path: Path, *schemas: pa.Schema, rows: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    with pq.ParquetFile(path) as file:  # `read_table` takes twice as long for a shard
        table = file.read(use_threads=False)
    number = _number(table.schema)
    expected = next((one for one in schemas if _number(one) == number), schemas[0])
    is_supported = number == _number(expected)
    if not (is_supported and table.schema.equals(expected)):
        was = "other columns" if is_supported else f"schema {number}"
        raise ValueError(
            f"{path} has {was}, expected schema {_number(expected)}: read it with the version of "
            "AgentFly that wrote the file."
        )
    if rows is not None:
        table = table.take(rows)
    records: list[dict[str, Any]] = table.to_pylist()
    return records


def _number(schema: pa.Schema) -> str:
    number: bytes = (schema.metadata or {}).get(NUMBER, b"0")
    return number.decode()


def _fields(stored: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the attributes `names` of an object as a dict.

    `asdict` is not used, because it would copy each token.
    """
    return {name: getattr(stored, name) for name in names}


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}


def _unicode(text: str) -> str:
    """Replace lone surrogates by question marks, because parquet cannot store surrogates."""
    return text.encode(errors="replace").decode()


def _problem_row(problem: record.Problem) -> dict[str, Any]:
    facts = _text(dict(problem.facts))
    messages = _text([_item_row(item) for item in problem.messages])
    return {
        "prompt": problem.prompt,
        "messages": messages if problem.messages else None,
        "tools": problem.tools,
        "facts": facts,
        "task": problem.task,
    }


def _item_row(item: record.Message | record.Observation) -> dict[str, Any]:
    if isinstance(item, record.Observation):
        return {"tool": item.tool, "content": item.content, "error": item.error}
    calls = [
        {"text": call.text, "fault": call.fault}
        if isinstance(call, record.BadCall)
        else {"name": call.name, "arguments": dict(call.arguments)}
        | ({"lenient": True} if call.lenient else {})
        | ({"id": call.id} if call.id else {})
        for call in item.calls
    ]
    row: dict[str, Any] = {"role": item.role, "content": item.content, "calls": calls}
    row |= {"reasoning": item.reasoning} if item.reasoning else {}
    row |= {"rewritten": True} if item.rewritten else {}
    return {**row, "cut": True} if item.cut else row


def _turn_row(turn: record.Turn) -> dict[str, Any]:
    continues = {} if turn.continues is None else {"continues": turn.continues}
    return _fields(turn, _TURN_FIELDS) | {
        "state": _unicode(turn.state),
        "read": _text([_item_row(item) for item in turn.read]),
        "given": turn.given.tokens,
        "reply": _text(_item_row(turn.reply) | continues),
        "sampled": [_fields(span, _SPAN_FIELDS) for span in turn.sampled],
    }


def _turn(row: Mapping[str, Any]) -> record.Turn:
    item = json.loads(row["reply"])
    continues, reply = item.pop("continues", None), _message(item)
    assert isinstance(reply, record.Message)
    return record.Turn(
        read=tuple(_message(item) for item in json.loads(row["read"])),
        given=record.Given(tuple(row["given"])),
        reply=reply,
        sampled=tuple(record.Sampled(**_tuples(span)) for span in row["sampled"]),
        continues=continues,
        **_tuples({name: row[name] for name in _TURN_FIELDS}),
    )


def _problem(name: str, row: Mapping[str, Any]) -> record.Problem:
    messages = tuple(map(_message, json.loads(row.get("messages") or "[]")))
    listed = row.get("tools")
    tools = None if listed is None else tuple(listed)
    return record.Problem(
        name, row["prompt"], json.loads(row["facts"]), row["task"], messages, tools
    )


def _message(item: Mapping[str, Any]) -> record.Message | record.Observation:
    if "tool" in item:
        return record.Observation(**item)
    calls = tuple(
        record.ToolCall(**c) if "name" in c else record.BadCall(**c) for c in item["calls"]
    )
    return record.Message(**{**item, "calls": calls})
