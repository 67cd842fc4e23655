"""The packages that a command imports."""

import subprocess
import sys
from pathlib import Path

from tests.support.project import ROOT

HEAVY = {
    *("aiohttp", "deepspeed", "fsspec", "griffe", "httpx", "mlflow", "numpy", "pandas"),
    *("prefect", "pyarrow", "scipy", "torch", "transformers", "vllm"),
}
PROGRAM = """
import atexit, sys
sys.path.insert(0, sys.argv.pop(1))
from flows.__main__ import main
atexit.register(lambda: print(*{name.partition(".")[0] for name in sys.modules}))
sys.exit(main())
"""


def loaded(folder: Path, *words: str) -> set[str]:
    """The top-level packages in a process after `agentfly WORDS` in a folder."""
    command = [sys.executable, "-c", PROGRAM, str(ROOT), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())
