"""An episode as release 1 of the record stored it."""

import pyarrow as pa

SPAN = pa.struct(
    [
        ("tokens", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("policy_version", pa.int32()),
        ("finish", pa.string()),
    ]
)
TURN = pa.struct(
    [
        ("read", pa.string()),
        ("given", pa.list_(pa.int32())),
        ("reply", pa.string()),
        ("sampled", pa.list_(SPAN)),
        ("fresh_context", pa.bool_()),
        ("state", pa.string()),
    ]
)
TEXTS = ("id", "episode", "problem", "prompt", "facts", "group", "agent", "role", "closing")
SCHEMA_1 = pa.schema(
    [
        *((name, pa.string()) for name in (*TEXTS, "ending", "error", "observed")),
        ("chain", pa.int32()),
        ("turns", pa.list_(TURN)),
        ("seed", pa.int64()),
        ("branch_parent", pa.string()),
        ("branch_turns", pa.int32()),
    ],
    metadata={"agentfly.schema": "1"},
)


def _turn(given: list[int], token: int, fresh: bool) -> dict[str, object]:
    return {
        "read": '[{"calls":[],"content":"What is 41+58?","role":"user"}]',
        "given": given,
        "reply": '{"calls":[],"content":"99","role":"assistant"}',
        "sampled": [{"tokens": [token], "logprobs": [-0.5], "policy_version": 6, "finish": "stop"}],
        "fresh_context": fresh,
        "state": "",
    }


OLD = {
    "id": "t0",
    "episode": "e0",
    "problem": "add-41-58",
    "prompt": "What is 41+58?",
    "facts": '{"answer":"99"}',
    "group": "g0",
    "chain": 0,
    "agent": "tool_loop",
    "role": "train",
    "turns": [_turn([1, 2], 3, False), _turn([1, 8], 6, True), _turn([5], 7, False)],
    "closing": "[]",
    "ending": "no_tool_calls",
    "error": None,
    "observed": '{"stock":{"value":0.5,"parts":{},"per_turn":[]}}',
    "seed": 7,
    "branch_parent": None,
    "branch_turns": None,
}
"""Three replies, the second of which began a fresh context."""
