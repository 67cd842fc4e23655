"""Names and texts in the form that MLflow, Prefect and DVC accept.

Common names stay as they are. Others end in a digest that keeps them apart.
"""

from __future__ import annotations

import re

from agentfly_core.system.formats import hashing

LONGEST_KEY = 250
"""Characters of the key of a metric, a parameter or a tag (mlflow/utils/validation.py)."""
LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000
PART = r"[\w-]([\w\-.: ]*[\w\-.:])?"
UNSTORABLE = re.compile("[\ud800-\udfff\0]" + r"|\\(?=u(?:0000|005c|d[89a-f][0-9a-f]{2}))")


def mlflow_key(name: str) -> str:
    """The key of a metric, a parameter or a tag: "pass_at_4"; "pass@1" is "pass-1-221d3b2c"."""
    return _fitting(name, f"{PART}(/{PART})*", r"[^\w/]+", LONGEST_KEY)


def mlflow_model(name: str) -> str:
    """The name of a registered model, which may contain neither `/` nor `:`."""
    return _fitting(name, r"[\w-]([\w\-.]*)", r"\W+", LONGEST_KEY)


def mlflow_text(value: str, longest: int) -> str:
    """The value of a parameter or a tag, cut to `longest` characters with a digest at the end."""
    text = storable(value)
    end = f" ... long-{hashing.short(text)}"
    return text if len(text) <= longest else text[: longest - len(end)] + end


def storable(text: str) -> str:
    r"""The text with lone surrogates and NUL as `\ud83d` and `\u0000`: databases refuse them."""
    return UNSTORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def prefect_key(name: str) -> str:
    """The key of a Prefect artifact: "night-shop"; "night-my_shop" is "night-my-shop-5bf23ab3"."""
    return _fitting(name, "[a-z0-9]+(-[a-z0-9]+)*", "[^a-z0-9]+", 70)


def dvc_accepts(name: str) -> bool:
    """Whether DVC can use an experiment's name in its commands and paths."""
    return re.fullmatch(r"\w[\w.\-]*", name) is not None


def _fitting(name: str, accepted: str, others: str, longest: int) -> str:
    """The name if it is accepted; otherwise without `others`, cut, and with a digest."""
    fits = re.fullmatch(accepted, name) and not re.search("(^|-)[0-9a-f]{8}$", name)
    if fits and len(name) <= longest:
        return name
    mark = f"-{hashing.short(storable(name))[:8]}"
    slug = re.sub("/+", "/", re.sub(others, "-", name)).strip("-/")
    return f"{slug[: longest - len(mark)]}{mark}".lstrip("-")
