"""Problems with three questions about a word. Each question needs one of twelve skills."""

import random
from collections.abc import Callable, Iterator
from itertools import product
from string import ascii_lowercase

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import sampled

NEXT = str.maketrans(ascii_lowercase, f"{ascii_lowercase[1:]}a")
SKILLS: dict[str, tuple[str, Callable[[str], str]]] = {
    "reversal": ("What is it backwards?", lambda word: word[::-1]),
    "vowels": ("How many vowels does it have?", lambda word: str(sum(map("aeiou".count, word)))),
    "length": ("How many letters does it have?", lambda word: str(len(word))),
    "capitals": ("What is it in capitals?", str.upper),
    "beginnings": ("What is its first letter?", lambda word: word[0]),
    "endings": ("What is its last letter?", lambda word: word[-1]),
    "order": ("What are its letters in alphabetical order?", lambda word: "".join(sorted(word))),
    "ciphers": ("What is it with each letter moved on by one?", lambda word: word.translate(NEXT)),
    "doubling": ("What is it twice in a row?", lambda word: word * 2),
    "consonants": (
        "What is it without vowels?",
        lambda word: "".join(letter for letter in word if letter not in "aeiou"),
    ),
    "middles": ("What is its third letter?", lambda word: word[2]),
    "variety": ("How many different letters does it have?", lambda word: str(len({*word}))),
}
_SYLLABLES = ("ba", "den", "gul", "kir", "lom", "mas", "nor", "pe", "ri", "sut", "tav", "vo")


@generated
def word_questions(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem(
            "denriba-reversal-length-vowels",
            "About the word denriba, answers divided by semicolons: What is it backwards? "
            "How many letters does it have? How many vowels does it have?",
            {"answer": "abirned; 7; 3"},
        )

    Splits share no word. Raises ValueError if more problems are requested than there are words.
    """
    sizes, draw = {"train": train, "validation": validation, "test": test}, random.Random(seed)

    def problems(syllables: tuple[str, ...]) -> Iterator[Problem]:
        word, names = "".join(syllables), draw.sample(sorted(SKILLS), 3)
        questions = " ".join(SKILLS[name][0] for name in names)
        prompt = f"About the word {word}, answers divided by semicolons: {questions}"
        answer = "; ".join(SKILLS[name][1](word) for name in names)
        yield Problem(f"{word}-{'-'.join(names)}", prompt, {"answer": answer})

    return sampled(draw, list(product(_SYLLABLES, repeat=3)), problems, sizes)
