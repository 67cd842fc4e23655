"""Messages about wrong settings."""

import pytest

from agentfly_core.config import loading
from agentfly_core.system.formats import strict_yaml

SETTINGS = """
model: nano:calculator
data: {use: "agentfly_core.datasets.arithmetic:arithmetic", train: 64, test: 16}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
steps: 2
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SETTINGS)
    return str(path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tools=calculator", "tools: Input should be a valid tuple (got 'calculator')"),
        ("update.betas={a: 1}", "update.betas: Input should be a valid tuple (got {'a': 1})"),
        (
            "update=[1]",
            "update: Input should be a valid dictionary or instance of Update (got [1])",
        ),
        ("rewards=[a]", "rewards: Input should be a valid dictionary (got ['a'])"),
        ("adapter.targets=3", "\n  adapter.targets: Input should be a valid tuple (got 3)"),
        (
            "adapter.targets=[]",
            "adapter.targets: Tuple should have at least 1 item after validation, not 0",
        ),
        ("rollout.branching={totel: 3}", "rollout.branching.totel: there is no such key"),
        ("template={use: model, variables: 3}", "template: ModelTemplate: variables: Input should"),
        ("agent={use: program, command: null}", "agent: ProgramAgent: command: got null"),
        (
            "agent={use: program, command: [a], files: 3}",
            "agent: ProgramAgent: files: Input should",
        ),
    ],
)
def test_a_setting_of_another_type_is_refused_with_its_key(override, message, tiny):
    with pytest.raises(ValueError) as caught:
        loading.read(tiny, [override])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=mine"], "\n  data: Input should be a valid dictionary"),
        (["data={}", "warm_start=mine"], "\n  warm_start: Input should be a valid dictionary"),
        (
            ["data={}", "agent={use: program, command: [a], files: [b]}", "code_files=3"],
            "\n  code_files: Input should be a valid tuple (got 3)",
        ),
    ],
)
def test_a_setting_of_another_type_is_refused_in_a_mixture(overrides, message, tiny):
    task = "{data: {use: 'a:b', train: 1, test: 1}, warm_start: {demonstrations: 'a:b'}}"
    with pytest.raises(ValueError) as caught:
        loading.read(tiny, [f"tasks={{sums: {task}}}", *overrides])
    assert message in str(caught.value)


DEEP = (
    ("[" * 3000 + "]" * 3000, "maximum recursion depth exceeded"),
    ("{a: " * 65 + "1" + "}" * 65, r"it is more than 64 levels deep\."),
    ('{"a":' * 3000 + "1" + "}" * 3000, "maximum recursion depth exceeded"),
)


@pytest.mark.parametrize(("text", "fault"), DEEP, ids=["lists", "one too many", "JSON"])
def test_too_deep_nesting_is_refused_with_its_source(text, fault, tiny):
    message = rf"is invalid YAML: {fault}"
    with pytest.raises(ValueError, match=rf"^conf/deep.yaml {message}"):
        strict_yaml.parse(text, "conf/deep.yaml")
    with pytest.raises(ValueError, match=message):
        loading.read(tiny, [f"data.use={text}"])


def test_allowed_nesting_is_read():
    assert strict_yaml.parse("{a: [" * 32 + "]}" * 32, "here") == strict_yaml.parse(
        '{"a": [' * 32 + "]}" * 32, "here"
    )
