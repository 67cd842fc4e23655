"""Convert names and texts to a form that MLflow, Prefect and DVC accept.

Two different names never get the same form. Common names are not changed.
"""

import re

from agentfly_core.system.formats import hashing

LONGEST_KEY = 250
"""The largest number of characters in the key of a metric, a parameter or a tag (see
mlflow/utils/validation.py).
"""
LONGEST_PART = 60
LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000
REFUSED = re.compile(r"[^\w\-. :]|^\.(?=\.|$)|^ | $|^_(?=x$)|_(?=x[0-9a-f]{2}|xlong-)")
UNSTORABLE = re.compile("[\ud800-\udfff\0]" + r"|\\(?=u(?:0000|005c|d[89a-f][0-9a-f]{2}))")


def mlflow_key(name: str) -> str:
    """Return the key of a metric, a parameter or a tag: `mlflow_key("pass@1")` is "pass_x401".

    Letters, digits, space, `_`, `-`, `.`, `:` and `/` are kept. Each byte of any other character
    becomes `_x` and two hex digits. The `/` divides a name into parts. An empty part becomes `_x`.
    If the key has more than 250 characters, each part is shortened to at most 60 characters. If the
    key is still too long, the key is shortened to 250 characters. A shortened text ends with
    `_xlong-` and a digest.
    """
    parts = [REFUSED.sub(_bytes, part) or "_x" for part in name.split("/")]
    key = "/".join(parts)
    if len(key) > LONGEST_KEY:
        key = "/".join(_cut(part, LONGEST_PART, "_xlong-") for part in parts)
    return _cut(key, LONGEST_KEY, "_xlong-")


def one_part(text: str) -> str:
    """Escape each `/` in a text, because `/` separates the parts of a name: `one_part("a/b")` is
    "a%2fb".
    """
    return re.sub("/|%(?=2f|25)", lambda match: f"%{ord(match[0]):02x}", text)


def mlflow_model(name: str) -> str:
    """Convert a name to the name of a registered model, which cannot contain `/` or `:`."""
    return mlflow_key(re.sub("[/:]|%(?=2f|3a|25)", lambda match: f"%{ord(match[0]):02x}", name))


def mlflow_text(value: str, longest: int) -> str:
    """Convert a text to the value of a parameter or a tag in MLflow.

    If the text has more than `longest` characters, it is cut, and a digest is put at its end.
    """
    return _cut(storable(value), longest, " ... long-")


def storable(text: str) -> str:
    r"""Escape the characters that databases refuse. For example, a lone surrogate becomes the text
    `\ud83d`, and NUL becomes `\u0000`.
    """
    return UNSTORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def prefect_key(name: str) -> str:
    """Convert a name to the key of a Prefect artifact.

    A key consists of lowercase letters, digits and dashes. Valid names such as "night-shop" are not
    changed. In any other name, wrong characters are replaced, and a digest is appended: "my_shop"
    becomes "my-shop-c0ee1f71".
    """
    if re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name) and not re.search("-[0-9a-f]{8}$", name):
        return name
    slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_PART]
    return f"{slug}-{hashing.short(storable(name))[:8]}".lstrip("-")


def dvc_accepts(name: str) -> bool:
    """Whether DVC can use the name of an experiment in commands and paths."""
    return re.fullmatch(r"\w[\w.\-]*", name) is not None


def _bytes(match: re.Match[str]) -> str:
    return "".join(f"_x{byte:02x}" for byte in match[0].encode(errors="surrogatepass"))


def _cut(text: str, longest: int, mark: str) -> str:
    if len(text) <= longest:
        return text
    end = f"{mark}{hashing.short(text)}"
    return text[: longest - len(end)] + end
