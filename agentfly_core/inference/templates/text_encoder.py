"""Encode text so that only the markup of a chat template becomes added tokens."""

import re
import secrets
from collections.abc import Callable, Iterable, Sequence

from tokenizers import AddedToken, Tokenizer

from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.system.formats.text import clip

_HTML = re.compile(
    r"</?(?:table|caption|thead|tbody|tfoot|t[rhd]|h[1-6]|blockquote|strong|em|[abius]|su[bp]|code"
    r"|html|body|img|span|bbox|ul|li|div|iframe|footer)>"
)
MOST_TOKENS_OF_A_BYTE = 16
"""An upper bound of the number of tokens for each byte of text. The bound is above 1, because a
tokenizer may normalise a Unicode character of 3 bytes to 33 bytes.
"""
SHARED = 4
"""The length of the prefixes by which `one_of` groups names. These groups make the pattern fast."""


class TextEncoder:
    """Encodes text like a tokenizer, but unmarked names of added tokens become ordinary tokens.

    `mark` marks the names, such as `<|im_start|>`. Only the added tokens for white space and HTML
    tags need no mark.

        encoder = TextEncoder(tokenizer)
        encoder.encode(encoder.mark("<|im_start|>") + "user\\n<|im_end|>")  # one added token

    The encoder uses a copy of the tokenizer in which added tokens have secret names. `mark`
    replaces the ordinary names in a text by the secret names. Raises ValueError if the tokenizer
    does not belong to the library `tokenizers`, or if plain text can produce an added token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        own = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(own, Tokenizer):
            raise ValueError(
                f"The tokenizer is a {type(tokenizer).__name__}, expected a tokenizer of the "
                "library `tokenizers`. Choose a model with a tokenizer.json."
            )
        self._tokenizer, self._twin = tokenizer, Tokenizer(own.model)
        self._twin.normalizer, self._twin.pre_tokenizer = own.normalizer, own.pre_tokenizer
        added = own.get_added_tokens_decoder()
        self._require_control(own, added)
        self._secret = secrets.token_hex(8)  # must not occur in any text
        self._names = {
            t.content: t.content if is_text(t) else f"<{self._secret}{index}>"
            for index, t in added.items()
        }
        named = zip(self._names.values(), added.values(), strict=True)
        self._twin.add_tokens(
            [
                AddedToken(name, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False)
                for name, token in named
            ]
        )
        self._ids = dict(zip(map(self._twin.token_to_id, self._names.values()), added, strict=True))
        self._text = {token.content for token in added.values() if is_text(token)}
        self.markup = [name for name in self._names if name not in self._text]
        """The names of the added tokens that need a mark: all except white space and HTML tags."""
        self._any = one_of(self.markup)
        self._plain = one_of(token.content for token in added.values() if not token.special)

    def mark(self, text: str, special: bool = True) -> str:
        """Mark the names of added tokens in a text. `encode` turns marked names into added tokens.

        Each name is replaced by a secret name, which does not occur in other texts. With
        `special=False`, tokens that are flagged as special are not replaced.
        """
        names = self._any if special else self._plain
        return names.sub(lambda match: self._names[match[0]], text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text. Markup becomes added tokens only if `mark` has marked it.

        Lone surrogates are encoded as question marks.
        """
        encoding = self._twin.encode(
            text.encode("utf-8", "replace").decode(), add_special_tokens=False
        )
        # recognized by name, because in a vocabulary with gaps the id may also be an ordinary token
        return tuple(
            self._ids[index] if self._secret in token or token in self._text else index
            for token, index in zip(encoding.tokens, encoding.ids, strict=True)
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens to text, including special tokens."""
        return str(
            self._tokenizer.decode(
                list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def id_of(self, token: str) -> int:
        """Return the id of a token by its text. Raises ValueError if the text is not a single
        token.
        """
        index = self._tokenizer.convert_tokens_to_ids(token)
        if not isinstance(index, int) or self._tokenizer.convert_ids_to_tokens(index) != token:
            raise ValueError(
                f"template: the model lacks the token {token}. Choose another template or model."
            )
        return index

    def markup_in(self, text: str) -> list[tuple[int, str]]:
        """Return the positions and names of the added tokens whose names occur in a text."""
        return [(match.start(), match[0]) for match in self._any.finditer(text)]

    def fit(self, text: str, tokens: int) -> str:
        """Shorten a text to at most `tokens` tokens. Its middle is replaced by `[... N bytes
        omitted ...]`.
        """
        fitting, kept = text, len(text.encode("utf-8", "replace"))
        # short texts fit without being encoded
        if kept * MOST_TOKENS_OF_A_BYTE <= tokens:
            return text
        while kept and (size := len(self.encode(fitting))) > tokens:
            # at least one byte is removed, because the loop must end
            kept = min(kept - 1, kept * tokens // size)
            fitting = clip(text, kept)
        return fitting

    def _require_control(self, own: Tokenizer, added: dict[int, AddedToken]) -> None:
        # the token for unknown characters
        unknown = getattr(own.model, "unk_token", None)
        for index, token in added.items():
            in_text = own.model.token_to_id(token.content) is not None
            if not in_text or token.content == unknown or is_text(token):
                continue
            if index in self._twin.encode(token.content, add_special_tokens=False).ids:
                raise ValueError(
                    f"The tokenizer's added token {token.content!r} ({index}) is also produced by "
                    "plain text, so tools and users could write it. Remove this token from the "
                    "added tokens, or choose another model."
                )


def reply_encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], list[int]]:
    """Return a function that encodes a reply as if it followed a line break.

    Some tokenizers add a space at the beginning of a text, but not after a line break. If the line
    break and the beginning of the reply form one token, the reply is encoded alone.
    """

    def encode(text: str) -> list[int]:
        tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return tokens

    start = encode("\n")

    def encode_reply(text: str) -> list[int]:
        whole = encode(f"\n{text}")
        return whole[len(start) :] if whole[: len(start)] == start else encode(text)

    return encode_reply


def is_text(token: AddedToken) -> bool:
    """Whether an added token is ordinary text, not markup.

    For example, Gemma has added tokens for white space and for HTML tags.
    """
    blank = not token.content.strip(" \t\n\r\u2581")
    return blank or (not token.special and bool(_HTML.fullmatch(token.content)))


def one_of(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of these names. Longer names take precedence."""
    # grouped by their first letters, because Gemma has 6,000 names that begin with <unused
    groups: dict[str, list[str]] = {}
    for name in sorted(names, key=len, reverse=True):
        groups.setdefault(name[:SHARED], []).append(re.escape(name[SHARED:]))
    parts = (f"{re.escape(begin)}(?:{'|'.join(ends)})" for begin, ends in groups.items())
    return re.compile("|".join(parts) or r"(?!)")
