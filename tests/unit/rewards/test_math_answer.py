"""Right answers in many forms, and answers that try to be right without being one."""

import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from agentfly_core.records.trajectory import (
    Message,
    Observation,
    Problem,
    Score,
    ToolCall,
    Unscored,
)
from agentfly_core.rewards.math_answer import math, math_with_tool, stated
from agentfly_core.testing import play
from agentfly_core.testing.episodes import ADD
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator

pytestmark = pytest.mark.skipif(
    find_spec("math_verify") is None, reason="math-verify is not installed: the extra `math`"
)

MILLION = 1_000_000
QUESTION = "What is 41+58?"
WRONG = [
    *("98", "", " ", "nan", r"\infty", "99!", "99%", "９９", "0x63"),
    # numbers of the question in any spelling
    *(QUESTION, "41+58", "58+41", "41 58", r"\boxed{41+58}", "198/2", r"\frac{198}{2}", "99^1"),
    # several answers
    *("98, 99", "98 or 99", r"98 \text{ or } 99", r"\pm 99", "99; 98", r"\boxed{99} or \boxed{98}"),
    *(" ".join(map(str, range(200))), ",".join(map(str, range(100))), "answer: 99 or 98"),
    # only similar to an answer
    *("It is 99", "I think 99", "99 I think", "2x=99", "98=99", "x=1=99", r"\boxed{99", "99}x{"),
    # endless computations
    *("9**9**9", "9^{9^{9^{9}}}", "9" * MILLION, "99 " * MILLION, "99" + " " * MILLION + "99"),
    *(r"\boxed{" * MILLION, "answer " * MILLION, "$" * MILLION),
]
RIGHT = [
    *("99", " 99. ", "$99$", "**99**", "99.0", "099", "99 cm", r"\$99", "x = 99", r"\(99\)"),
    *("The answer is 99.", "Answer: $99$", "40+59\n#### 99", r"98? No: \boxed{99}", r"\fbox{99}."),
]


async def scored(text: str, gold: object = "99", prompt: str = QUESTION) -> Score | Unscored:
    """The score of an episode that ends with this answer, however long it is."""
    problem = Problem("p", prompt, {"answer": gold})
    trajectory = await play([ToolCall("answer", {"answer": ""})], answer, problem=problem)
    return await math.score(replace(trajectory, answered=text), {})


@pytest.mark.parametrize("text", RIGHT, ids=range(len(RIGHT)))
async def test_a_right_number_is_right_in_any_notation(text: str) -> None:
    assert await scored(text) == Score(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
async def test_no_trick_earns_more_than_a_wrong_answer(text: str) -> None:
    assert await scored(text) == Score(0.0)


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        *(("1/2", "0.5"), ("0.5", r"\frac12"), (r"\frac{1}{2}", r"\frac{2}{4}"), (99, "99")),
        *(("1/3", "0.333333"), ("1,234", "1234"), (r"50\%", "50%"), ("-0.5", "-1/2")),
        *((r"2\sqrt{3}", r"\sqrt{12}"), ("10^6", "1000000"), ("x^2-1", "(x-1)(x+1)")),
        *((r"\{1, 2\}", "2, 1"), ("(1,2)", "(1, 2)"), ("x=3", "3"), ("x<3", "3>x"), ("A", "(A)")),
        *(("Tuesday", r"\text{tuesday}"), ("40+2 = 42\n#### 42", "42"), (r"It is \boxed{7}.", "7")),
    ],
)
async def test_answers_are_compared_by_value(gold: object, text: str) -> None:
    assert await scored(text, gold) == Score(1.0)


@pytest.mark.parametrize(
    ("gold", "text", "prompt"),
    [
        *(("1/3", "0.33", ""), ("0.0000001", "0", ""), ("0", "0.0000001", ""), ("3", r"\pm 3", "")),
        *(("50%", "0.5", ""), ("(1,2)", "(2,1)", ""), ("Tuesday", "yadseuT", "")),
        ("1/2", "2/4", "Reduce 2/4."),
        ("x^2+2x+1", "(x+1)^2", "Expand (x+1)^2."),
        (r"2\sqrt{3}", r"\sqrt{12}", r"Simplify $\sqrt{12}$."),
    ],
)
async def test_another_value_and_a_copy_of_the_question_are_wrong(
    gold: object, text: str, prompt: str
) -> None:
    assert await scored(text, gold, prompt) == Score(0.0)


SAME = [
    *(("Monday", "MONDAY"), ("Even", "even"), ("East", "east"), ("True", "true"), ("No", "no")),
    *(("1010_2", "1010_{2}"), ("1010_2", "$01010_2$"), ("1010", "1010_{10}"), ("90", "90 degrees")),
    *(("90", "90\u00b0"), ("90", r"90^\circ"), (r"90^\circ", "90"), ("5", "5 cm^2")),
    *(("5", r"5\text{ cm}^2"), ("5", "5 m/s"), ("18", "18 \u20ac"), ("18", "\u20ac18")),
    *(("72", "72 clips"), ("72 clips", "72"), ("-3", "\u22123"), ("3/2", "1 1/2")),
    *((r"1\frac{1}{2}", "1.5"), ("15000000", r"1.5 \times 10^7"), ("15000000", "1.5e7")),
    *(("p - q", "-q + p"), (r"\text{p - q}", "p - q"), (r"(0, \infty)", "(0, \u221e)")),
    *(("15000000", "1.5 \u00d7 10\u2077"), ("50%", "50 percent"), ("60", "60 miles per hour")),
]
OTHER = [
    *(("1010_2", "1010_8"), ("1010_2", "1010"), ("1010", "1010_2"), ("11/2", "1 1/2")),
    *(("3/2", "11/2"), ("15000000", r"1.5 \times 10^6"), ("4s", "4"), ("4s", "4t"), ("4", "4s")),
    *(
        ("5", "5x"),
        ("5", "5 million"),
        ("5", "5 dozen"),
        ("5", "5 pi"),
        ("50", "50 percent"),
        ("-5", "5"),
    ),
    *(("p - q", "q - p"), ("p - q", "p")),
    *(("72", "71 clips"), ("Monday", "Tuesday"), ("8 AM", "8 PM"), ("5", "5 and a half")),
    *(("5", "5 hundreds"), ("5", "5 eighths"), ("5", "5 ten"), ("5", "5 negative")),
    *(("5", r"5 \text{ million}"), ("3/4", r"\frac{3}{4}\text{ million}")),
]


@pytest.mark.parametrize(("gold", "text"), SAME, ids=range(len(SAME)))
async def test_units_words_and_notations_are_read(gold: str, text: str) -> None:
    assert await scored(text, gold, "") == Score(1.0)


@pytest.mark.parametrize(("gold", "text"), OTHER, ids=range(len(OTHER)))
async def test_signs_that_change_the_value_are_read(gold: str, text: str) -> None:
    assert await scored(text, gold, "") == Score(0.0)


async def test_the_question_can_contain_the_right_answer() -> None:
    assert await scored("1/2", "1/2", "Which is more, 1/2 or 1/3?") == Score(1.0)


@pytest.mark.long
async def test_an_answer_that_takes_too_long_is_wrong() -> None:
    assert await scored("x^{9^{9^{9}}}", "x^2") == Score(0.0)
    assert await scored("{" * 400 + "x" + "}" * 400, "x^2") == Score(0.0)


@pytest.mark.parametrize("gold", [None, "", r"\boxed{}"])
async def test_a_problem_without_an_answer_is_unscored(gold: object) -> None:
    result = await scored("99", gold)
    assert isinstance(result, Unscored)
    assert "facts['answer']" in result.reason


SUM = ToolCall("calculator", {"expression": "41+58"})


@pytest.mark.parametrize(
    ("replies", "value", "right"),
    [
        (["99"], 0.0, 1.0),
        (["98"], 0.0, 0.0),
        ([SUM, "99"], 1.0, 1.0),
        ([SUM, "98"], 0.1, 0.0),
        ([SUM, ToolCall("answer", {"answer": "99"})], 1.0, 1.0),
        ([ToolCall("answer", {"answer": "99"})], 0.0, 1.0),
        ([ToolCall("calculator", {"expression": "41+"}), "99"], 0.0, 1.0),
        ([ToolCall("no_such_tool", {}), "99"], 0.0, 1.0),
    ],
)
async def test_an_answer_earns_only_after_a_successful_tool_call(
    replies: list[str | ToolCall], value: float, right: float
) -> None:
    trajectory = await play(replies, calculator, answer)
    assert await math_with_tool.score(trajectory, {}) == Score(value, {"right": right})


async def test_an_observation_of_the_prompt_is_no_tool_call() -> None:
    problem = replace(ADD, messages=(Message("user", QUESTION), Observation("calculator", "99")))
    trajectory = await play(["99"], calculator, answer, problem=problem)
    assert await math_with_tool.score(trajectory, {}) == Score(0.0, {"right": 1.0})
    call = ToolCall("calculator", {"expression": "41+58"})
    trajectory = await play([call, "99"], calculator, answer, problem=problem)
    assert await math_with_tool.score(trajectory, {}) == Score(1.0, {"right": 1.0})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (r"\boxed{1} and \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("the answer is 3.\nthe answer is: 4.", "4"),
        ("work\n#### 1,234\nmore", "1,234"),
        (r"\boxed{1} \boxed{2", ""),
        (" .5 ", ".5"),
    ],
)
def test_the_answer_is_the_last_box_a_label_or_the_whole_text(text: str, what: str) -> None:
    assert stated(text) == what


def test_a_missing_package_has_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    for reward in (math, math_with_tool):
        with pytest.raises(ValueError, match=r"is missing.*pip install math-verify==0.9.0"):
            reward.ready()
