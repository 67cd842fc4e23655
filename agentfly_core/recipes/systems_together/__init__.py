"""Parts of five recipes in one flow: masked pages (mask-search), a gate before tool calls (meco)
and forks of episodes (arpo). Policies are also evaluated on plans (tptu) and competitions (mle).
"""
