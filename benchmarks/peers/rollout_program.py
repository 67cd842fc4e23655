"""A program that adds numbers with OpenAI's client; `rollout_ours.py` runs it behind the gateway.

The tool loop of `rollout_ours.py` and the harness of `rollout_verifiers.py` do the same work.
"""

import json
import sys
from typing import Any

import openai

NUMBER = {"type": "integer", "description": "a number"}
PARAMETERS = {
    "type": "object",
    "properties": {"first": NUMBER, "second": NUMBER},
    "required": ["first", "second"],
}
ADD = {"name": "add", "description": "Add two numbers.", "parameters": PARAMETERS}
TOOLS: Any = [{"type": "function", "function": ADD}]


def main() -> None:
    """Play the problem on standard input, and print the first reply without a tool call."""
    client = openai.OpenAI()
    messages: list[Any] = [{"role": "user", "content": json.loads(sys.stdin.readline())["prompt"]}]
    while True:
        completion = client.chat.completions.create(model="any", messages=messages, tools=TOOLS)
        reply: Any = completion.choices[0].message
        messages.append(reply)
        if not reply.tool_calls:
            return print(reply.content)
        for call in reply.tool_calls:
            numbers = json.loads(call.function.arguments)
            total = str(numbers["first"] + numbers["second"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": total})


if __name__ == "__main__":
    main()
