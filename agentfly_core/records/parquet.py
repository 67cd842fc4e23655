"""Trajectories, scores and problems as parquet files, whose schema is public.

One row a trajectory, sorted by (problem, chain, agent); tokens are int32, log-probabilities
float32. A trajectory's turns are stored context by context, and read back in the order of time.
A file of another schema is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentfly_core.records.trajectory import (
    BadCall,
    Branch,
    Ending,
    Given,
    Message,
    Observation,
    Problem,
    Sampled,
    Score,
    Scored,
    ToolCall,
    Trajectory,
    Turn,
    Unscored,
)

NUMBER = b"agentfly.schema"
EPISODES, SCORES = "trajectories.parquet", "scores.parquet"
"""What the files are called in the folders of stages."""
_text = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_SPAN = pa.struct(
    [
        ("tokens", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("policy_version", pa.int32()),
        ("finish", pa.string()),
        ("entropies", pa.list_(pa.float32())),
    ]
)
_TURN = pa.struct(
    [
        ("read", pa.string()),
        ("given", pa.list_(pa.int32())),
        ("reply", pa.string()),
        ("sampled", pa.list_(_SPAN)),
        ("context", pa.int32()),
        ("call", pa.int32()),
        ("temperature", pa.float64()),
        ("state", pa.string()),
        ("reward", pa.float64()),
        ("pictures", pa.list_(pa.string())),
    ]
)
TRAJECTORY = pa.schema(
    [
        ("id", pa.string()),
        ("episode", pa.string()),
        ("problem", pa.string()),
        ("prompt", pa.string()),
        ("facts", pa.string()),
        ("task", pa.string()),
        ("group", pa.string()),
        ("chain", pa.int32()),
        ("agent", pa.string()),
        ("role", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("closing", pa.string()),
        ("ending", pa.string()),
        ("error", pa.string()),
        ("observed", pa.string()),
        ("seed", pa.int64()),
        ("branch_parent", pa.string()),
        ("branch_turns", pa.int32()),
        ("answered", pa.string()),
        ("policy", pa.string()),
    ],
    metadata={NUMBER: b"1"},
)
SCORED = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("rewards", pa.string()),
        ("turn_rewards", pa.list_(pa.float64())),
        ("reward", pa.float64()),
        ("unscored", pa.string()),
    ],
    metadata={NUMBER: b"1"},
)
PROBLEM = pa.schema(
    [("id", pa.string()), ("prompt", pa.string()), ("facts", pa.string()), ("task", pa.string())],
    metadata={NUMBER: b"1"},
)


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """Write trajectories, sorted by (problem, chain, agent)."""
    ordered = sorted(trajectories, key=attrgetter("problem.id", "chain", "agent"))
    rows = [
        {
            "id": t.id,
            "episode": t.episode,
            "problem": t.problem.id,
            "prompt": t.problem.prompt,
            "facts": _text(dict(t.problem.facts)),
            "task": t.problem.task,
            "group": t.group,
            "chain": t.chain,
            "agent": t.agent,
            "role": t.role,
            "turns": [
                _turn_row(turn) for turn in sorted(t.turns, key=attrgetter("context", "call"))
            ],
            "closing": _text([_item_row(item) for item in t.closing]),
            "ending": t.ending.value,
            "error": t.error,
            "observed": _text({name: asdict(score) for name, score in t.observed.items()}),
            "seed": t.seed,
            "branch_parent": t.branch.parent if t.branch else None,
            "branch_turns": t.branch.turns if t.branch else None,
            "answered": t.answered,
            "policy": t.policy,
        }
        for t in ordered
    ]
    _write(path, rows, TRAJECTORY)


def read_trajectories(path: Path) -> list[Trajectory]:
    """Read trajectories; raises ValueError for a file of another schema."""
    return [
        Trajectory(
            id=row["id"],
            episode=row["episode"],
            problem=_problem(row["problem"], row),
            group=row["group"],
            chain=row["chain"],
            agent=row["agent"],
            role=row["role"],
            turns=_turns(row["turns"]),
            closing=tuple(Observation(**item) for item in json.loads(row["closing"])),
            ending=Ending(row["ending"]),
            error=row["error"],
            observed={
                name: Unscored(**fields)
                if "reason" in fields
                else Score(**{**fields, "per_turn": tuple(fields["per_turn"])})
                for name, fields in json.loads(row["observed"]).items()
            },
            seed=row["seed"],
            branch=Branch(parent, row["branch_turns"])
            if (parent := row["branch_parent"]) is not None
            else None,
            answered=row["answered"],
            policy=row["policy"],
        )
        for row in _read(path, TRAJECTORY)
    ]


def write_scores(path: Path, scores: Iterable[Scored]) -> None:
    """Write scores in the order given."""
    rows = [
        {
            "trajectory_id": scored.trajectory_id,
            "rewards": _text(dict(scored.rewards)),
            "turn_rewards": scored.turn_rewards,
            "reward": None if isinstance(scored.reward, Unscored) else scored.reward,
            "unscored": scored.reward.reason if isinstance(scored.reward, Unscored) else None,
        }
        for scored in scores
    ]
    _write(path, rows, SCORED)


def read_scores(path: Path) -> list[Scored]:
    """Read scores; raises ValueError for a file of another schema."""
    return [
        Scored(
            trajectory_id=row["trajectory_id"],
            rewards=json.loads(row["rewards"]),
            turn_rewards=tuple(row["turn_rewards"]),
            reward=row["reward"] if row["unscored"] is None else Unscored(row["unscored"]),
        )
        for row in _read(path, SCORED)
    ]


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write problems in the order given."""
    rows = [
        {"id": p.id, "prompt": p.prompt, "facts": _text(dict(p.facts)), "task": p.task}
        for p in problems
    ]
    _write(path, rows, PROBLEM)


def read_problems(path: Path, rows: Sequence[int] | None = None) -> list[Problem]:
    """Read problems, all or those of these rows in this order.

    Raises ValueError for a file of another schema.
    """
    return [_problem(row["id"], row) for row in _read(path, PROBLEM, rows)]


def read_column(path: Path, name: str) -> list[str]:
    """Read one column of text of a file, such as the ids of problems."""
    values: list[str] = pq.read_table(path, columns=[name])[name].to_pylist()
    return values


def count_rows(path: Path) -> int:
    """How many rows a file has."""
    return int(pq.read_metadata(path).num_rows)


def _write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _read(path: Path, schema: pa.Schema, rows: Sequence[int] | None = None) -> list[dict[str, Any]]:
    with pq.ParquetFile(path) as file:  # read_table takes twice as long for a shard
        table = file.read(use_threads=False)
    number, expected = ((s.metadata or {}).get(NUMBER, b"0") for s in (table.schema, schema))
    if number != expected or not table.schema.equals(schema):
        was = f"schema {number.decode()}" if number != expected else "other columns"
        raise ValueError(
            f"{path} has {was}, expected schema {expected.decode()}: read it with the version of "
            "AgentFly that wrote it."
        )
    if rows is not None:
        table = table.take(rows)
    records: list[dict[str, Any]] = table.to_pylist()
    return records


# Written out, here and below: `asdict` copies each value and token by itself.
def _item_row(item: Message | Observation) -> dict[str, Any]:
    if isinstance(item, Observation):
        return {"tool": item.tool, "content": item.content, "error": item.error}
    calls = [
        {"text": call.text, "fault": call.fault}
        if isinstance(call, BadCall)
        else {"name": call.name, "arguments": dict(call.arguments)}
        | ({"lenient": True} if call.lenient else {})
        for call in item.calls
    ]
    row = {"role": item.role, "content": item.content, "calls": calls}
    return {**row, "cut": True} if item.cut else row


def _turn_row(turn: Turn) -> dict[str, Any]:
    return {
        "read": _text([_item_row(item) for item in turn.read]),
        "given": turn.given.tokens,
        "reply": _text(_item_row(turn.reply)),
        "sampled": [
            {
                "tokens": span.tokens,
                "logprobs": span.logprobs,
                "policy_version": span.policy_version,
                "finish": span.finish,
                "entropies": span.entropies,
            }
            for span in turn.sampled
        ],
        "context": turn.context,
        "call": turn.call,
        "temperature": turn.temperature,
        "state": turn.state,
        "reward": turn.reward,
        "pictures": turn.pictures,
    }


def _turns(rows: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """Stored turns in the order of time."""
    return tuple(sorted(map(_turn, rows), key=attrgetter("call", "context")))


def _turn(row: Mapping[str, Any]) -> Turn:
    reply = _message(json.loads(row["reply"]))
    assert isinstance(reply, Message)
    return Turn(
        read=tuple(_message(item) for item in json.loads(row["read"])),
        given=Given(tuple(row["given"])),
        reply=reply,
        sampled=tuple(
            Sampled(
                tuple(span["tokens"]),
                tuple(span["logprobs"]),
                span["policy_version"],
                span["finish"],
                tuple(span["entropies"]),
            )
            for span in row["sampled"]
        ),
        context=row["context"],
        call=row["call"],
        temperature=row["temperature"],
        state=row["state"],
        reward=row["reward"],
        pictures=tuple(row["pictures"]),
    )


def _problem(name: str, row: Mapping[str, Any]) -> Problem:
    return Problem(name, row["prompt"], json.loads(row["facts"]), row["task"])


def _message(item: Mapping[str, Any]) -> Message | Observation:
    if "tool" in item:
        return Observation(**item)
    calls = tuple(ToolCall(**c) if "name" in c else BadCall(**c) for c in item["calls"])
    return Message(item["role"], item["content"], calls, cut=item.get("cut", False))
