"""Digests of the final weights of short trainings, to compare two commits.

    python -m benchmarks.weights weights.json
    python -m benchmarks.weights weights.json --compare benchmarks/results/weights-027efce2.json

The benchmark trains the quickstart with `model=nano`, the in-process sampler and one thread, so
every step always gives the same bytes. The file contains the sha256 of the name, dtype, shape and
bytes of each tensor of each final policy. With `--compare` the command ends with 1 if a policy
differs from the policy in the other file. It uses only commands and settings, and so also runs on
commits with other modules: start `/other/.venv/bin/python benchmarks/weights.py ...` in /other.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
from safetensors import safe_open

EXPERIMENT = Path("conf/quickstart.yaml").resolve()
ONE_THREAD = {
    "AGENTFLY_SAMPLER": "transformers",
    "AGENTFLY_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
}
SHORT = (
    "model=nano",
    "data.validation=0",
    "data.test=16",
    "warm_start.episodes=1024",
    "warm_start.batch=32",
)
SMALL = ("rollout.problems=16", "rollout.shard=32", "update.mini_batches=2")
TRAININGS = {
    "grpo": ("steps=3",),
    "ppo": ("steps=3", "algorithm=ppo", *SMALL),
    "dapo": ("steps=3", "algorithm=dapo", *SMALL),
    "gspo-adapter": ("steps=2", "algorithm=gspo", "adapter.rank=8", *SMALL),
}
"""The settings of each training, in addition to SHORT."""

Digests = dict[str, str]
"""The digest of each tensor by its name: `{"model.safetensors model.norm.weight": "9f2c..."}`."""


def main() -> int:
    """Train all runs, write the digests to the file, and compare them with an earlier file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="the JSON file to write")
    parser.add_argument("--compare", type=Path, help="the file of another commit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentfly-weights-") as folder:
        weights = {run: trained(run, Path(folder)) for run in TRAININGS}
    options.file.write_text(json.dumps(weights, indent=1, sort_keys=True) + "\n")
    if options.compare is None:
        return 0
    return compared(weights, json.loads(options.compare.read_text()))


def trained(run: str, folder: Path) -> Digests:
    """Train a run in a folder that all runs share, and return the digests of its last policy."""
    started = time.monotonic()
    agentfly(folder, "train", str(EXPERIMENT), *SHORT, *TRAININGS[run], "--run", run)
    agentfly(folder, "export", f"run:{run}", f"exported/{run}")
    if run == "dapo":
        require_refills(folder / "runs" / run / "ledger" / "ledger.parquet")
    digests = tensors(folder / "exported" / run)
    print(f"{run}: {len(digests)} tensors, {time.monotonic() - started:.0f} s", flush=True)
    return digests


def agentfly(folder: Path, *words: str) -> None:
    """Run a command of the AgentFly that is installed for this Python.

    Its output goes to stderr.
    """
    command = [str(Path(sys.executable).with_name("agentfly")), *words]
    env = {**os.environ, **ONE_THREAD}
    subprocess.run(command, cwd=folder, env=env, check=True, stdout=sys.stderr)


def require_refills(ledger: Path) -> None:
    """Check that a run has refilled a step, which means: played problems in place of unusable ones.

    Raises RuntimeError if the ledger does not have more problems than the three steps need.
    """
    if pq.read_metadata(ledger).num_rows <= 3 * 16:
        raise RuntimeError("No step of dapo was refilled; change its settings.")


def tensors(folder: Path) -> Digests:
    """Return the sha256 of each tensor in the safetensors files of a folder and its subfolders."""
    digests = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name)
                content = f"{name} {tensor.dtype} {tensor.shape} ".encode() + tensor.tobytes()
                digests[f"{path.relative_to(folder)} {name}"] = sha256(content).hexdigest()
    return digests


def compared(weights: Mapping[str, Digests], other: Mapping[str, Digests]) -> int:
    """Print for each policy whether it equals the policy of the other commit.

    Return 1 if a policy differs, else 0.
    """
    different = 0
    for run in sorted({*weights, *other}):
        tensors, others = weights.get(run, {}), other.get(run, {})
        unequal = [name for name in {*tensors, *others} if tensors.get(name) != others.get(name)]
        print(f"{run}: {f'{len(unequal)} tensors differ' if unequal else 'equal'}")
        different += bool(unequal)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
