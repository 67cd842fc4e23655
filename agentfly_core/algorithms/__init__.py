"""Ready-made algorithms. Each module has one algorithm, which has a short name in settings:
`algorithm: grpo`.
"""

NAMES = {
    "cispo": "agentfly_core.algorithms.cispo:CISPO",
    "dapo": "agentfly_core.algorithms.dapo:DAPO",
    "dppo": "agentfly_core.algorithms.dppo:DPPO",
    "dr_grpo": "agentfly_core.algorithms.dr_grpo:DrGRPO",
    "gdpo": "agentfly_core.algorithms.gdpo:GDPO",
    "gigpo": "agentfly_core.algorithms.gigpo:GiGPO",
    "grpo": "agentfly_core.algorithms.grpo:GRPO",
    "gspo": "agentfly_core.algorithms.gspo:GSPO",
    "max_rl": "agentfly_core.algorithms.max_rl:MaxRL",
    "opo": "agentfly_core.algorithms.opo:OPO",
    "ppo": "agentfly_core.algorithms.ppo:PPO",
    "reinforce_pp": "agentfly_core.algorithms.reinforce_pp:ReinforcePP",
    "reinforce_pp_baseline": "agentfly_core.algorithms.reinforce_pp_baseline:ReinforcePPBaseline",
    "remax": "agentfly_core.algorithms.remax:ReMax",
    "rft": "agentfly_core.algorithms.rft:RFT",
    "rloo": "agentfly_core.algorithms.rloo:RLOO",
    "sapo": "agentfly_core.algorithms.sapo:SAPO",
    "sft": "agentfly_core.algorithms.sft:SFT",
}
