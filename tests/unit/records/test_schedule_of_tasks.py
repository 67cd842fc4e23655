"""Which problems of each task a step plays."""

from itertools import chain

from agentfly_core.records.schedule import first_round, missing, next_round, rows_of_tasks
from tests.support.mixtures import science

SIZES = {"sums": 12, "shop": 6}


def rows(rules, sampling_round):
    """The rows of the sums, 0 to 11, and those of the shop, 12 to 17."""
    found = rows_of_tasks(rules, sampling_round, SIZES)
    return [row for row in found if row < 12], [row for row in found if row >= 12]


def test_each_step_plays_the_quota_of_each_task_and_a_pass_permutes_within_it():
    played = [rows(science(), first_round(science(), step, False)) for step in range(1, 13)]
    assert {(len(sums), len(shop)) for sums, shop in played} == {(2, 1)}
    sums = [*chain(*(found for found, _ in played))]
    shop = [*chain(*(found for _, found in played))]
    assert sorted(sums[:12]) == [*range(12)] == sorted(sums[12:])
    assert sums[:12] != sums[12:]
    assert sorted(shop[:6]) == [*range(12, 18)] == sorted(shop[6:])


def test_a_refill_draws_what_a_task_lacks_from_that_task():
    rules = science(rollout={"problems": 3, "group_size": 2, "shard": 4, "refills": 1})
    first = first_round(rules, 1, False)
    lacking = missing(rules, {"sums": 2})  # the one of the shop taught nothing
    assert lacking == {"sums": 0, "shop": 1}
    more = next_round(rules, first, lacking)
    (sums, shop), (no_sums, another) = rows(rules, first), rows(rules, more)
    assert (len(sums), len(shop), no_sums, len(another)) == (2, 1, [], 1)
    assert shop != another
    assert (more.first, more.count, more.shards) == (3, 1, range(2, 3))
