"""Escape names and texts for MLflow, Prefect and DVC.

Different names stay different. Common names are not changed.
"""

import re

from agentfly_core.system.formats import hashing

LONGEST_KEY = 250
"""The most characters in the key of a metric, a parameter or a tag (mlflow/utils/validation.py)."""
LONGEST_PART = 60
LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000
REFUSED = re.compile(r"[^\w\-. :]|^\.(?=\.|$)|^ | $|^_(?=x$)|_(?=x[0-9a-f]{2}|xlong-)")
UNSTORABLE = re.compile("[\ud800-\udfff\0]" + r"|\\(?=u(?:0000|005c|d[89a-f][0-9a-f]{2}))")


def mlflow_key(name: str) -> str:
    """Return the key of a metric, a parameter or a tag: `mlflow_key("pass@1")` is "pass_x401".

    Letters, digits, space, `_`, `-`, `.`, `:` and the `/` between parts are kept. Other bytes
    become `_x` and two hex digits, and an empty part becomes `_x`. In a key of more than 250
    characters, long parts are cut; if it is still too long, the whole key is cut. A cut text ends
    in `_xlong-` and a digest.
    """
    parts = [REFUSED.sub(_bytes, part) or "_x" for part in name.split("/")]
    key = "/".join(parts)
    if len(key) > LONGEST_KEY:
        key = "/".join(_cut(part, LONGEST_PART, "_xlong-") for part in parts)
    return _cut(key, LONGEST_KEY, "_xlong-")


def one_part(text: str) -> str:
    """Escape `/` to make a text a single part of a name: `one_part("a/b")` is "a%2fb"."""
    return re.sub("/|%(?=2f|25)", lambda match: f"%{ord(match[0]):02x}", text)


def mlflow_model(name: str) -> str:
    """Return the name of a registered model, which may contain neither `/` nor `:`."""
    return mlflow_key(re.sub("[/:]|%(?=2f|3a|25)", lambda match: f"%{ord(match[0]):02x}", name))


def mlflow_text(value: str, longest: int) -> str:
    """Return the value of a parameter or a tag. A text of more than `longest` characters is cut and
    ends in a digest.
    """
    return _cut(storable(value), longest, " ... long-")


def storable(text: str) -> str:
    r"""Write lone surrogates and NUL as `\ud83d` and `\u0000`, because databases refuse them."""
    return UNSTORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def prefect_key(name: str) -> str:
    """Return the key of a Prefect artifact, which consists of lowercase letters, digits and dashes.

    Valid names such as "night-shop" are kept. Other names are changed and get a digest: "my_shop"
    becomes "my-shop-c0ee1f71".
    """
    if re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name) and not re.search("-[0-9a-f]{8}$", name):
        return name
    slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_PART]
    return f"{slug}-{hashing.short(storable(name))[:8]}".lstrip("-")


def dvc_accepts(name: str) -> bool:
    """Whether DVC can use an experiment's name in its commands and paths."""
    return re.fullmatch(r"\w[\w.\-]*", name) is not None


def _bytes(match: re.Match[str]) -> str:
    return "".join(f"_x{byte:02x}" for byte in match[0].encode(errors="surrogatepass"))


def _cut(text: str, longest: int, mark: str) -> str:
    if len(text) <= longest:
        return text
    end = f"{mark}{hashing.short(text)}"
    return text[: longest - len(end)] + end
