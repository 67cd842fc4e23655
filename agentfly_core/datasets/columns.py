"""Read the prompt, the completion and the tools in the columns of a row."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, Field, TypeAdapter, ValidationError

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.datasets.chats import WRITTEN, RecordedChat, Speaks, chat_of, text_chat
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import shown

CHATS = ("messages", "conversations")
PROMPTS = ("prompt", "question", "instruction", "problem", *CHATS)
COMPLETIONS = ("completion", "response", "output")
TOOLS = "tools"
DataRow = Mapping[str, Any]


def renamed(row: Any, columns: Mapping[str, str]) -> DataRow:
    """Return a row with its columns renamed. `columns` maps old names to new names.

    Raises ValueError if the row is not a mapping, or if two columns would get the same name.
    Also raises ValueError if `row` is a ValueError object, which readers yield for unreadable rows.
    """
    if isinstance(row, ValueError):
        raise ValueError(f"it cannot be read: {row}")
    if not isinstance(row, Mapping):
        raise ValueError(f"got the type {type(row).__name__}, expected an object")
    names = [columns.get(key, key) for key in row]
    if twice := [name for name in names if names.count(name) > 1]:
        same = [repr(key) for key, name in zip(row, names, strict=True) if name == twice[0]]
        raise ValueError(
            f"the fields {' and '.join(same)} would all be named {twice[0]!r}; change the new "
            "names in `columns`"
        )
    return dict(zip(names, row.values(), strict=True))


def prompt_of(row: DataRow) -> tuple[str, RecordedChat]:
    """Return the name of the field that contains a row's prompt, and the chat in this field.

    PROMPTS lists the possible fields, such as `question`. The first of these fields in the row is
    used. Raises ValueError if the row has none of these fields. Also raises ValueError if another
    field in CHATS, such as `messages`, has a chat with a different last user message.
    """
    if not (fields := _given(row, PROMPTS)):
        raise ValueError(f"the row has none of the fields {', '.join(PROMPTS)}")
    field, prompt = fields[0], _chat(row, fields[0], "user")
    for other in fields[1:]:
        if other in CHATS and _chat(row, other, "user").question != prompt.question:
            raise ValueError(
                f"the fields {field!r} and {other!r} end with different questions, so the prompt "
                "is ambiguous; rename the field that is not the prompt, for example with `columns: "
                f"{{{other}: unused_{other}}}`"
            )
    return field, prompt


def demonstration_of(row: DataRow) -> RecordedChat:
    """Return the chat in a row that a warm start (supervised fine-tuning) imitates.

    The whole chat is in one of the fields in CHATS, such as `messages`. Alternatively, the row has
    a prompt, and a completion in one of the fields in COMPLETIONS, such as `response`. Raises
    ValueError unless the row has exactly one of the fields in CHATS and COMPLETIONS. Also raises
    ValueError if the chat lacks an assistant message to train on.
    """
    choices = (*CHATS, *COMPLETIONS)
    if not (fields := _given(row, choices)):
        raise ValueError(f"the row has none of the fields {', '.join(choices)}")
    if len(fields) > 1:
        raise ValueError(
            f"the fields {' and '.join(map(repr, fields))} could each be the chat to train on; "
            "rename all but one, for example with `columns: "
            f"{{{fields[-1]}: unused_{fields[-1]}}}`"
        )
    (field,) = fields
    chat = _chat(row, field, "assistant")
    if field in COMPLETIONS:
        chat = prompt_of(row)[1].followed_by(chat)
    if not any(chat.trained):
        raise ValueError(f"the field {field!r} lacks an assistant message to train on")
    return chat


class _Tool(BaseModel):
    """A tool in OpenAI's format. The outer object with the key `function` may be missing."""

    name: str = Field(validation_alias=AliasChoices(AliasPath("function", "name"), "name"))
    # in parquet, a missing field of a struct is null
    description: str | None = Field(
        "", validation_alias=AliasChoices(AliasPath("function", "description"), "description")
    )
    parameters: dict[str, Any] | None = Field(
        None,
        validation_alias=AliasChoices(AliasPath("function", "parameters"), "parameters"),
    )


_TOOLS = TypeAdapter(list[str | _Tool])


def tools_of(row: DataRow) -> tuple[ToolSchema, ...] | None:
    """Return the tools that a row lists.

    Returns None if the row lacks a list of tools. All tools of the experiment are then used.

    A row may list tools by their names or by their schemas. A tool that is listed by its name gets
    an empty schema. Raises ValueError if the list has another form or repeats a tool.
    """
    if (listed := row.get(TOOLS)) is None:
        return None
    try:
        tools = _TOOLS.validate_python(
            strict_json.parse(listed) if isinstance(listed, str) else listed
        )
    except (ValueError, ValidationError):
        raise ValueError(
            f"the field {TOOLS!r} is {shown(listed)}, expected a list of tool names, or of "
            "functions in OpenAI's format. If the field does not list tools, rename it: `columns: "
            f"{{{TOOLS}: listed}}`"
        ) from None
    names = [one if isinstance(one, str) else one.name for one in tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"the field {TOOLS!r} lists {twice[0]!r} twice; list each tool once")
    return tuple(
        ToolSchema(one, "", {})
        if isinstance(one, str)
        else ToolSchema(one.name, one.description or "", one.parameters or {})
        for one in tools
    )


def _given(row: DataRow, fields: Sequence[str]) -> list[str]:
    return [name for name in fields if row.get(name) is not None]


def _chat(row: DataRow, field: str, role: Speaks) -> RecordedChat:
    """Read the chat in a field. The field contains a list of messages, or a text.

    A text becomes a message with the role `role`. Raises ValueError if the field is invalid.
    """
    value = row[field]
    if isinstance(value, list) or (isinstance(value, str) and WRITTEN.match(value)):
        try:
            chat = chat_of(value)
            return chat.checked() if field in PROMPTS else chat
        except ValueError as error:
            raise ValueError(f"the field {field!r}: {error}") from None
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the field {field!r} is {shown(value)}, expected text or messages")
    if field != "instruction" or (more := row.get("input")) is None:
        return text_chat(role, value)
    if not isinstance(more, str):
        raise ValueError(
            f"the field 'input' is {shown(more)}, expected text to append to the instruction"
        )
    return text_chat(role, "\n\n".join(filter(None, (value, more.strip()))))
