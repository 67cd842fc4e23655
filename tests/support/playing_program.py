"""A program that asks the policy twice; once in a run it kills itself amid its episode."""

import json
import os
import signal
import sys
import urllib.request
from contextlib import suppress
from typing import Any


def ask(messages: list[Any]) -> Any:
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps({"messages": messages}).encode())
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


def die_once(path: str) -> None:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)


messages: list[Any] = [{"role": "user", "content": json.loads(sys.stdin.readline())["prompt"]}]
messages += [ask(messages), {"role": "user", "content": "Sure?"}]
if path := os.environ.get("DEATH_OF_A_PROGRAM"):
    die_once(path)
print(ask(messages)["content"])
