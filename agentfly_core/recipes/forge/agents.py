"""The agent Forge, which solves problems with functions and proposes changes of the functions."""

from agentfly_core import Ending, Episode, Message, Speaker
from agentfly_core.agents.tool_loop import last_reply
from agentfly_core.recipes.forge.actions import SCHEMA, TERMINATE, applied, parsed
from agentfly_core.recipes.forge.function_sets import FUNCTIONS, Functions, tools_of
from agentfly_core.recipes.forge.state import State

SOLVE = "Answer the question with its value alone. Call a function if one helps.{functions}"
OPTIMIZE = f"""\
You improve the functions of an agent that answers questions. Each reply is one action as JSON of
this schema, or {TERMINATE}:
{SCHEMA}
The code is Python and defines the function. It runs without a network."""
NEXT = f"Done. Reply with the next action, or {TERMINATE}."


class Forge:
    """An agent that improves its own tools, which are Python functions.

    Each step of the run is either a proposal or a trial. In a proposal, the speaker `optimizer`
    changes the functions. In a trial, the speaker `solver` answers questions with the changed
    functions. The memory of the run stores the functions. The fact `role` of a problem determines
    the use of the problem:

    - `train` and `validation`: in a trial, the solver answers with the changed functions.
    - `test`: the solver answers with the best functions so far.
    - `optimize`: in a proposal, the optimizer makes at most `max_actions` changes. Each change has
      at most `trials` attempts. After `patience` rejected sets of functions in succession, the
      optimizer makes no more changes.

    All other episodes, such as those of `train` problems in a proposal, get the answer "" at once.
    """

    def __init__(self, max_actions: int = 3, trials: int = 3, patience: int = 5) -> None:
        self.max_actions, self.trials, self.patience = max_actions, trials, patience

    async def __call__(self, episode: Episode) -> Ending:
        state, role = State.read(episode.memory), episode.problem.facts["role"]
        proposing = state.trying is None and not state.finished
        if role == "optimize" and proposing:
            await self.propose(episode, state)
        elif role == "test":
            await solve(episode, state.best)
        elif role != "optimize" and state.trying is not None:
            await solve(episode, state.trying)
        else:  # the step does not use this problem
            episode.answer("")
        return Ending.NO_TOOL_CALLS

    async def propose(self, episode: Episode, state: State) -> None:
        """Let the speaker `optimizer` change the best functions so far.

        The answer of the episode is the changed set of functions as JSON. If nothing changes, the
        answer is TERMINATE.
        """
        changed = state.best
        if state.rejected < self.patience:
            optimizer = episode.speaker("optimizer", system=OPTIMIZE)
            text = request(state)
            for _ in range(self.max_actions):
                after = await self.action(optimizer, text, changed)
                if after is None:
                    break
                changed, text = after, NEXT
        unchanged = changed == state.best
        episode.answer(TERMINATE if unchanged else FUNCTIONS.dump_json(changed).decode())

    async def action(self, optimizer: Speaker, text: str, before: Functions) -> Functions | None:
        """Return the functions after the optimizer's next action.

        `before` has the functions before the action. The optimizer has `trials` attempts. Return
        None if no attempt is a valid action, or if the optimizer replies TERMINATE.
        """
        for _ in range(self.trials):
            reply = await optimizer.reply(Message("user", text))
            try:
                return await applied(parsed(reply.content), before)
            except ValueError as error:
                if TERMINATE in reply.content:
                    return None
                text = f"This action is refused: {error}"
        return None


async def solve(episode: Episode, functions: Functions) -> None:
    """Let the speaker `solver` answer the problem. The functions are its tools."""
    listed = "".join(f"\n- {one.name}: {one.description}" for one in functions)
    system = SOLVE.format(functions=listed)
    solver = episode.speaker("solver", system=system, tools=tools_of(functions))
    reply = await last_reply(solver, Message("user", episode.problem.prompt))
    episode.answer(reply.content.strip())


def request(state: State) -> str:
    """Write the first prompt of the speaker `optimizer`, which changes the functions.

    The prompt contains the best functions so far. For each training problem, it has the answer that
    the solver gave with these functions. The prompt also contains the functions of
    `State.failures`, the best rejected trials (tests of functions).
    """
    lines = ["Functions of the agent:", FUNCTIONS.dump_json(state.best).decode()]
    for trial in state.failures:
        rejected = FUNCTIONS.dump_json(trial.functions).decode()
        lines += [f"Rejected, {trial.train:.0%} of the training answers were right:", rejected]
    lines.append(f"Training answers after {len(state.trials)} trials:")
    for one in state.results:
        lines.append(f"{'right' if one.right else 'wrong'}: {one.problem} -> {one.answer}")
    return "\n".join(lines)
