"""Clean texts from models, users and libraries, so that they can be tokenized, stored and shown."""

import difflib
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

MOST_INNER = 3
MOST_KNOWN = 20
THINK, THOUGHT_END = "<think>", "</think>"
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks of direction, line separators
    "\ud800-\udfff]"  # lone surrogates, which no terminal accepts
)
"""Characters that control a terminal or cannot be printed."""


def visible(text: str) -> str:
    """Replace each control character in a text by an escape: ESC becomes `\\x1b`, and U+202E
    becomes `\\u202e`.
    """
    return CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def clip(text: str | bytes, max_bytes: int) -> str:
    """Shorten a text to about `max_bytes` bytes of UTF-8.

    The middle of the text is replaced by `[... N bytes omitted ...]`. Secrets in the text are
    replaced as by `redact`. Invalid UTF-8 becomes U+FFFD, and lone surrogates become `?`.
    """
    decoded = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
    data = redact(decoded).encode("utf-8", errors="replace")
    if len(data) <= max_bytes:
        return data.decode("utf-8", errors="replace")
    head, tail = data[: (max_bytes + 1) // 2], data[len(data) - max_bytes // 2 :]
    omitted = f"\n[... {len(data) - max_bytes} bytes omitted ...]\n"
    return head.decode("utf-8", errors="replace") + omitted + tail.decode("utf-8", errors="replace")


def sentence(text: str) -> str:
    """Add a period, unless the text ends in `.`, `!` or `?`: "no answer" becomes "no answer."."""
    bare = text.rstrip(" \n:;,")
    return bare if bare.endswith((".", "!", "?")) else f"{bare}."


def fault(error: BaseException, max_bytes: int = 2000) -> str:
    """Return the type and the message of an error: `fault(KeyError("answer"))` is "KeyError:
    'answer'".

    If the message is empty, the cause of the error is added. For an exception group, the first
    errors of the group are added. This function never raises an error.
    """
    text = words_of(error)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if notes := "; ".join(getattr(error, "__notes__", ())):
        text = f"{text} ({notes})".lstrip()
    if isinstance(error, BaseExceptionGroup):
        text += ": " + "; ".join(map(fault, error.exceptions[:MOST_INNER]))
    if text:
        text = f": {text}"
    else:
        text = f", caused by {fault(cause)}" if cause else ", without a message"
    return clip(f"{type(error).__name__}{text}", max_bytes)


def words_of(error: BaseException) -> str:
    """Return the message of an error without its type. This function never raises an error."""
    return _text_of(str, error)


def shown(value: object) -> str:
    """Return the `repr` of a value, shortened to about 80 bytes. Never raises an error."""
    return clip(_text_of(repr, value), 80)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `counted(1, "episode")` is "1 episode", `counted(8, "reply")`
    is "8 replies".
    """
    plural = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _text_of(say: Callable[[object], str], value: object) -> str:
    try:
        return say(value)
    except Exception as error:  # an author's __str__ or __repr__ may raise any error
        return f"{say.__name__}() failed with {type(error).__name__}"


SECRET = re.compile(r"(KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS|AUTH_STRING)$", re.IGNORECASE)
PASSWORD_IN_URL = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
SHORTEST = 8
logger = logging.getLogger(__name__)


def environment() -> dict[str, str]:
    """Return a copy of the environment variables.

    Unlike `dict(os.environ)`, this never fails if other threads change the variables meanwhile.
    """
    return {name: value for name in [*os.environ] if (value := os.environ.get(name)) is not None}


def redact(text: str) -> str:
    """Replace the secrets in a text: "Bearer hf_Xq81kd93" becomes "Bearer [HF_TOKEN]".

    Secrets are passwords in URLs, and the values of environment variables with names such as
    HF_TOKEN or OPENAI_API_KEY (see SECRET). Values with fewer than 8 characters are not replaced.
    """
    for name, secret in holders(text).items() if len(text) >= SHORTEST else ():
        text = text.replace(secret, f"[{name}]")
    return PASSWORD_IN_URL.sub(r"\1[password]", text) if "://" in text else text


def holders(text: str) -> dict[str, str]:
    """Return the secrets in a text. Each key is the name of the environment variable with this
    secret.
    """
    return {
        name: value
        for name, value in environment().items()
        if len(value) >= SHORTEST and value in text and SECRET.search(name)
    }


_warned: set[str] = set()


def warn_once(logger: logging.Logger, warning: str, details: str = "") -> None:
    """Log a warning with its details. A process logs the same warning only once."""
    if is_first(warning):
        form = "%s: %s" if details else "%s%s"
        logger.warning(form, warning, details, extra={"once": warning})


def is_first(warning: str) -> bool:
    """Whether this is the first call in this process with this warning."""
    first = warning not in _warned
    _warned.add(warning)
    return first


@contextmanager
def logged(failure: str) -> Iterator[None]:
    """Log any error of the `with` block instead of raising it. The log line begins with `failure`.

    Messages to services such as Prefect are sent in such a block, so a failed service does not stop
    a run.
    """
    try:
        yield
    except Exception as error:  # services and their clients raise errors of many types
        logger.warning("%s: %s", failure, fault(error))


@dataclass(frozen=True, slots=True)
class _Redacting:
    """A log record factory that calls the factory `made`, and removes secrets and control
    characters from the new record.
    """

    made: Callable[..., logging.LogRecord]

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self.made(*args, **kwargs)
        # if the arguments do not fit the message, logging reports it later
        with suppress(TypeError, ValueError):
            record.msg, record.args = visible(redact(record.getMessage())), None
        if record.exc_info and record.exc_info[0]:
            trace = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            record.exc_text = visible(redact(trace))
        return record


def guard_logs() -> None:
    """Remove secrets and control characters from all later log records."""
    if not isinstance(made := logging.getLogRecordFactory(), _Redacting):
        logging.setLogRecordFactory(_Redacting(made))


@contextmanager
def keeping_secrets() -> Iterator[None]:
    """Remove secrets from errors that the `with` block raises.

    Secrets are also removed from all log records from now on, even after the `with` block.
    """
    guard_logs()
    try:
        yield
    except Exception as error:  # raised again
        error.args = tuple(redact(arg) if isinstance(arg, str) else arg for arg in error.args)
        if hasattr(error, "__notes__"):
            error.__notes__ = [redact(note) for note in error.__notes__]
        raise


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """Return a hint for a mistyped name.

    The hint is the name in `choices` that is most similar to `word`. Without a similar name, the
    hint lists the first 20 names.
    """
    if hint := nearest(word, choices):
        return hint
    more = f", ... ({len(choices):,} in all)" if len(choices) > MOST_KNOWN else ""
    return f" Known: {', '.join(choices[:MOST_KNOWN])}{more}." if choices else " There are none."


def nearest(word: str, choices: Sequence[str]) -> str:
    """Return a hint with the most similar name: `nearest("mien", ["mine"])` is " Did you mean
    'mine'?".

    The hint is empty if all names in `choices` are very different from `word`.
    """
    near = difflib.get_close_matches(word, choices, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def first_stop(text: str, stop: Sequence[str]) -> tuple[int, int] | None:
    """Return the start and the end of the first stop string in a text, or None:
    `first_stop("3.\\nObservation: 4", ["Observation:"])` is (3, 15).

    The first stop string is the one that ends first. If two stop strings end at the same place, the
    order of `stop` decides, as in vLLM.
    """
    begins = [(text.find(one), len(one)) for one in stop]
    ends = [(begin, begin + length) for begin, length in begins if begin >= 0]
    return min(ends, key=itemgetter(1), default=None)


def before_stop(text: str, stop: Sequence[str]) -> str:
    """Remove the first stop string, and everything after it, from a text."""
    hit = first_stop(text, stop)
    return text[: hit[0]] if hit else text


def without_thoughts(text: str) -> str:
    """Remove reasoning (`<think>...</think>`) from a text.

    If the text begins with an opening tag that is never closed, the result is empty. An opening tag
    in the middle that is never closed is kept as text.
    """
    kept, end = list[str](), 0
    while (begin := text.find(THINK, end)) >= 0:
        closed = text.find(THOUGHT_END, begin)
        if closed < 0:
            rest = text[end:] if text[:begin].strip() else ""
            return "".join([*kept, rest])
        kept.append(text[end:begin])
        end = closed + len(THOUGHT_END)
    return "".join([*kept, text[end:]])
