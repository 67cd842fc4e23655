"""Fields that have no effect are counted."""

from agentfly_core.store.stage_metrics import Measured, combined
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from tests.support.gateway_clients import ask, by_client, user


async def test_requests_with_overruled_fields_are_counted():
    async def plays(client, episode):
        for n in range(2):
            await ask(client, [user(f"{n}?")], temperature=0.2 * n, seed=n, store=None, top_p=1)
        body = {"model": "any", "messages": [user("1?")], "temperature": 0.5}
        retry = {"headers": {"x-stainless-retry-count": "1"}}
        for options in ({}, retry):
            await client.post("/chat/completions", cast_to=object, body=body, options=options)

    async def policy(conversation):
        return "99"

    spec, specs = rollout_spec(agent=by_client(plays)), episode_specs(ADD, chains=3)
    *_, measured = await play_all(specs, spec, scripted(policy))
    counts = {name: n for name, n in measured.items() if name.startswith("gateway/")}
    assert counts == {"gateway/overruled/temperature": 9, "gateway/overruled/seed": 6}


def test_a_step_has_the_sum_of_its_shards():
    shards = [Measured(0, 1.0, {"gateway/a": n, "resources/b": 1}) for n in (2.0, 3.0)]
    assert combined([*shards, Measured(0, 1.0, {"gateway/c": 1.0})], "gateway/", sum) == {
        "gateway/a": 5.0,
        "gateway/c": 1.0,
    }
