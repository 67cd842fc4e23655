"""Foreign text is printed without terminal control characters."""

import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from agentfly_core.system.formats.text import CONTROL, visible
from flows.__main__ import main
from flows.local.terminal import VisibleConsole, VisibleStream, print_json, visible_output
from tests.support.terminal_escapes import EXPERIMENT, HOSTILE, WRITTEN

ROOT = Path(__file__).parents[4]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_written_out() -> None:
    assert visible(HOSTILE) == WRITTEN
    assert visible("a\tb\nc é 漢 \U0001f600") == "a\tb\nc é 漢 \U0001f600"
    assert visible("\ud800") == r"\ud800"


@pytest.mark.parametrize("where", ["text", "cell", "title", "style", "string"])
def test_a_console_prints_no_foreign_control_characters(where: str) -> None:
    console = VisibleConsole(file=Screen(), width=200, force_terminal=True, color_system=None)
    table = Table("column", title=HOSTILE if where == "title" else "")
    table.add_row(HOSTILE if where == "cell" else "")
    shown = {
        "text": Text(HOSTILE),
        "cell": table,
        "title": table,
        "style": Text(HOSTILE, style="link https://elsewhere"),
        "string": f"[link=https://elsewhere]{HOSTILE}[/link]",
    }
    console.print(shown[where])
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert not CONTROL.search(printed)
    assert r"\x1b]0;title" in printed


def test_printed_and_logged_text_has_no_control_characters(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with visible_output():
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        logging.getLogger("agentfly_core").warning("%s", HOSTILE)
    assert capsys.readouterr() == (f"{WRITTEN}\n", f"{WRITTEN}\n")
    assert caplog.records[0].getMessage() == WRITTEN


def test_a_progress_bar_returns_to_the_start_of_its_line() -> None:
    screen = Screen()
    for text in ("\r10 %", "\r   \r", "\r", "a\rb"):
        VisibleStream(screen).write(text)
    assert screen.getvalue() == "\r10 %\r   \r\ra\\rb"


def test_json_has_its_control_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with visible_output():
        print_json({"text": HOSTILE, "plain": "é"})
    printed = capsys.readouterr().out
    assert not CONTROL.search(printed.rstrip("\n"))
    assert json.loads(printed) == {"text": HOSTILE, "plain": "é"}


def test_every_console_of_the_commands_escapes_foreign_text() -> None:
    sources = {path: path.read_text() for path in (ROOT / "flows").rglob("*.py")}
    assert [
        path for path, text in sources.items() if re.search(r"(?<!\w)Console\(\w*[)=]", text)
    ] == []


@pytest.mark.long
def test_a_run_prints_no_control_characters_of_its_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hostile.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    script = "tests.support.terminal_escapes:speaks"
    for words in (
        ["config", "hostile.yaml"],
        ["prepare", "hostile.yaml"],
        ["prepare", "hostile.yaml", "--json"],
        ["play", "hostile.yaml", "--policy", script, "-n", "3"],
        ["play", "hostile.yaml", "--policy", script, "-n", "3", "--json"],
        ["play", "hostile.yaml", "--policy", script, "-n", "2", "--live"],
        [
            "play",
            "hostile.yaml",
            "--policy",
            "tests.support.terminal_escapes:breaks",
            "-n",
            "1",
            "--live",
        ],
        ["show", "play:hostile-1"],
        ["show", "play:hostile-1", "--json"],
        ["show", "play:hostile-1", "--against", "play:hostile-2"],
        ["show", f"play:{HOSTILE}"],
        ["list", "--filter", HOSTILE],
    ):
        main(words)
        out, err = capfd.readouterr()
        assert not CONTROL.search(out + err), words
        assert r"\x1b]0;title" in out + err or words[0] in ("config", "prepare"), words
        if words[-1] == "--json":
            assert out, (words, err)
            json.loads(out)
