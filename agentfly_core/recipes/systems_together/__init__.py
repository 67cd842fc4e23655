"""One flow with methods of five recipes: masked pages (mask-search), a gate that decides whether to
search (meco), and forks of episodes (arpo). Policies are also evaluated on the problems of tptu
(plans) and mle (machine-learning competitions).
"""
