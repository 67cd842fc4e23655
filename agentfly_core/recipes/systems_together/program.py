"""The agent without its gate, as a program that knows only OpenAI's client and a folder of pages:

OPENAI_API_KEY=... python program.py <<< '{"prompt": "Fill in: ...", "source": "0017"}'
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import openai

from agentfly_core import Problem
from agentfly_core.tools import search as pages_search

PAGES = Path("data/firms/pages.jsonl")
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the pages.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    }
]


def fill(client: openai.OpenAI, problem: Problem) -> str:
    """Search as often as the model asks for it; return its last reply."""
    # a decorator's result has another type than the class
    tool: Any = pages_search.Search
    version = hashlib.sha256(PAGES.read_bytes()).hexdigest()
    search = tool.with_settings(corpus=str(PAGES), sha256=version, results=1, hides="source")
    messages: list[Any] = [{"role": "user", "content": problem.prompt}]
    while True:
        completion = client.chat.completions.create(
            model="any-model", messages=messages, tools=TOOLS
        )
        reply = completion.choices[0].message
        if not reply.tool_calls:
            return reply.content or ""
        messages.append(reply)
        for call in reply.tool_calls:
            assert call.type == "function"
            query = str(json.loads(call.function.arguments).get("query", ""))
            result = search.function(query, problem=problem)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})


if __name__ == "__main__":
    line = json.loads(sys.stdin.readline())
    print(fill(openai.OpenAI(), Problem(line["id"], line["prompt"], line)))
