"""Objects named by import path, with their settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.config.import_path import (
    algorithm_path,
    check_settings,
    construct,
    load,
    with_defaults,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Clip:
    low: float = 0.2
    kind: Literal["k2", "k3"] = "k3"


@dataclass(frozen=True)
class Tighter(Clip):
    cap: int | None = None


def spelled(
    tokenizer: PreTrainedTokenizerBase, accent: str, marks: tuple[str, ...] = ()
) -> tuple[Any, ...]:
    return tokenizer, accent, marks


class Canvas:
    """A class that no file can express."""


def drawn(canvas: Canvas, *more: int, **others: int) -> None: ...


def test_settings_are_converted_to_the_annotated_types() -> None:
    assert construct(Tighter, {"low": 1, "cap": 3.0}) == Tighter(1.0, "k3", 3)
    assert construct(spelled, {"accent": "soft", "marks": ["!"]}, {"tokenizer": 7}) == (
        7,
        "soft",
        ("!",),
    )


def test_missing_settings_are_completed_with_their_defaults() -> None:
    assert with_defaults(Tighter, {"cap": 2}) == {"low": 0.2, "kind": "k3", "cap": 2}


def test_sections_are_completed_too() -> None:
    completed = with_defaults(
        GRPO, {"policy_loss": {"use": "clip", "high": 0.28}, "aggregation": "seq_mean_token_sum"}
    )
    assert completed["policy_loss"] == {"use": "clip", "low": 0.2, "high": 0.28, "dual": None}
    assert completed["aggregation"] == {"use": "seq_mean_token_sum"}


def test_a_module_name_is_short_for_its_class() -> None:
    assert algorithm_path("dr_grpo") == "agentfly_core.algorithms.dr_grpo:DrGRPO"
    assert algorithm_path("my.own:Thing") == "my.own:Thing"
    with pytest.raises(ValueError, match="Did you mean 'rloo'"):
        algorithm_path("rlo")


@pytest.mark.parametrize(
    ("maker", "settings", "message"),
    [
        (Clip, {"kind": "k1"}, r"Clip: kind: Input should be 'k2' or 'k3' \(got 'k1'\)"),
        (spelled, {}, "spelled has no default for accent: 'str': set a value next to `use`"),
        (
            spelled,
            {"accent": None},
            "spelled: accent: got null, expected a value",
        ),
        (spelled, {"accnt": "soft"}, "spelled has no setting 'accnt'. Did you mean 'accent'"),
        (
            spelled,
            {"accent": "soft", "tokenizer": 1},
            "An annotation of spelled cannot be evaluated: .*'PreTrainedTokenizerBase'",
        ),
        (
            drawn,
            {"canvas": "blue"},
            "drawn: canvas has the annotation .*Canvas'>.*'blue'",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    maker: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_settings(maker, settings, ["tokenizer"] if maker is spelled else [])


def test_a_misspelt_module_is_suggested_from_its_package() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'exact'\?$"):
        load("agentfly_core.rewards.exakt:exact")
