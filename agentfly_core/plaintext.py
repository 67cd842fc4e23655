"""Text from outside, made fit for a tokenizer and for a file."""

from __future__ import annotations

from agentfly_core.redaction import redact


def clip(text: str | bytes, max_bytes: int) -> str:
    """The text, at most about `max_bytes` of UTF-8; what is not UTF-8, lone surrogates too, and secrets are replaced.

    What is longer keeps its head and its tail around `[... N bytes omitted ...]`.
    """
    known = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
    data = redact(known).encode("utf-8", errors="replace")
    if len(data) <= max_bytes:
        return data.decode("utf-8", errors="replace")
    head, tail = data[: (max_bytes + 1) // 2], data[len(data) - max_bytes // 2 :]
    omitted = f"\n[... {len(data) - max_bytes} bytes omitted ...]\n"
    return head.decode("utf-8", errors="replace") + omitted + tail.decode("utf-8", errors="replace")


def fault(error: BaseException, max_bytes: int = 2000) -> str:
    """What went wrong, in one line or a few: `fault(KeyError("answer"))` is "KeyError: 'answer'"."""
    return clip(f"{type(error).__name__}: {error}", max_bytes)
