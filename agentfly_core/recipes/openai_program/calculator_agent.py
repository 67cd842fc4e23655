"""An agent that calculates sums with a calculator. Start the agent with the URL of
a server that accepts any model name:

OPENAI_BASE_URL=... OPENAI_API_KEY=... python calculator_agent.py <<< '{"prompt": "What is 41+58?"}'
"""

import json
import operator
import re
import sys
from functools import cache
from typing import Any

import openai

from agentfly_core import Problem

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
EXPRESSION = re.compile(r"(-?\d{1,9})([-+*])(-?\d{1,9})")
ARGUMENTS = "numbers with + - * / // % ** and parentheses, for example (41+58)*2"


def function(name: str, description: str, argument: str, meaning: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
        "additionalProperties": False,
    }
    fields = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": fields}


TOOLS: Any = [
    function("calculator", "Work out an arithmetic expression.", "expression", ARGUMENTS),
    function(
        "answer",
        "Give the final answer; nothing can be done afterwards.",
        "answer",
        "the answer, and nothing else",
    ),
]


def calculate(expression: str) -> str:
    match = EXPRESSION.fullmatch(expression)
    if match is None:
        return f"{expression!r} is not a sum, difference or product of two integers."
    return str(OPERATIONS[match[2]](int(match[1]), int(match[3])))


def work_out(client: openai.OpenAI, question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
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
            arguments = json.loads(call.function.arguments)
            if call.function.name == "answer":
                return str(arguments.get("answer", ""))
            result = calculate(str(arguments.get("expression", "")))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


@cache
def shared_client() -> openai.OpenAI:
    return openai.OpenAI(base_url="http://127.0.0.1", api_key="none")


def solve(problem: Problem, base_url: str) -> str:
    """Run the agent on a problem, and return the agent's answer.

    The policy is served at `base_url`.
    """
    return work_out(shared_client().with_options(base_url=base_url), problem.prompt)


if __name__ == "__main__":
    print(work_out(openai.OpenAI(), json.loads(sys.stdin.readline())["prompt"]))
