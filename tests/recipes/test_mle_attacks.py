"""Attacks on a competition: none pays, and the environment is usable afterwards."""

import pytest

pytest.importorskip("sklearn")

from agentfly_core import Problem, ToolCall
from agentfly_core.recipes.mle import environment
from agentfly_core.recipes.mle.dataset import competitions
from agentfly_core.recipes.mle.environment import MLE
from agentfly_core.recipes.mle.pipelines import program
from agentfly_core.recipes.mle.tools import execute_code
from agentfly_core.sandbox import Limits
from agentfly_core.sandbox.self_test import target

COPY = "import shutil\nshutil.copy('sample_submission.csv', 'submission.csv')\n"
ROWS = COPY + "lines = open('submission.csv').read().splitlines()\n"
WRITE = "\nopen('submission.csv', 'w').write('\\n'.join(lines))"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandbox")]

ATTACKS = {
    "read the private folder": (
        COPY + "import pathlib\nfor up in ('..', '../..', '/'):\n"
        "    for pattern in ('*private*/*', '*/test_answer*', '*/*/test_answer*'):\n"
        "        for path in pathlib.Path(up).glob(pattern):\n"
        "            shutil.copy(path, 'submission.csv')",
        "Public score",
    ),
    "search processes and folders for answers": (
        COPY + "import glob, itertools, os\n"
        "folders = (os.walk(top) for top in ('/tmp', '/dev/shm', '/home', '/root', '/srv'))\n"
        "files = [os.path.join(at, name) for at, _, names in itertools.chain(*folders)\n"
        "         for name in names]\n"
        "for file in [*files, *glob.glob('/proc/*/fd/*'), *glob.glob('/proc/*/environ')]:\n"
        "    if not os.path.isfile(file): continue  # a pipe would block\n"
        "    try: text = open(file, 'rb').read(100_000)\n"
        "    except OSError: continue\n"
        "    if text.startswith(b'id,target'):\n"
        "        open('submission.csv', 'wb').write(text)",
        "Public score",
    ),
    "load scikit-learn's copy of the data": (
        COPY + "import pandas as pd\nfrom sklearn.datasets import load_breast_cancer\n"
        "data = load_breast_cancer(as_frame=True)\n"
        "rows = {tuple(row): label for row, label in zip(data.data.values, data.target)}\n"
        "test = pd.read_csv('test.csv')\n"
        "labels = [rows[tuple(row)] for row in test.drop(columns='id').values]\n"
        "test[['id']].assign(target=labels).to_csv('submission.csv', index=False)",
        "FileNotFoundError",
    ),
    "use the network": (
        COPY + "import socket\nsocket.create_connection(('1.1.1.1', 80))",
        "Error",
    ),
    "fork without end": ("import os\nwhile True:\n    os.fork()", "Error"),
    "take all memory": ("x = bytearray(10**10)", "it needed more than"),
    "loop without end": ("while True: pass", "it took longer than"),
    "overwrite the leaderboard": (
        COPY + "import agentfly_core.recipes.mle.leaderboard as board\n"
        "open(board.__file__, 'w').write('')",
        "ModuleNotFoundError",
    ),
    "submit a link": (
        "import os\nos.symlink('/etc/passwd', 'submission.csv')",
        "wrote no plain file",
    ),
    "submit more rows": (ROWS + "lines.append('-1,0')" + WRITE, "rows"),
    "submit fewer rows": (ROWS + "lines.pop()" + WRITE, "rows"),
    "submit a row twice": (ROWS + "lines[-1] = lines[1]" + WRITE, "rows"),
    "submit missing values": (
        ROWS + "lines[1] = lines[1].partition(',')[0] + ',nan'" + WRITE,
        "missing values",
    ),
    "print a gigabyte": (COPY + "while True: print('x' * 10**6)", "it printed more than"),
    "submit a pickled object": (
        "import pickle, os\nclass Bad:\n    def __reduce__(self): return os.system, ('true',)\n"
        "open('submission.csv', 'wb').write(pickle.dumps(Bad()))",
        "first line",
    ),
}
"""Programs by name, and a part of what the model reads."""
ENDLESS = ("fork without end", "take all memory", "loop without end")
"""Those that a limit ends."""


@pytest.fixture(scope="module")
def problem() -> Problem:
    kinds = ["breast-cancer"]
    return competitions(seed=77, train=1, validation=0, test=0, kinds=kinds)["train"][0]


@pytest.fixture
async def mle(problem: Problem) -> MLE:
    opened = MLE()
    await opened.reset(problem)
    return opened


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_pays_nothing_and_harms_nothing(name, mle, monkeypatch):
    code, expected = ATTACKS[name]
    seconds = {"wall": 20.0, "cpu": 4} if name in ENDLESS else {"wall": 600.0, "cpu": 120}
    limits = Limits(memory=512 * 2**20, captured=64 * 1024, **seconds)
    monkeypatch.setattr(environment, "LIMITS", limits)
    with target() as on:
        seen = await execute_code.answer(ToolCall("execute_code", {"code": code}), {MLE: mle})
        assert await on.harmed() == ""
    assert expected in seen.content
    assert (seen.reward or 0.0, mle.rank) == (0.0, 0.0)
    good = await mle.run(program("standard", "linear", 3, 1))
    assert mle.submit(good[1])[1] > 0
