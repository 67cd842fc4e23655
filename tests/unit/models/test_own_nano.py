"""A tokenizer learned from the conversations of an experiment, and its model."""

from pathlib import Path

from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from agentfly_core.models import nano
from agentfly_core.models.pretrained import write_untrained

CALL = '<tool_call>\n{{"name": "search", "arguments": {{"words": "{} {}"}}}}\n</tool_call>'
THINGS = [(colour, thing) for colour in ("red", "green", "blue") for thing in ("cup", "kettle")]
SAID = [
    [f"user\nBuy a {colour} {thing} for 3{euros} euros.", "assistant\n", CALL.format(colour, thing)]
    for colour, thing in THINGS
    for euros in range(10)
]


def test_only_text_common_to_all_conversations_is_joined() -> None:
    tokenizer = nano.tokenizer(SAID, [])
    assert tokenizer.tokenize("user\nBuy a red kettle for 31 euros.") == [
        "userĊBuyĠaĠ",
        "red",
        "Ġ",
        "kettle",
        "ĠforĠ",
        "3",
        "1",
        "Ġeuros.",
    ]
    assert tokenizer.tokenize(CALL.format("blue", "cup")) == [
        '<tool_call>Ċ{"name":Ġ"search",Ġ"arguments":Ġ{"words":Ġ"',
        "blue",
        "Ġ",
        "cup",
        '"}}Ċ</tool_call>',
    ]


def test_an_unseen_word_has_equal_tokens_everywhere() -> None:
    tokenizer = nano.tokenizer(SAID, [])
    request, called = "user\nBuy a violet cup for 31 euros.", CALL.format("violet", "cup")
    pieces = tokenizer.tokenize("violet")
    for text in (request, called):
        assert " ".join(pieces) in " ".join(tokenizer.tokenize(text))


def test_atoms_are_never_joined() -> None:
    tokenizer = nano.tokenizer(SAID, ["euros", r"\."])
    assert tokenizer.tokenize(" for 31 euros.")[-3:] == ["Ġ", "euros", "."]


def test_an_atom_of_two_digits_makes_a_number_one_token() -> None:
    assert "31" in nano.tokenizer(SAID, [r"\d\d"]).tokenize(" for 31 euros.")


def test_any_text_is_encoded_and_decoded() -> None:
    tokenizer = nano.byte_tokenizer()
    text = "Zürich 東京 🚲\n"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert len(tokens) == len(text.encode())
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert nano.pieces(tokenizer, [(*tokens, end), tokens[:7]]) == [text, "Zürich"]


def test_the_same_conversations_make_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (folder := tmp_path / name).mkdir()
        write_untrained(nano.tokenizer(SAID, []), folder, "float32", 256)
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert made[0] == made[1]
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= made[0].keys()


def test_the_largest_vocabulary_stays_below_a_million_parameters(tmp_path: Path) -> None:
    many = [
        [f"user\n{chr(97 + a)}{chr(97 + b)}{chr(97 + c)}" * 2]
        for a in range(26)
        for b in range(9)
        for c in range(9)
    ]
    write_untrained(nano.tokenizer(many, []), tmp_path, "float32", 5000)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == nano.VOCABULARY
    weights = load_file(tmp_path / "model.safetensors").values()
    assert 800_000 < sum(weight.numel() for weight in weights) < 1_000_000
    assert AutoConfig.from_pretrained(tmp_path).max_position_embeddings == 5000
