"""The examples of docs/how-to/existing-tasks.md work."""

import re
from pathlib import Path

from agentfly_core.config import loading
from agentfly_core.datasets.harbor import harbor
from agentfly_core.records.trajectory import Problem
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/existing-tasks.md").read_text()


def test_the_task_of_the_page_has_settings_of_an_experiment(tmp_path, monkeypatch):
    section = PAGE[PAGE.index("## How do I use Harbor") :]
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
