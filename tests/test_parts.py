"""What is named by its import path, and the settings beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from agentfly_core.parts import construct, defaults, fitting

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Clip:
    low: float = 0.2
    kind: Literal["k2", "k3"] = "k3"


@dataclass(frozen=True)
class Tighter(Clip):
    cap: int | None = None


def spelled(tokenizer: PreTrainedTokenizerBase, accent: str, marks: tuple[str, ...] = ()) -> tuple[Any, ...]:
    return tokenizer, accent, marks


class Canvas:
    """What no file can hold."""


def drawn(canvas: Canvas, *more: int, **others: int) -> None: ...


def test_settings_become_what_the_annotations_say() -> None:
    assert construct(Tighter, {"low": 1, "cap": 3.0}) == Tighter(1.0, "k3", 3)
    assert construct(spelled, {"accent": "soft", "marks": ["!"]}, {"tokenizer": 7}) == (7, "soft", ("!",))


def test_settings_that_may_be_left_out_are_known_with_their_values() -> None:
    assert defaults(Tighter) == {"low": 0.2, "kind": "k3", "cap": None}


@pytest.mark.parametrize(
    ("maker", "settings", "message"),
    [
        (Clip, {"kind": "k1"}, r"Clip: kind: Input should be 'k2' or 'k3' \(got 'k1'\)"),
        (spelled, {}, "spelled has no default for accent: 'str': give it beside `use`"),
        (spelled, {"accent": None}, r"spelled: accent: Input should be a valid string \(got None\)"),
        (spelled, {"accnt": "soft"}, "spelled has no setting 'accnt'. Did you mean 'accent'"),
        (
            spelled,
            {"accent": "soft", "tokenizer": 1},
            "An annotation of spelled cannot be evaluated: .*'PreTrainedTokenizerBase'",
        ),
        (drawn, {"canvas": "blue"}, "drawn: canvas is annotated with .*Canvas'>, which nothing in a file can be"),
    ],
)
def test_settings_that_do_not_fit_are_refused(maker: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitting(maker, settings, ["tokenizer"] if maker is spelled else [])
