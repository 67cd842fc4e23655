"""Random chats of clients with various echoes of replies, and their expected prompts.

Messages are compared by their origin, never by their text, and prompts are written here.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Wire = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """A message of a chat. `origin` is equal for the echoes of one message; `edit` is the cause
    under which its change by the client counts.
    """

    origin: int
    role: str
    content: str
    calls: tuple[Wire, ...] = ()
    reasoning: str = ""
    call_id: str = ""
    edit: str = ""
    is_example: bool = False


@dataclass(frozen=True)
class Expected:
    """A prompt and the reply to it. `cause` is that of a changed history, `is_whole` whether no
    earlier reply begins the prompt with its tokens.
    """

    prompt: str
    reply: str
    cause: str
    is_whole: bool


@dataclass
class Chats:
    """The chats of one client, the tokens of its `known` conversations, and the expected record."""

    draw: random.Random
    known: dict[tuple[object, ...], str] = field(default_factory=dict)
    expected: list[Expected] = field(default_factory=list)
    origins: int = 0

    def read(self, role: str, content: str, **fields: Any) -> Item:
        """A new message."""
        self.origins += 1
        return Item(self.origins, role, content, **fields)

    def asked(self, chat: Sequence[Item], tools: int) -> Expected:
        """The expected prompt of a request with this chat, without its reply."""
        key = (tools, *(item.origin for item in chat))
        sizes = [size for size in range(len(key), 0, -1) if key[:size] in self.known]
        shared = sizes[0] - 1 if sizes else 0
        before, rest = self.known.get(key[: shared + 1], "") if shared else "", chat[shared:]
        if before:
            before += "" if before.endswith("$") else "$"
        own = [one for one in rest if one.role == "assistant" and not one.is_example]
        causes = [one.edit for one in own if one.edit] + ["earlier"] * bool(own)
        prompt = before + "".join(map(written, rest)) + "^a"
        return Expected(prompt, "", causes[0] if causes else "", not before)

    def replied(self, chat: Sequence[Item], tools: int, asked: Expected, choice: Wire) -> Item:
        """The message of a reply, which is recorded as expected."""
        reply, message = _sampled(choice), choice["message"]
        self.expected.append(replace(asked, reply=reply))
        item = self.read(
            "assistant",
            message["content"] or "",
            calls=tuple(message.get("tool_calls", ())),
            reasoning=message.get("reasoning_content", ""),
        )
        self.known[(tools, *(one.origin for one in chat), item.origin)] = asked.prompt + reply
        return item

    def edited(self, chat: list[Item]) -> list[Item]:
        """The chat with one changed message before its last reply."""
        places = [n for n, one in enumerate(chat) if not one.is_example]
        last = max(n for n in places if chat[n].role == "assistant")
        place = self.draw.choice([n for n in places if n <= last])
        if chat[place].role == "assistant":
            new = self._edited_reply(chat[place])
        else:
            new = replace(chat[place], content=f"{chat[place].content} changed{self.origins}")
        self.origins += 1
        return [*chat[:place], replace(new, origin=self.origins), *chat[place + 1 :]]

    def _edited_reply(self, item: Item) -> Item:
        if self.draw.random() < 0.5:
            text = f"edited {self.origins} {item.content[:4]}"
            return replace(item, content=text, edit="text")
        function = {"name": "other", "arguments": json.dumps({"value": self.origins})}
        call = {"id": f"own_{self.origins}", "type": "function", "function": function}
        return replace(item, calls=(*item.calls, call), edit=item.edit or "calls")


def _sampled(choice: Wire) -> str:
    tokens = [int(place["token"].partition(":")[2]) for place in choice["logprobs"]["content"]]
    return "".join(map(chr, tokens))


def written(item: Item) -> str:
    """A message as the template writes it."""
    return f"^{item.role[0]}{item.content}$"


def sent(item: Item, draw: random.Random) -> tuple[Wire, Item]:
    """A message in a random form for the request, and the message with the sent text."""
    text = item.content
    if item.role == "assistant" and not item.is_example:
        text = draw.choice((text, text.strip(), f"{text}\n", f" {text}"))
    message: Wire = {"role": item.role, "content": _content(text, draw)}
    if item.role == "tool":
        message["tool_call_id"] = item.call_id
    if item.calls:
        message["tool_calls"] = [_redumped(call, draw) for call in item.calls]
        if not text.strip() and draw.random() < 0.5:
            message["content"], text = draw.choice((None, "")), ""
    if item.reasoning and draw.random() < 0.5:
        message[draw.choice(("reasoning_content", "reasoning"))] = item.reasoning
    if item.role == "assistant" and draw.random() < 0.3:
        message |= {"refusal": None, "annotations": [], "audio": None}
    return message, replace(item, content=text)


def _content(text: str, draw: random.Random) -> Any:
    """A text, or two text parts that were its lines."""
    if draw.random() < 0.6:
        return text
    cut = draw.choice([n for n, sign in enumerate(text) if sign == "\n"] or [-1])
    parts = [text] if cut < 0 else [text[:cut], text[cut + 1 :]]
    return [{"type": "text", "text": part} for part in parts]


def _redumped(call: Wire, draw: random.Random) -> Wire:
    """A call with arguments in another JSON form, where 1.0 may be 1 as in JavaScript."""
    arguments = json.loads(call["function"]["arguments"])
    if draw.random() < 0.5:
        arguments = json.loads(json.dumps(arguments), parse_float=_as_javascript)
    form: Callable[..., str] = json.dumps
    text = form(
        arguments,
        sort_keys=draw.random() < 0.5,
        ensure_ascii=draw.random() < 0.5,
        indent=draw.choice((None, 2)),
    )
    return {**call, "function": {**call["function"], "arguments": text}}


def _as_javascript(number: str) -> float | int:
    value = float(number)
    return int(value) if value.is_integer() else value


def random_replies(draw: random.Random) -> Iterator[str]:
    """Replies with a number of their own: text, reasoning, calls, white space around them."""
    for number in range(1000):
        call = f"<calc{number} value:1.0 name:%22%C3%A4%2F%22 deep:%7B%22b%22%3A%5B1%2C2.5%5D%7D>"
        thought = draw.choice(("", "{I think\nso}", "{hm"))
        text = f" {number} says\nit \0\u2028\U0001f642\t"
        ends = (thought, call, call + thought, "\n", "", f"{call}<{number} cut")
        start = draw.choice((text, text, call, f"\n{number}"))
        yield start + draw.choice(ends)
