"""Five recipes in one experiment: masked pages (mask-search), a gate before tool calls (meco),
forks of episodes (arpo), plans (tptu) and competitions (mle).
"""
