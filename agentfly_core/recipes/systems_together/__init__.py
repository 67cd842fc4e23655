"""One flow that combines methods of three recipes: masked pages (mask-search), a gate that decides
whether to search (meco), and forks of episodes (arpo). Policies are also evaluated on the
problems of the recipes tptu (plans) and mle (machine-learning competitions).
"""
