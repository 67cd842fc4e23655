"""Spoilt configurations: each is valid, or refused by a sentence that names a key."""

import copy
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment import checks
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.system.formats.json_value import flat
from tests.support.project import ROOT
from tests.support.random_values import Values

SEED = 15
FILES = [*sorted((ROOT / "conf").glob("*.yaml")), ROOT / "tests/conf/tiny.yaml"]
SITES = sorted((ROOT / "conf/site").glob("*.yaml"))
Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MARKUP = (
    b": ",
    b"\t",
    b"- ",
    b"&a [*a]",
    b"&a {b: *a}",
    b"!!python/name:os",
    b"<<: ",
    b"? ",
    b"---\n",
    b"%YAML",
)
NUMBERS = (
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    10**30,
    -(10**400),
    0.5,
    -0.0,
    1e-300,
    1e308,
    float("nan"),
    float("inf"),
)
WORDS = (
    "",
    " ",
    "yes",
    "null",
    "1e5",
    "1e999",
    "\0",
    "é",
    "💥",
    "\u202e",
    "x" * 5000,
    "/",
    "../..",
    "a\nb",
)
PATHS = (
    "math:sqrt",
    "math:pi",
    "json:dumps",
    "builtins:dict",
    "builtins:len",
    "collections:OrderedDict",
    "no_such:x",
)
PATHS += (
    "agentfly_core.tools.calculator:calculator",
    "agentfly_core.rewards.exact:exact",
    ":",
    "a:",
    ":b",
    "a:b:c",
)
PATHS += (
    "agentfly_core.datasets.files:files",
    "agentfly_core.algorithms.ppo:PPO",
    "typing:Any",
    "grpo",
    "dapo",
    "ppo",
)
PATHS += (
    "run:demo",
    "run:demo@3",
    "run:demo@",
    "run:@1",
    "nano:calculator",
    "nano:none",
    "package:",
    "text:",
    "ftp:x",
)


@dataclass(frozen=True)
class Spoilt:
    """A changed configuration and its changed keys."""

    settings: Any
    keys: tuple[str, ...]


def key(draw: random.Random) -> Any:
    """The key of a mapping, mostly text."""
    names_of_settings = (*Settings.model_fields, *Site.model_fields, "use", "limit", "kl", "name")
    return draw.choice(
        (
            draw.choice(names_of_settings),
            draw.choice(names_of_settings),
            draw.choice(PATHS),
            draw.choice(WORDS),
            1,
            None,
            True,
        )
    )


value = Values([NUMBERS, WORDS, PATHS], key)  # every value of YAML


def near(draw: random.Random, old: Any) -> Any:
    """Another value of the same kind, as a person may try it."""
    if isinstance(old, bool) or old is None:
        return draw.choice((True, False, None))
    if isinstance(old, int | float) and abs(old) < 1e9:
        return draw.choice((old + 1, old * 2, old // 2, old * 1.0, str(old), old / 3))
    return draw.choice((old, str(old), [old], value(draw)))


def deep(draw: random.Random) -> Any:
    """Something nested fifty levels deep."""
    nested = value(draw, 3)
    for _ in range(50):
        nested = [nested] if draw.random() < 0.5 else {"use": nested}
    return nested


def scrambled(draw: random.Random, text: bytes) -> bytes:
    """A file with some bytes changed, left out, repeated or put in, or cut."""
    changed = bytearray(text)
    for _ in range(draw.choice((1, 1, 2, 5))):
        start = draw.randrange(len(changed))
        end = min(len(changed), start + draw.choice((1, 1, 4, 30)))
        other = (b"", bytes(changed[start:end]) * 2, bytes([draw.randrange(256)]), *MARKUP)
        changed[start:end] = draw.choice(other)
    return bytes(changed[: draw.randrange(len(changed))]) if draw.random() < 0.1 else bytes(changed)


def places(tree: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values of a tree."""
    children = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for name, child in children:
        yield (*before, name)
        yield from places(child, (*before, name))


def spoil(draw: random.Random, settings: Any) -> Spoilt:
    """One to three values replaced, removed, given another key, or joined by an unknown key."""
    touched: list[str] = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if not (paths := list(places(settings))):
            break
        *path, last = draw.choice(paths)
        parent = settings
        for step in path:
            parent = parent[step]
        touched += [str(step) for step in (*path, last)]
        how = draw.random()
        if how < 0.4:
            parent[last] = near(draw, parent[last])
        elif how < 0.7 or isinstance(parent, list):
            parent[last] = deep(draw) if how < 0.42 else value(draw)
        elif how < 0.8:
            del parent[last]
        elif how < 0.9:
            parent[new := key(draw)] = parent.pop(last)
            touched.append(new if isinstance(new, str) else f"got {new!r}")
        else:
            parent[new := key(draw)] = value(draw)
            touched.append(new if isinstance(new, str) else f"got {new!r}")
    return Spoilt(settings, tuple(touched))


def override(draw: random.Random) -> str:
    """A word of the command line that may be an override."""
    name = ".".join(str(key(draw)) for _ in range(draw.choice((1, 1, 2, 2, 3))))
    written = yaml.safe_dump(value(draw), default_flow_style=True).strip()
    text = draw.choice(
        (written, written, draw.choice(WORDS), "[", "{a: ", "'", "&a [*a]", "&a {b: *a}")
    )
    return draw.choice(
        (f"{name}={text}", f"{name}={text}", f"{name}={text}", name, f"={text}", f"{name}=={text}")
    )


def names(keys: Iterable[str]) -> list[str]:
    """The keys that are long enough to be found in a sentence."""
    return [key for key in keys if len(key) > 2]


def read(path: Path, overrides: list[str]) -> None:
    """Read, check and serialize a configuration, as before any work."""
    loaded = loading.read(str(path), overrides)
    checks.check(loaded.settings)
    again = Settings.model_validate(loaded.settings.model_dump(mode="json"))
    assert again.digest == loaded.settings.digest
    assert set(loaded.origin) == set(flat(loaded.settings.model_dump(mode="json")))
    StageKeys(loaded.settings).prepare()
    checks.check_place(loaded.settings, Site())


def refusal(work: Callable[[], object], of: object) -> str:
    """The sentence with which something is refused, empty where it is valid; any other error fails
    the test.
    """
    try:
        work()
    except ValueError as error:
        assert type(error) is ValueError, f"{type(error).__name__} of {of}: {error}"
        assert str(error).strip()
        return str(error)
    return ""


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """The same numbers each time; the working directory is the project."""
    monkeypatch.chdir(ROOT)
    return random.Random(SEED)


@pytest.mark.parametrize("cases", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_changed_values_are_valid_or_refused_by_key(
    draw: random.Random, tmp_path: Path, cases: int
) -> None:
    path, refused = tmp_path / "spoilt.yaml", 0
    written = [yaml.safe_load(file.read_text()) for file in FILES]
    for _ in range(cases):
        spoilt = spoil(draw, copy.deepcopy(draw.choice(written)))
        path.write_text(yaml.dump(spoilt.settings, Dumper=Dumper))
        message = refusal(lambda: read(path, []), spoilt)
        refused += bool(message)
        expected = [*names(spoilt.keys), "Keys should be strings (got "]
        unread = any(words in message for words in ("levels deep", "is invalid YAML"))
        expected += [str(path)] if unread else []
        assert not message or any(name in message for name in expected), f"{spoilt.keys}: {message}"
    assert 0.3 * cases < refused < 0.95 * cases


@pytest.mark.parametrize("cases", [100, pytest.param(400, marks=pytest.mark.long)])
def test_changed_files_are_valid_or_refused_by_name(
    draw: random.Random, tmp_path: Path, cases: int
) -> None:
    path = tmp_path / "spoilt.yaml"
    written = [file.read_bytes() for file in FILES]
    for _ in range(cases):
        path.write_bytes(scrambled(draw, draw.choice(written)))
        message = refusal(lambda: read(path, []), path.read_bytes())
        assert not message or any(
            name in message for name in (str(path), *Settings.model_fields)
        ), message


@pytest.mark.parametrize("cases", [100, pytest.param(400, marks=pytest.mark.long)])
def test_overrides_are_applied_or_refused_by_name(draw: random.Random, cases: int) -> None:
    for _ in range(cases):
        words = [override(draw) for _ in range(draw.choice((1, 1, 2)))]
        message = refusal(partial(read, ROOT / "conf/quickstart.yaml", words), words)
        keys = [word.partition("=")[0] for word in words]
        parts = [
            part for key in keys for part in (key, *key.split("."), re.split(r"[\s:]", key)[0])
        ]
        assert not message or any(
            (name and name in message) or repr(name) in message for name in parts
        ), f"{words}: {message}"


@pytest.mark.parametrize("cases", [50, pytest.param(200, marks=pytest.mark.long)])
def test_sites_are_valid_or_refused_by_key(
    draw: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: int
) -> None:
    written = [yaml.safe_load(file.read_text()) for file in SITES]
    settings = loading.read(str(ROOT / "conf/quickstart.yaml")).settings
    (tmp_path / "conf/site").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for number in range(cases):
        spoilt = spoil(draw, copy.deepcopy(draw.choice(written)))
        Path("conf/site/spoilt.yaml").write_text(yaml.dump(spoilt.settings, Dumper=Dumper))
        variable = draw.choice([*Site.model_fields])
        monkeypatch.setenv(f"AGENTFLY_{variable.upper()}", draw.choice(WORDS).replace("\0", "0"))
        message = refusal(
            lambda: checks.check_place(settings, loading.site("spoilt")), (number, spoilt, variable)
        )
        monkeypatch.delenv(f"AGENTFLY_{variable.upper()}")
        expected = names((*spoilt.keys, variable, variable.upper()))
        assert not message or any(name in message for name in expected), f"{expected}: {message}"
