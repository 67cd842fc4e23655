"""Run the commands of the pages with the marker at their top, in order, on a real store.

`quickstart` is a tiny experiment there, with the number of steps from the page. Prefect, the
sampler in process, the learner and the store are real.
"""

import itertools
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from flows.__main__ import main
from flows.cli.app import agentfly
from tests.support.killed_commands import Lives
from tests.support.mlflow_store import new_store
from tests.support.project import ROOT

MARK = re.compile(r"<!-- The commands of this page are run by a test, with steps=(\d+)\. -->\n")
PAGES = [page for page in sorted(ROOT.glob("docs/**/*.md")) if "run by a test" in page.read_text()]
WRITES = ("train", "evaluate", "sweep", "fork", "warm-start", "prepare")
SMALL = {
    "data": {"train": 16, "validation": 2, "test": 2},
    "warm_start": {"episodes": 16},
    "rollout": {"problems": 1, "group_size": 2},
}


def commands(text: str) -> list[list[str]]:
    """The words of each command of the blocks of a page, in order."""
    blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines_of_words = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in lines_of_words if words[:1] == ["agentfly"]]


def without_variables(line: str) -> list[str]:
    """The words of a command, without variables and redirection: `A=1 agentfly list > a`."""
    try:
        words = shlex.split(line.removeprefix("$ "), comments=True)
    except ValueError:  # a line of text or of output
        return []
    command = itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words)
    return [*itertools.takewhile(lambda word: word != ">", command)]


class Workplace:
    """Runs commands in processes of their own, with the sampler in process."""

    def __init__(self, prefect_api: str, home: Path) -> None:
        self.mlflow = new_store(home)
        settings = {
            "PREFECT_API_URL": prefect_api,
            "PREFECT_HOME": str(home),
            "MLFLOW_TRACKING_URI": self.mlflow,
            "AGENTFLY_SAMPLER": "transformers",
            "DS_ACCELERATOR": "cpu",
        }
        self.lives = Lives({**os.environ, **settings})

    def run(self, folder: Path, words: list[str]) -> tuple[int, str]:
        """The exit status and output of a command."""
        end = self.lives.run(folder, *words)
        return end.code, end.printed


def here(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The same of a command that needs no services, in this process."""
    code = main(words)
    printed = capsys.readouterr()
    return code, printed.out + printed.err


@pytest.fixture(scope="module")
def lives(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """Where commands of pages that need services are run."""
    workplace = Workplace(prefect_api, tmp_path_factory.mktemp("home"))
    yield workplace
    workplace.lives.close()


def project(folder: Path, steps: int) -> None:
    """A project with a tiny quickstart."""
    tiny = yaml.safe_load((ROOT / "tests/conf/tiny.yaml").read_text())
    small = {section: {**tiny.get(section, {}), **changes} for section, changes in SMALL.items()}
    (folder / "conf").mkdir()
    text = yaml.safe_dump({**tiny, **small, "steps": steps})
    (folder / "conf/quickstart.yaml").write_text(text)


def test_pages_say_that_their_commands_are_run() -> None:
    assert {"inspect-runs.md", "compare-and-sweep.md"} <= {path.name for path in PAGES}


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_work_in_order(
    page: Path,
    lives: Workplace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = page.read_text()
    mark = MARK.match(text)
    assert mark, f"{page.name} has another mark, or not at its top; expected {MARK.pattern}"
    project(tmp_path, int(mark[1]))
    typed = commands(text)
    assert typed, f"{page.name} has no command"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", lives.mlflow)
    for words in typed:
        code, printed = lives.run(tmp_path, words) if words[0] in WRITES else here(words, capsys)
        assert code == 0, f"agentfly {shlex.join(words)}\n{printed}"
        assert printed.strip(), f"agentfly {shlex.join(words)} printed nothing"


def test_a_command_over_several_lines_and_with_a_comment_is_one() -> None:
    page = "```bash\nagentfly show mine \\\n  --worst 1  # one\npytest tests\n```\n"
    assert commands(f"{page}```\nagentfly list\n```\n") == [["show", "mine", "--worst", "1"]]


SHOWN = sorted(
    {
        shlex.join(words)
        for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
        for block in re.findall(r"```(?:bash|sh)?\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if (words := without_variables(line))[:1] == ["agentfly"] and "prefect" not in words[1:2]
    }
)


@pytest.mark.parametrize("command", SHOWN)
def test_a_shown_command_has_valid_arguments(command: str) -> None:
    words = shlex.split(command)[1:]
    agentfly(words).parse_args(words, exit_on_error=False, print_error=False)
