"""An agent with a gate that a run may outlive."""

from pkgutil import resolve_name

from agentfly_core import Ending, Episode
from agentfly_core.agents.tool_loop import tool_loop


class GatedWhileFitting:
    """The `gate` for the policy that its `probe` was fitted to, else the model's own choice.

    A gate refuses other policies, and a run also plays the policy after its step.
    """

    reads_hidden_states = True

    def __init__(self, probe: str, gate: str = "agentfly_core.recipes.meco.agents:Gated") -> None:
        self.gate = resolve_name(gate)(probe)

    async def __call__(self, episode: Episode) -> Ending:
        probe = self.gate.probe
        states = await episode.hidden(probe.layers, *episode.opening)
        return await (self.gate if states.policy == probe.policy else tool_loop)(episode)
