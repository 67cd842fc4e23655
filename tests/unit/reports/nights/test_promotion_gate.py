"""A night's policy becomes champion only if it gains in the goal and passes all guards."""

import pytest

from agentfly_core.config.loading import read
from agentfly_core.config.promotion import GuardDataset, Promotion
from agentfly_core.reports.nights.held_out import HeldOut
from agentfly_core.reports.nights.promotion_gate import Verdict, compare_goal, judge, with_failures
from benchmarks.nights import STARTS, Found, Gate, champions, faults, gains, main, promotions

DEFAULT = Promotion()


def held(
    solved: int,
    tokens: float = 30.0,
    unreadable: float = 0.0,
    reward: float = 1.0,
    count: int = 1000,
    dataset: str = "77b0",
) -> HeldOut:
    """Outcomes of a policy that solves the first `solved` problems."""
    return HeldOut(
        dataset,
        {
            f"p{number:04d}": {
                "goal": float(number < solved),
                "reward/exact": float(number < solved),
                "reward/polite": reward,
                "tokens": tokens + number % 3,
                "unreadable_calls": unreadable,
            }
            for number in range(count)
        },
    )


def failed(verdict: Verdict) -> list[str]:
    return [one.name for one in verdict.comparisons if not one.held]


def test_a_better_policy_that_passes_the_guards_is_promoted() -> None:
    verdict = judge(held(850), held(900), DEFAULT)
    assert verdict.promoted
    assert [one.name for one in verdict.comparisons] == [
        "goal",
        "reward/exact",
        "reward/polite",
        "tokens",
        "unreadable_calls",
        "unscored",
    ]
    assert verdict.why == (
        "Better: goal 0.9 (champion 0.85) on 1,000 problems, difference +0.050, lower bound +0.037 "
        "(must be above 0); no guard is violated."
    )


def mixed(sums: int, wishes: int, count: int = 500) -> HeldOut:
    """Outcomes of a policy that solves these numbers of 500 sums and 500 wishes."""
    by_problem = {}
    for task, solved, reward in (("sums", sums, "exact"), ("shop", wishes, "bought")):
        for number in range(count):
            reached = float(number < solved)
            outcome = {"goal": reached, f"task/{task}": reached, f"reward/{reward}": reached}
            by_problem[f"{task}/{number}"] = {**outcome, "tokens": 30.0, "unreadable_calls": 0.0}
    return HeldOut("77b0", by_problem)


def test_each_task_of_a_mixture_has_its_own_guards() -> None:
    verdict = judge(mixed(250, 250), mixed(300, 250), DEFAULT)
    assert verdict.promoted
    assert {one.name: one.problems for one in verdict.comparisons} == {
        "goal": 1000,
        "reward/bought": 500,
        "reward/exact": 500,
        "task/shop": 500,
        "task/sums": 500,
        "tokens": 1000,
        "unreadable_calls": 1000,
        "unscored": 1000,
    }


def test_a_policy_that_loses_in_one_task_is_not_promoted() -> None:
    verdict = judge(mixed(250, 250), mixed(450, 200), Promotion(rewards=None))
    assert failed(verdict) == ["task/shop"]
    assert judge(mixed(250, 250), mixed(450, 200), Promotion(rewards=None, tasks=0.2)).promoted
    assert judge(mixed(250, 250), mixed(450, 200), Promotion(rewards=None, tasks=None)).promoted


def test_a_task_of_one_problem_cannot_be_guarded() -> None:
    with pytest.raises(ValueError, match=r"measured on 1 of \d+ held-out problems, .* two"):
        judge(mixed(0, 0, 1), mixed(1, 1, 1), Promotion(rewards=None))


def test_a_policy_is_not_better_than_itself() -> None:
    verdict = judge(held(850), held(850), DEFAULT)
    assert failed(verdict) == ["goal"]
    assert verdict.why.startswith(
        "Not promoted: goal 0.85 (champion 0.85) on 1,000 problems, difference +0.000, lower bound "
        "-0.004"
    )


def test_a_gain_of_three_problems_in_a_thousand_is_chance() -> None:
    assert failed(judge(held(850), held(853), DEFAULT)) == ["goal"]


@pytest.mark.parametrize(
    ("challenger", "guard"),
    [
        (held(900, tokens=40.0), "tokens"),
        (held(900, unreadable=0.06), "unreadable_calls"),
        (held(900, reward=0.9), "reward/polite"),
    ],
    ids=["tokens", "calls", "reward"],
)
def test_a_better_policy_that_fails_a_guard_is_not_promoted(
    challenger: HeldOut, guard: str
) -> None:
    verdict = judge(held(850), challenger, DEFAULT)
    assert failed(verdict) == [guard]
    assert guard in verdict.why


def test_fewer_tokens_and_unreadable_calls_pass_the_guards() -> None:
    before, after = held(850, tokens=60.0, unreadable=0.5), held(900, tokens=20.0)
    assert judge(before, after, DEFAULT).promoted


def test_a_guard_may_be_removed_and_a_reward_have_a_margin() -> None:
    long, rude = held(900, tokens=90.0), held(900, reward=0.9)
    assert judge(held(850), long, Promotion(tokens=None)).promoted
    assert judge(held(850), rude, Promotion(reward_margins={"polite": 0.2})).promoted
    assert judge(held(850), rude, Promotion(reward_margins={"polite": None})).promoted
    strict = Promotion(rewards=None, reward_margins={"polite": 0.01})
    assert failed(judge(held(850), rude, strict)) == ["reward/polite"]


def with_part(held: HeldOut, value: float, but: str = "") -> HeldOut:
    """The same outcomes, with one part of a reward on all problems except one."""
    return HeldOut(
        held.dataset,
        {
            name: {**outcome, "reward/exact/tag": value} if name != but else outcome
            for name, outcome in held.by_problem.items()
        },
    )


def test_a_part_of_a_reward_on_every_problem_is_a_guard() -> None:
    before, after = with_part(held(850), 1.0), with_part(held(900), 0.9)
    assert failed(judge(before, after, DEFAULT)) == ["reward/exact/tag"]
    assert judge(before, after, Promotion(reward_margins={"exact/tag": 0.2})).promoted
    assert judge(before, after, Promotion(reward_margins={"exact/tag": None})).promoted
    assert judge(before, after, Promotion(rewards=None)).promoted


def test_a_part_of_a_reward_missing_on_a_problem_is_no_guard() -> None:
    before, after = with_part(held(850), 1.0), with_part(held(900), 0.9, but="p0003")
    verdict = judge(before, after, DEFAULT)
    assert verdict.promoted
    assert "reward/exact/tag" not in [one.name for one in verdict.comparisons]


def test_success_on_a_guard_dataset_must_not_fall() -> None:
    settings = Promotion(datasets={"hard": GuardDataset(use="my:hard", test=1000)})
    before = held(400, dataset="5f0e")
    kept, lost = held(395, dataset="5f0e"), held(340, dataset="5f0e")
    assert judge(held(850), held(900), settings, {"hard": (before, kept)}).promoted
    verdict = judge(held(850), held(900), settings, {"hard": (before, lost)})
    assert failed(verdict) == ["dataset/hard"]


def test_outcomes_on_other_data_are_never_compared() -> None:
    with pytest.raises(ValueError, match=r"dataset 77b0, .*challenger on 1000 problems of 5f0e"):
        judge(held(850), held(900, dataset="5f0e"), DEFAULT)


def test_outcomes_of_other_problems_are_never_compared() -> None:
    with pytest.raises(ValueError, match=r"dataset 77b0, .*challenger on 999"):
        judge(held(850), held(900, count=999), DEFAULT)


def test_only_problems_that_the_champion_lacks_are_left_out() -> None:
    before, after = held(850), held(900)
    champion = HeldOut("77b0", {**before.by_problem, "p0000": {}})
    challenger = HeldOut("77b0", {**after.by_problem, "p0001": {}, "p0950": {}})
    goal, exact, *_ = judge(champion, challenger, DEFAULT).comparisons
    assert goal.problems == 999
    assert (goal.champion, goal.challenger) == (849 / 999, 898 / 999)
    assert (exact.problems, exact.challenger) == (999, 898 / 999)


def test_an_unscored_episode_counts_as_failed_in_the_gate() -> None:
    before = HeldOut("77b0", {f"p{n}": {"goal": 0.5, "reward/cost": -2.0} for n in range(4)})
    half = {"goal": 1.0, "reward/cost": -1.0, "unscored": 0.5}
    after = HeldOut("77b0", {**before.by_problem, "p0": half, "p1": {}})
    assert dict(with_failures(after, before).by_problem) == {
        "p0": {"goal": 0.5, "reward/cost": -1.5, "unscored": 0.5},
        "p1": {"goal": 0.0, "reward/cost": -2.0, "unscored": 1.0},
        "p2": {"goal": 0.5, "reward/cost": -2.0, "unscored": 0.0},
        "p3": {"goal": 0.5, "reward/cost": -2.0, "unscored": 0.0},
    }


def test_failures_that_stay_unscored_are_no_gain() -> None:
    """Of 150 failures 45 are unscored: 850 of 955 scored episodes are 0.89."""
    before = held(850)
    after = HeldOut("77b0", before.by_problem | {f"p{n:04d}": {} for n in range(850, 895)})
    verdict = judge(before, after, Promotion(unscored=None))
    assert failed(verdict) == ["goal"]
    assert verdict.comparisons[0].challenger == 0.85


def test_a_policy_with_more_unscored_episodes_is_not_promoted() -> None:
    after = held(950)
    lost = HeldOut("77b0", after.by_problem | {f"p{n:04d}": {} for n in range(950, 1000)})
    assert failed(judge(held(850), lost, DEFAULT)) == ["unscored"]
    assert judge(held(850), lost, Promotion(unscored=0.1)).promoted


def test_unscored_episodes_alone_make_no_policy_worse() -> None:
    before = held(850)
    lost = HeldOut("77b0", before.by_problem | {f"p{n:04d}": {} for n in range(0, 1000, 20)})
    assert not judge(before, lost, DEFAULT).worse


def test_without_scores_no_policy_is_judged() -> None:
    empty = HeldOut("77b0", {problem: {} for problem in held(850).by_problem})
    with pytest.raises(ValueError, match="on 0 of 1000 problems"):
        judge(held(850), empty, DEFAULT)


def test_a_margin_of_a_missing_reward_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 'polit', expected .* exact, polite"):
        judge(held(850), held(900), Promotion(reward_margins={"polit": 0.1}))


def test_a_win_without_confirmation_is_not_a_promotion() -> None:
    verdict = judge(held(850), held(900), DEFAULT)
    lost = verdict.confirmed(compare_goal(held(850), held(849), "confirmation", 0.05))
    assert not lost.promoted and "Not promoted: confirmation 0.849 (champion 0.85)" in lost.why
    won = verdict.confirmed(compare_goal(held(850), held(890), "confirmation", 0.05))
    assert won.promoted and "confirmation 0.89 (champion 0.85)" in won.why


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate(read("quickstart").settings, seed=1, fresh=1531)


def test_at_most_two_of_forty_equal_policies_are_promoted(gate: Gate) -> None:
    assert promotions([*champions(gate, 0.85, 0.0, 0.0, nights=40)]) <= 2


def test_unscored_failures_do_not_promote_an_equal_policy(gate: Gate) -> None:
    """30 % of the failures are unscored, and the unscored share has no guard."""
    settings = read("quickstart", ["promotion.unscored=null"]).settings
    unguarded = Gate(settings, gate.seed, gate.fresh)
    assert gains(unguarded, 0.85, gain=0.0, nights=30, silent=0.3) <= 1


def test_four_of_five_true_gains_are_promoted(gate: Gate) -> None:
    assert gains(gate, 0.75, nights=40) >= 32


@pytest.mark.long
def test_two_hundred_nights_reach_the_benchmarks_rates(gate: Gate) -> None:
    rates = Found.by(gate)
    assert faults([rates]) == []
    assert max(rates.equal, rates.silent, rates.fall) <= 0.05
    assert min(rates.power.values()) >= 0.8


@pytest.mark.parametrize(
    ("rates", "fault"),
    [
        (Found(0.06, 0.0, dict.fromkeys(STARTS, 0.9), ""), "6.0% of equal policies promoted"),
        (Found(0.0, 0.0, dict.fromkeys(STARTS, 0.9), "", 0.06), "6.0% with unscored failures"),
        (Found(0.0, 0.06, dict.fromkeys(STARTS, 0.9), ""), "the champion fell by 0.060"),
        (Found(0.0, 0.0, {0.6: 0.7, 0.75: 0.9, 0.9: 1.0}, ""), "70% of gains from 0.6 promoted"),
    ],
    ids=["errors", "unscored", "falls", "power"],
)
def test_a_benchmark_that_misses_its_rates_gives_the_reason(rates: Found, fault: str) -> None:
    good = Found(0.0, 0.0, dict.fromkeys(STARTS, 0.9), "")
    assert faults([good]) == []
    (fault_line,) = faults([rates])
    assert fault_line.startswith(fault)


def test_the_exit_status_of_the_benchmark_is_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    for equal, status in ((0.01, False), (0.06, True)):
        rates = Found(equal, 0.0, dict.fromkeys(STARTS, 0.9), "")
        monkeypatch.setattr(Found, "by", lambda _, rates=rates: rates)
        monkeypatch.setattr("sys.argv", ["nights", "1"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert bool(ended.value.code) is status
