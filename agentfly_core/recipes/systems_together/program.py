"""A search agent as a program with OpenAI's client and a file of pages. The model itself decides
when to search, because the program lacks a gate (a classifier that makes this decision). Pass the
address of a server that accepts any model name:

OPENAI_BASE_URL=... OPENAI_API_KEY=... python program.py pages.jsonl <<< '{"prompt": "Fill in: ...",
"source": "0017"}'
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openai

PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}}
FUNCTION = {"name": "search", "description": "Search the pages.", "parameters": PARAMETERS}
_WORD = re.compile(r"\w+")
TOOLS: Any = [{"type": "function", "function": FUNCTION}]


def search(pages: Sequence[Mapping[str, str]], query: str, hidden: str) -> str:
    """Return the first page that contains a word of the query, as text.

    Pages with a word of the query in the title come before pages with such a word only in the text.
    The page with the id `hidden` is skipped. The text ends with the number of other matching pages,
    if there are any. Without a match, the text is "Nothing was found." The text has the same format
    as the results of the tool `Search`.
    """
    words = {*_WORD.findall(query)}
    others = [page for page in pages if page["id"] != hidden]
    titled = [page for page in others if words & {*_WORD.findall(page["title"])}]
    shown = titled + [page for page in others if words & {*_WORD.findall(page["text"])}]
    if not shown:
        return "Nothing was found."
    more = f"\n[... {len(shown) - 1} more ...]" if shown[1:] else ""
    return "[{id}] {title}: {text}".format(**shown[0]) + more


def fill(
    client: openai.OpenAI, pages: Sequence[Mapping[str, str]], problem: Mapping[str, str]
) -> str:
    """Let the model replace the mask in a prompt: "Fill in: In city 17, code [mask]. ...".

    The model's calls of `search` are executed on `pages`, without the page `problem["source"]`.
    Returns the content of the first reply without a tool call.
    """
    messages: list[Any] = [{"role": "user", "content": problem["prompt"]}]
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
            content = search(pages, query, problem["source"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


if __name__ == "__main__":
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    print(fill(openai.OpenAI(), rows, json.loads(sys.stdin.readline())))
