"""Nano models, which have less than 1M parameters.

The models `nano:<recipe>` have tokenizers that are part of this package. The tokenizer of the model
`nano` is learned from the conversations of an experiment.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

POSITIONS = 2048
SPECIAL = PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
FOLDER = Path(__file__).parent / "tokenizers"
"""Folder with byte-level BPE tokenizers of 512 tokens. Each tokenizer was learned from one kind of
conversation.
"""
Pieces = Sequence[str]
"""The texts of a conversation between special tokens: `("user\\nWhat is 41+58?", "\\n",
"assistant\\n", ...)`.
"""
VOCABULARY = 1024
EVERYWHERE = 0.95
"""A word counts as part of the conversation format, such as markup, if at least this share of the
conversations contains the word.
"""
_ALPHABET = 256
_WORD = r"[^\W\d]+"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
    "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The chat template of nano models, which have less than 1M parameters."""


def shipped(recipe: str) -> PreTrainedTokenizerFast:
    """Load the tokenizer of the model `nano:<recipe>`."""
    return _fast(Tokenizer.from_file(str(FOLDER / f"{recipe}.json")))


def tokenizer(conversations: Sequence[Pieces], atoms: Sequence[str]) -> PreTrainedTokenizerFast:
    """Learn a byte-level BPE tokenizer of at most 1,024 tokens from conversations.

    Tokens do not cross the boundaries of words, digits and matches of the patterns `atoms`, because
    models copy such tokens easily. Only words that occur in nearly all conversations, such as words
    in the markup of calls, may share a token with other text.
    """
    texts = [piece for conversation in conversations for piece in conversation]
    starts, ends = r"(?<![^\W\d])", r"(?![^\W\d])"
    # words of the common format, the longest first
    counts = Counter(w for pieces in conversations for w in {*re.findall(_WORD, " ".join(pieces))})
    needed = math.ceil(EVERYWHERE * len(conversations))
    words = sorted(word for word, count in counts.items() if count >= needed)
    form = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    others = f"(?!(?:{form}){ends})" if form else ""
    alone = [*(f"(?:{atom})" for atom in atoms), r"\d", f"{starts}{others}{_WORD}"]
    return _learned(texts, "|".join(alone), VOCABULARY)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each byte and for each special token.

    It can encode every text without loss.
    """
    return _learned([], r"\d", _ALPHABET + len(SPECIAL))


def pieces(tokenizer: PreTrainedTokenizerBase, spans: Iterable[Sequence[int]]) -> Pieces:
    """Decode spans of tokens. Return the texts between special tokens, without empty texts."""
    cut = re.compile("|".join(map(re.escape, SPECIAL)))
    texts = (str(tokenizer.decode(list(span), skip_special_tokens=False)) for span in spans)
    return [piece for text in texts for piece in cut.split(text) if piece]


def _learned(texts: Iterable[str], atoms: str, vocabulary: int) -> PreTrainedTokenizerFast:
    """Learn a byte-level BPE tokenizer of at most `vocabulary` tokens from texts.

    Text that matches the pattern `atoms` is not merged with the text around it.
    """
    bpe = Tokenizer(BPE())
    isolated = Split(Regex(atoms), "isolated")
    bpe.pre_tokenizer = pre_tokenizers.Sequence([isolated, ByteLevel(False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return _fast(bpe)


def _fast(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=START, eos_token=END, pad_token=PAD, chat_template=CHATML
    )
