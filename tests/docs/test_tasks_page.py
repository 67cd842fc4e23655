"""What docs/tasks.md shows can be done."""

import json
import re
from pathlib import Path

from transformers import AutoTokenizer

from agentfly_core.config import loading
from agentfly_core.config.import_path import load
from agentfly_core.datasets.harbor import harbor
from agentfly_core.environments.text_shop import TextShop
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.records import dataset
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.text_shop import purchase
from tests.support import tasks
from tests.support.project import ROOT

PAGE = (ROOT / "docs/tasks.md").read_text()


def test_the_task_of_the_page_is_read_and_its_settings_are_those_of_an_experiment(
    tmp_path, monkeypatch
):
    section = PAGE[PAGE.index("### Tasks of your own") :]
    tree = re.search(r"```\n(count-words/\n.*?)```", section, re.DOTALL)[1]
    texts, name = {}, ""
    for line in tree.splitlines()[1:]:
        name, text = line[2:29].strip() or name, line[29:]
        texts[name] = texts.get(name, "") + f"{text}\n"
    for name, text in texts.items():
        (tmp_path / "my-tasks/count-words" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "my-tasks/count-words" / name).write_text(text)
    text_of_file = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1]
    (tmp_path / "mine.yaml").write_text(f"model: nano\nsteps: 1\n{text_of_file}")
    monkeypatch.chdir(tmp_path)
    settings = loading.read("mine.yaml").settings
    assert list(settings.rewards) == ["agentfly_core.rewards.folder:hidden_check"]
    [problem] = harbor(0, 1, 0, 0, Path(settings.data.settings["folder"]))["train"]
    assert problem == Problem(
        "count-words",
        "Write how many words notes.txt has into count.txt.",
        {
            "files": {"notes.txt": "one two three\n"},
            "check": {
                "files": {"test.sh": texts["tests/test.sh"]},
                "script": "test.sh",
                "by_exit_code": False,
                "seconds": 10.0,
            },
        },
    )


async def test_the_oracle_shops_as_the_page_shows(monkeypatch, nano):
    monkeypatch.chdir(ROOT)
    settings = loading.read("text-shop", ["data.catalogues=1"]).settings
    name = re.search(r"--problem (0-round\S+)`", PAGE)[1]
    problems = dataset.build(settings.data, settings.seed)["test"]
    [problem] = [one for one in problems if one.id == name]
    oracle = policy_at(settings.warm_start.demonstrations, {"spoilt": 0.0}, [], 0)
    tools = [load(tool.use) for tool in settings.tools]
    tokenizer = AutoTokenizer.from_pretrained(nano)
    [played] = await tasks.played([problem], oracle, tools, tokenizer, [TextShop], [purchase])
    shown = re.search(rf"^problem {name}.*?^ +after", PAGE, re.DOTALL | re.MULTILINE)[0]
    text = " ".join(re.findall(r"^ *(?:read|sampled)? *[|>] (.*)$", shown, re.MULTILINE))
    called = [call for turn in played.turns for call in turn.reply.calls]
    assert re.findall("<tool_call> (.*?) </tool_call>", text) == [
        json.dumps({"name": call.name, "arguments": call.arguments}) for call in called
    ]
    assert re.findall("<tool_response> (.*?) </tool_response>", text) == [
        " ".join(read.content.splitlines()) for read in played.observations[:-1]
    ]
    assert played.observed["purchase"].value == 1.0
