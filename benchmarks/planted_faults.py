"""Do the tests notice faults? Each fault is planted in a copy of the repository, where a test must
fail.

    python -m benchmarks.planted_faults [NAME ...]

A fault replaces one text in a module. Then the tests of the module's package run. The command
prints the first failing test and the first line of its error. With names, only these faults are
planted. The command ends with 1 if a fault is not noticed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import harness

ROOT = Path(__file__).resolve().parents[1]
CORE = Path("agentfly_core")


@dataclass(frozen=True)
class Fault:
    """A fault that is planted in a module of agentfly_core: the text `before` is replaced by
    `after`.

    One of the tests in the folder or file `tests` must fail then. An example is `Fault("clip takes
    the smaller loss", "rl/policy_loss.py", "torch.maximum(", "torch.minimum(", "unit/rl")`.
    """

    name: str
    module: str
    before: str
    after: str
    tests: str


FAULTS = (
    Fault(
        "a checksum is not compared",
        "system/formats/checksummed_json.py",
        'if fields.get("checksum") != digest(unsealed):',
        "if False:",
        "unit/system/formats",
    ),
    Fault(
        "a process with a reused id counts as alive",
        "system/process.py",
        'return state not in "ZX" and ticks == started',
        'return state not in "ZX"',
        "unit/system",
    ),
    Fault(
        "a run does not wait for its device",
        "system/devices.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "unit/system",
    ),
    Fault(
        "a secret's value is stored",
        "config/credentials.py",
        "if isinstance(value, str) and redact(text) != text:",
        "if False:",
        "unit/config",
    ),
    Fault(
        "dynamic sampling plays the same problems again",
        "records/problem_schedule.py",
        "range(stops[name], stops[name] + missing[name])",
        "range(missing[name])",
        "unit/records",
    ),
    Fault(
        "a zero stands for a missing reward",
        "records/ledger.py",
        "mean = sum(fmean(one.values()) for one in scored) / len(scored) if scored else None",
        "mean = sum(fmean(one.values()) for one in scored) / max(len(scored), 1)",
        "unit/records",
    ),
    Fault(
        "a sum of rewards that is not finite counts",
        "authoring/scoring.py",
        "if all(map(is_usable, (total, *by_turn))):",
        "if True:",
        "unit/authoring/test_reward.py",
    ),
    Fault(
        "a late answer counts",
        "authoring/time_limits.py",
        "        call.require_time()\n        return _giving(result)",
        "        return _giving(result)",
        "unit/authoring",
    ),
    Fault(
        "each call has an event loop of its own",
        "authoring/event_loop.py",
        "if not _loops:",
        "if True:",
        "unit/authoring",
    ),
    Fault(
        "a prompt that leaves no room is played",
        "rollout/speaker.py",
        "raise self.rules.too_long(prompt, tokens, self.name == self.state.main)",
        "raise EpisodeOver(Ending.MAX_TURNS)",
        "unit/rollout",
    ),
    Fault(
        "an environment whose lease ended badly is lent again",
        "rollout/pool.py",
        "            well = True\n        finally:",
        "        finally:\n            well = True",
        "unit/rollout",
    ),
    Fault(
        "future values are not discounted",
        "rl/gae.py",
        "rewards[:, t] + gamma * value - values[:, t]",
        "rewards[:, t] + value - values[:, t]",
        "unit/rl",
    ),
    Fault(
        "the clipped loss takes the smaller side",
        "rl/policy_loss.py",
        "loss = torch.maximum(free, -estimate * rho.clamp(1.0 - self.low",
        "loss = torch.minimum(free, -estimate * rho.clamp(1.0 - self.low",
        "unit/rl",
    ),
    Fault(
        "all tokens of long trajectories count the same",
        "rl/aggregation.py",
        "return batch.sampled / (count * tokens.clamp(min=1))",
        "return batch.sampled / batch.sampled.sum().clamp(min=1)",
        "unit/rl",
    ),
    Fault(
        "a row of a tree attends to its neighbours",
        "training/prefix_tree.py",
        "(node.unsqueeze(1) < self.ends.unsqueeze(1))",
        "(node.unsqueeze(1) < self.ends.unsqueeze(1) + len(node))",
        "unit/training",
    ),
    Fault(
        "every epoch has the same order",
        "training/data.py",
        "hashing.seed(job.seed, epoch)",
        "hashing.seed(job.seed, 0)",
        "unit/training",
    ),
    Fault(
        "all replies are drawn by one seed",
        "inference/in_process.py",
        "torch.Generator().manual_seed(request.conversation.seed)",
        "torch.Generator().manual_seed(0)",
        "unit/inference",
    ),
    Fault(
        "an artifact under another key is taken",
        "store/store.py",
        "if artifact is None or artifact.key.key != target.key:",
        "if artifact is None:",
        "unit/store",
    ),
    Fault(
        "two processes hold one run",
        "store/lock.py",
        "        return False\n    return True",
        "        return True\n    return True",
        "unit/store",
    ),
    Fault(
        "a finished run ignores other settings",
        "experiment/continuing.py",
        "if fixed := [change for change in changes if not change.resumable]:",
        "if fixed := []:",
        "unit/runs",
    ),
    Fault(
        "a policy diverges without end",
        "pipeline/stop_conditions.py",
        "if skipped >= SKIPPED_IN_A_ROW:",
        "if skipped > 10 * SKIPPED_IN_A_ROW:",
        "unit/pipeline",
    ),
    Fault(
        "a datagram socket pair leaves the sandbox",
        "sandbox/guest/seccomp.py",
        "_step(_EQUAL, _SOCK_SEQPACKET, 1, 0)",
        "_step(_AT_LEAST, 0, 1, 0)",
        "integration/services/test_sandbox.py",
    ),
    Fault(
        "a grader that a program broke gives no reward",
        "rewards/code_tests.py",
        "    except Exception:  # an unreadable result is wrong\n        return False\n",
        "    except KeyError:\n        return False\n",
        "unit/rewards",
    ),
    Fault(
        "added tokens in a text are obeyed",
        "inference/templates/text_encoder.py",
        'text.encode("utf-8", "replace").decode()',
        'self.mark(text).encode("utf-8", "replace").decode()',
        "unit/inference/templates",
    ),
    Fault(
        "a step of the clock ends a lease",
        "store/lease.py",
        "    now: Callable[[], float] = time.monotonic",
        "    now: Callable[[], float] = time.time",
        "unit/store",
    ),
    Fault(
        "a cut lock file blocks its run for good",
        "store/lock.py",
        "    except ValueError as fault:\n        logger.warning(",
        "    except KeyError as fault:\n        logger.warning(",
        "unit/store",
    ),
    Fault(
        "an error that cannot say its text ends the stage",
        "system/formats/text.py",
        "        return say(value)\n    except Exception as error:",
        "        return say(value)\n    except KeyError as error:",
        "unit/system/formats",
    ),
    Fault(
        "run:NAME@STEP is taken for a name",
        "config/reference.py",
        "RunPolicy(parts[1], int(parts[2])) if parts[2] else LastPolicy(parts[1])",
        "LastPolicy(parts[1])",
        "unit/config",
    ),
    Fault(
        "the best policy is chosen over other data",
        "runs/tracking/mlflow_client.py",
        "[v for v in versions if v.tags[DATASET] == last.tags[DATASET]]",
        "versions",
        "integration/services/test_mlflow.py",
    ),
)


def main() -> int:
    """Plant the named faults, or all faults. Return 1 if the tests do not notice a fault."""
    parser = harness.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all faults")
    names = parser.parse_args().names
    if unknown := set(names) - {fault.name for fault in FAULTS}:
        raise SystemExit(
            f"There is no fault {unknown.pop()!r}. Known faults:\n"
            + "\n".join(one.name for one in FAULTS)
        )
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    table = Table("module", "fault", "noticed by")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder, "copy")
        copied(copy)
        for fault in track(faults, "planting", console=Console(stderr=True)):
            noticed = planted(copy, fault)
            missed += not noticed
            table.add_row(fault.module, fault.name, noticed or "[bold]nothing[/bold]")
    Console().print(table)
    return min(missed, 1)


def copied(copy: Path) -> None:
    """Copy all files of this repository that git tracks to the folder `copy`."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    for name in listed.splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name, follow_symlinks=False)


def planted(copy: Path, fault: Fault) -> str:
    """Plant a fault in the copy, run the tests, and restore the module.

    Return the failing test and its error, or "" if all tests pass.
    """
    path = copy / CORE / fault.module
    sound = path.read_text()
    if sound.count(fault.before) != 1:
        raise SystemExit(
            f"{path} has {fault.before!r} {sound.count(fault.before)} times, expected once."
        )
    path.write_text(sound.replace(fault.before, fault.after))
    try:
        return failure(copy, fault.tests)
    finally:
        path.write_text(sound)


def failure(copy: Path, tests: str) -> str:
    """Run tests until one fails. Return the test and the first line of its error.

    Return "" if all tests pass.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", f"tests/{tests}"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if ended.returncode == 0:
        return ""
    lines = ended.stdout.splitlines()
    failures = _first(lines, "FAILED ", "ERROR ") + _first(lines, "E  ")
    return "\n".join(failures) or f"pytest, which ended with exit code {ended.returncode}"


def _first(lines: Sequence[str], *beginnings: str) -> list[str]:
    return [line for line in lines if line.startswith(beginnings)][:1]


if __name__ == "__main__":
    sys.exit(main())
