"""Parse numbers with units, currencies and bases, mixed numbers and scientific notation."""

import re
from decimal import Decimal

LARGEST_EXPONENT = 300
_SIGNS = str.maketrans(
    {
        "\u2212": "-",
        "\u221e": r"\infty ",
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u00b0": r"^\circ ",
        "\u00a0": " ",
        "\u2009": " ",
        "\u202f": " ",
    }
)
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_RAISED_NUMBER = re.compile("⁻?[⁰¹²³⁴-⁹]+")
_TEXT = re.compile(r"\\(?:text|textrm|textbf|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_SPACE = re.compile(r"\\[,;:! ]|\\q?quad\b|~")
# numbers with thousands separators, fractions and powers of ten
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_FRACTION = r"\\[dt]?frac\s*(?:\{\d+\}\s*\{\d+\}|\d\d)"
_TIMES_TEN = r"\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{[-+]?\d+\}|[-+]?\d+)"
_NUMBER = (
    rf"[-+]?(?:{_DIGITS}\s*(?:{_FRACTION}|\s\d+\s*/\s*\d+)|\d+\s*/\s*\d+|{_FRACTION}"
    rf"|(?:{_DIGITS}(?:\.\d*)?|\.\d+)(?:{_TIMES_TEN}|[eE][-+]?\d+)?)"
)
# units before or after the number, joined to it, or as words after a space
_CURRENCY = r"(?:\\?\$|[\u20ac\u00a3\u00a5\u20b9])"
_DEGREES = r"(?:\^\s*\{?\s*\\circ\s*\}?\s*[CF]?)"
_JOINED = r"(?:[cmk]m|k?g|mg|m[lL]|ft|in|lbs?|oz|hrs?|min|sec|mph|degrees?)"
_POWER = r"(?:\s*\^\s*\{?-?\d\}?)?"
_UNIT_WORD = rf"(?:[A-Za-z]{{2,}}|[ACFJKLNVWghlmst](?![A-Za-z])){_POWER}"
_UNIT = rf"{_UNIT_WORD}(?:\s*(?:/|\\cdot|-)\s*{_UNIT_WORD})*"
_QUANTITY = re.compile(
    rf"(?P<sign>[-+]?)\s*{_CURRENCY}?\s*(?P<number>{_NUMBER})"
    rf"(?:\s*{_DEGREES}|\s*{_CURRENCY}|\s*(?P<joined>{_JOINED}){_POWER}"
    rf"|\s+(?P<words>{_UNIT}(?:\s+{_UNIT}){{0,3}}))?\s*\.?",
    re.ASCII,
)
_NUMBER_WORD = (
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    r"|(?:dozen|hundred|thousand|million|billion|trillion|half|halve|third|quarter|fourth|fifth"
    r"|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth|millionth|factorial)s?"
)
_NO_UNITS = re.compile(
    rf"\b(?:{_NUMBER_WORD}|about|am|and|approximately|but|cos|cubed|exp|if|is|less|ln|log|maybe"
    r"|minus"
    r"|mod|more|negative|nor|not|of|or|over|pi|plus|pm|sin|sqrt|squared|tan|than|think|times|to)\b",
    re.IGNORECASE,
)
"""Words after a number that are not units. Some of them change the value, such as "million"."""
_MIXED = re.compile(
    rf"([-+]?)({_DIGITS})\s*(?:\s(\d+)\s*/\s*(\d+)|\\[dt]?frac\s*\{{(\d+)\}}\s*\{{(\d+)\}}"
    r"|\\[dt]?frac\s*(\d)(\d))",
    re.ASCII,
)
_SCIENTIFIC = re.compile(
    r"([-+]?[1-9](?:\.\d+)?)(?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*\{?([-+]?\d+)\}?"
    r"|[eE]([-+]?\d+))",
    re.ASCII,
)
_BASE = re.compile(r"(?=[0-9A-Fa-f]*\d)([0-9A-Fa-f]+)_\{?(\d{1,2})\}?", re.ASCII)


def plain(text: str) -> str:
    """Replace Unicode characters by ASCII or LaTeX.

    The replaced characters are minus, multiplication, degree and infinity signs, special spaces and
    superscript digits.
    """
    raised = _RAISED_NUMBER.sub(lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    return raised.translate(_SIGNS)


def without_unit(text: str) -> str:
    """Return the number of a quantity without its unit: "5" for "5 cm^2", "\\$5" and "5 clips".

    The text "5 percent" becomes "5\\%". For a text that is not a quantity, the result is
    `plain(text)`. A unit is a degree sign, a currency, at most four words after a space, or an
    abbreviation such as "cm" with or without a space. A unit of one letter needs a space, because
    "4s" may be the product of 4 and s. The text "5 million" stays unchanged, because "million" is
    not a unit.
    """
    signs = plain(text)
    spelled = " ".join(_SPACE.sub(" ", _TEXT.sub(r" \1 ", signs)).split())
    if percent := re.fullmatch(rf"({_NUMBER})\s*percent", spelled, re.ASCII):
        return rf"{percent[1]}\%"
    match = _QUANTITY.fullmatch(spelled)
    if match is None or (match["sign"] and match["number"][:1] in "+-"):
        return signs
    if _NO_UNITS.search(match["words"] or ""):
        return spelled  # math-verify leaves out the words of \text{ million}
    return match["sign"] + match["number"]


def decimal(text: str) -> str:
    """Convert a number to a form that math-verify reads correctly.

    A mixed number, such as "1 1/2", becomes a LaTeX fraction. A number in scientific notation, such
    as "1.5 \\times 10^7", becomes a decimal number. All other texts are returned unchanged.
    """
    if mixed := _MIXED.fullmatch(text):
        sign, whole, *rest = mixed.groups()
        over, under = (int(digits) for digits in rest if digits is not None)
        if 0 < over < under:
            return rf"{sign}\frac{{{int(whole.replace(',', '')) * under + over}}}{{{under}}}"
    if scientific := _SCIENTIFIC.fullmatch(text):
        exponent = int(scientific[2] or scientific[3])
        if abs(exponent) <= LARGEST_EXPONENT:
            return format(Decimal(f"{scientific[1]}e{exponent}"), "f")
    return text


def in_base(text: str) -> tuple[str, int] | None:
    """Return the digits and the base of a number: `in_base("0101_2")` is `("101", 2)`.

    Returns None for a text that is not a number with a base from 2 to 16.
    """
    match = _BASE.fullmatch(re.sub(r"[\s$]", "", text))
    if match is None or not 2 <= int(match[2]) <= 16:
        return None
    return match[1].lstrip("0").upper() or "0", int(match[2])
