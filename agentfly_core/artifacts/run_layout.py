"""Where the files and artifacts of a run lie in its store."""

from __future__ import annotations

from dataclasses import dataclass

from agentfly_core.artifacts.store import Artifact, Store


@dataclass(frozen=True, slots=True)
class StepLayout:
    """What a step leaves: `StepLayout("runs/demo/steps/000007").policy` is
    `runs/demo/steps/000007/policy`.
    """

    uri: str

    def rollout(self, shard: int) -> str:
        """The episodes of one shard."""
        return f"{self.uri}/rollout-{shard:03d}"

    @property
    def scored(self) -> str:
        """The scores of all its episodes; the manifest's inputs name the shards, see `rollouts`."""
        return f"{self.uri}/scored"

    @property
    def policy(self) -> str:
        """The policy that it published."""
        return f"{self.uri}/policy"

    @property
    def learner(self) -> str:
        """The learner state that goes with the policy."""
        return f"{self.uri}/learner"

    @property
    def metrics(self) -> str:
        """What it measured, a JSON file."""
        return f"{self.uri}/metrics.json"


@dataclass(frozen=True, slots=True)
class RunLayout:
    """Paths of a run: `RunLayout("demo").step(7).policy` is `runs/demo/steps/000007/policy`."""

    name: str

    @property
    def uri(self) -> str:
        """The run's folder."""
        return f"runs/{self.name}"

    @property
    def record(self) -> str:
        """How the run was started: run.json."""
        return f"{self.uri}/run.json"

    @property
    def start(self) -> str:
        """Which policy step 1 starts from: start.json."""
        return f"{self.uri}/start.json"

    @property
    def links(self) -> str:
        """The run's ids in other systems: links.json."""
        return f"{self.uri}/links.json"

    @property
    def summary(self) -> str:
        """How a finished run ended: summary.json."""
        return f"{self.uri}/summary.json"

    @property
    def ledger(self) -> str:
        """The ledger of a finished run."""
        return f"{self.uri}/ledger"

    def step(self, number: int) -> StepLayout:
        """Where the outputs of step 1, 2, ... lie."""
        return StepLayout(f"{self.uri}/steps/{number:06d}")

    def steps(self, store: Store) -> list[int]:
        """The steps that have begun, in order."""
        return [int(name) for name in store.names(f"{self.uri}/steps") if name.isdigit()]


def rollouts(store: Store, scored: Artifact) -> list[Artifact]:
    """The rollouts, in order, whose episodes `scored` holds the scores of; they lie beside it."""
    manifest = store.manifest(scored.uri)
    assert manifest is not None, f"nothing is published under {scored.uri}"
    folder = scored.uri.rpartition("/")[0]
    shards = sorted(manifest["inputs"].items())
    return [Artifact(f"{folder}/{name}", digest) for name, digest in shards]
