"""From trajectories to tensors, and the one shift."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.records.trajectory import Sampled
from agentfly_core.rl.batch import micro_batches, pack, predictors, token_logprobs
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.policy import PIECES, load_policy
from tests.support.generated_trajectories import crowd

ASKS = turn([1, 2], {3: -0.5, 4: -0.25})
ANSWERS = turn([5], {6: -1.0}, {7: -2.0})


def test_tool_answers_are_in_the_row_and_out_of_the_loss():
    batch = pack([trajectory(ASKS, ANSWERS), trajectory(turn([1], {9: -3.0}))])
    #                                 given  sampled    tool  two spans   | given sampled  padding
    assert batch.tokens.tolist() == [[1, 2, 3, 4, 5, 6, 7], [1, 9, 0, 0, 0, 0, 0]]
    assert batch.sampled.int().tolist() == [[0, 0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 0, 0, 0]]
    assert batch.rollout_logprobs.tolist() == [
        [0, 0, -0.5, -0.25, 0, -1, -2],
        [0, -3, 0, 0, 0, 0, 0],
    ]
    assert batch.turn.tolist() == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]]
    assert (batch.lengths.tolist(), batch.trajectory.tolist()) == ([7, 2], [0, 1])


def test_an_unsampled_end_of_turn_is_not_trained():
    cut = turn([1, 2], {3: -0.5})
    batch = pack([trajectory(cut, turn([0, 5], {6: -1.0}))])
    assert batch.tokens.tolist() == [[1, 2, 3, 0, 5, 6]]
    assert batch.sampled.int().tolist() == [[0, 0, 1, 0, 0, 1]]


def test_a_fresh_context_is_a_row_of_the_same_trajectory():
    batch = pack([trajectory(ASKS, turn([1, 8], {6: -1.0}, context=1)), trajectory(ASKS)])
    assert batch.tokens.tolist() == [[1, 2, 3, 4], [1, 8, 6, 0], [1, 2, 3, 4]]
    assert batch.turn.tolist() == [[0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert batch.trajectory.tolist() == [0, 0, 1]


def test_two_contexts_in_turn_make_two_rows():
    taking_turns = trajectory(
        turn([1], {2: -1.0}),
        turn([3], {4: -1.0}, context=1),
        turn([5], {6: -1.0}),
        turn([7], {8: -1.0}, context=1),
    )
    batch = pack([taking_turns])
    assert batch.tokens.tolist() == [[1, 2, 5, 6], [3, 4, 7, 8]]
    assert batch.turn.tolist() == [[0, 0, 2, 2], [1, 1, 3, 3]]
    assert batch.trajectory.tolist() == [0, 0]


GREEDY = turn([5], {6: -1.0}, {7: -2.0}, temperature=0.0)


def test_a_greedy_reply_is_read_and_not_trained():
    batch = pack([trajectory(ASKS, GREEDY, turn([8], {9: -3.0}))])
    #                                  given  sampled    greedy   | given sampled
    assert batch.tokens.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9]]
    assert batch.sampled.int().tolist() == [[0, 0, 1, 1, 0, 0, 0, 0, 1]]
    assert batch.rollout_logprobs.tolist() == [[0, 0, -0.5, -0.25, 0, 0, 0, 0, -3]]


def test_an_untrained_span_is_read_and_not_trained():
    thought, forced, rest = (
        Sampled((57,), (-0.1,), 0, "length"),
        Sampled((9, 8), (0.0, 0.0), 0, "length", trained=False),
        Sampled((12, 2), (-0.2, -0.3), 0, "stop"),
    )
    one = dataclasses.replace(turn([1, 87]), sampled=(thought, forced, rest))
    batch = pack([trajectory(one)])
    assert batch.tokens.tolist() == [[1, 87, 57, 9, 8, 12, 2]]
    assert batch.sampled.int().tolist() == [[0, 0, 1, 0, 0, 1, 1]]
    assert batch.rollout_logprobs[0].tolist() == pytest.approx([0, 0, -0.1, 0, 0, -0.2, -0.3])


def test_a_context_of_greedy_replies_has_no_row():
    other = dataclasses.replace(GREEDY, context=1)
    assert pack([trajectory(ASKS, other), trajectory(GREEDY)]).tokens.tolist() == [[1, 2, 3, 4]]


def test_of_a_demonstration_greedy_replies_are_learned_too():
    assert pack([trajectory(GREEDY, role="demonstration")]).sampled.int().tolist() == [[0, 1, 1]]


def test_each_token_has_the_temperature_of_its_reply():
    cool = turn([5], {6: -1.0}, temperature=0.5)
    batch = pack([trajectory(ASKS, GREEDY, cool), trajectory(ASKS)], temperature=0.75)
    assert batch.temperature.tolist() == [
        [1, 1, 0.75, 0.75, 1, 1, 1, 1, 0.5],
        [1, 1, 0.75, 0.75, 1, 1, 1, 1, 1],
    ]


def test_replies_of_other_policies_have_no_row():
    foreign = dataclasses.replace(trajectory(ASKS), policy="runs/base/steps/000040")
    assert pack([foreign, trajectory(ASKS)]).trajectory.tolist() == [1]


def test_a_trajectory_in_which_nothing_was_sampled_has_no_row():
    batch = pack([trajectory(), trajectory(turn([1, 2])), trajectory(ASKS)])
    assert batch.trajectory.tolist() == [2]
    assert pack([]).tokens.shape == (0, 0)


def test_a_row_that_begins_with_a_sampled_token_is_refused():
    with pytest.raises(ValueError, match=r"t7 .*sampled token"):
        pack([trajectory(turn([], {3: -0.5}), name="t7")])


def test_selected_rows_are_as_wide_as_the_longest_of_them():
    batch = pack([trajectory(ASKS, ANSWERS), trajectory(turn([1], {9: -3.0})), trajectory(ASKS)])
    chosen = batch.select(torch.tensor([2, 1]))
    assert chosen.tokens.tolist() == [[1, 2, 3, 4], [1, 9, 0, 0]]
    assert chosen.trajectory.tolist() == [2, 1]


def test_only_predictions_of_sampled_tokens_get_a_gradient():
    batch = pack([trajectory(ASKS, ANSWERS)])
    logits = torch.zeros(1, 7, 10, requires_grad=True)
    logprobs, _ = token_logprobs(
        logits[predictors(batch.sampled)], batch.tokens[batch.sampled], 1.0
    )
    logprobs.sum().backward()
    #                                                token 0  1  2  3  4  5  6
    assert logits.grad[0].abs().sum(-1).ne(0).int().tolist() == [0, 1, 1, 0, 1, 1, 0]
    assert logits.grad[0, 1].argmax() == 3, "the output at token 1 is drawn to token 2, which is 3"


def test_each_token_may_have_its_own_temperature():
    logits = torch.tensor([[0.0, 2.0 * torch.tensor(3.0).log()]]).repeat(2, 1)
    logprobs, entropy = token_logprobs(logits, torch.tensor([1, 1]), torch.tensor([2.0, 1.0]))
    assert logprobs.exp().tolist() == pytest.approx([0.75, 0.9]), "odds 1 to 3, and 1 to 9"
    for place, temperature in enumerate((2.0, 1.0)):
        alone = token_logprobs(logits[:1], torch.tensor([1]), temperature)
        assert (logprobs[place], entropy[place]) == alone


def test_log_probabilities_and_entropy_use_the_temperature():
    logits = torch.tensor(
        [[0.0, 2.0 * torch.tensor(3.0).log()]], requires_grad=True
    )  # at temperature 2: odds 1 to 3
    logprobs, entropy = token_logprobs(logits, torch.tensor([1]), 2.0)
    assert logprobs.exp().item() == pytest.approx(0.75)
    assert entropy.item() == pytest.approx(
        -(0.75 * torch.tensor(0.75).log() + 0.25 * torch.tensor(0.25).log())
    )
    assert logprobs.requires_grad and not entropy.requires_grad, (
        "no algorithm learns from the entropy itself"
    )


@torch.no_grad()
def test_column_t_is_the_log_probability_of_token_t(nano):
    policy = load_policy(str(nano), "float32")
    batch = pack(crowd(2, 2))
    logprobs, *_ = policy(batch.tokens, batch.sampled, 0.7)
    for row, column in batch.sampled.nonzero().tolist():
        last = policy.model.model(input_ids=batch.tokens[row : row + 1, :column]).last_hidden_state[
            0, -1
        ]
        alone = torch.log_softmax(policy.model.lm_head.weight @ last / 0.7, -1)[
            batch.tokens[row, column]
        ]
        torch.testing.assert_close(logprobs[row, column], alone, atol=1e-5, rtol=0)
    assert logprobs[~batch.sampled].eq(0).all()


@torch.no_grad()
def test_many_sampled_tokens_are_projected_piece_by_piece(nano, monkeypatch):
    policy = load_policy(str(nano), "float32")
    batch = pack(crowd(2, 2))
    whole = policy(batch.tokens, batch.sampled, 1.0)
    monkeypatch.setitem(PIECES, "cpu", 3)
    torch.testing.assert_close(policy(batch.tokens, batch.sampled, 1.0), whole)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40),
    budget=st.integers(1, 200),
    ranks=st.integers(1, 5),
)
def test_every_row_is_in_one_micro_batch_of_balanced_ranks(lengths, budget, ranks):
    problems_of = micro_batches(torch.tensor(lengths), budget, ranks)
    assert sorted(row for share in problems_of for rows in share for row in rows.tolist()) == list(
        range(len(lengths))
    )
    assert len({len(share) for share in problems_of}) == 1
    for rows in (rows.tolist() for share in problems_of for rows in share):
        assert len(rows) <= 1 or len(rows) * max(lengths[row] for row in rows) <= budget


def test_a_batch_moves_as_a_whole():
    batch = pack([trajectory(ASKS)])
    moved = batch.to("cpu")
    assert {f.name: getattr(moved, f.name).tolist() for f in dataclasses.fields(batch)} == {
        f.name: getattr(batch, f.name).tolist() for f in dataclasses.fields(batch)
    }


@pytest.mark.parametrize(("piece", "pieces", "again"), [(3, [3, 3, 1], [3, 3, 1]), (7, [7], [])])
def test_only_sampled_tokens_are_projected(piece, pieces, again, nano, monkeypatch):
    monkeypatch.setitem(PIECES, "cpu", piece)
    policy, projected = load_policy(str(nano), "float32"), []

    def linear(hidden, *layer):
        projected.append(len(hidden))
        return torch.nn.functional.linear(hidden, *layer)

    monkeypatch.setattr("agentfly_core.training.policy.linear", linear)
    batch = pack(
        [trajectory(ASKS, ANSWERS), trajectory(turn([1, 2, 8], {3: -1.0, 4: -1.0, 5: -1.0}))]
    )
    assert (batch.lengths.tolist(), int(batch.sampled.sum())) == ([7, 6], 7)
    logprobs, *_ = policy(batch.tokens, batch.sampled, 1.0)
    assert projected == pieces
    logprobs.sum().backward()
    assert sorted(projected[len(pieces) :]) == sorted(again)
