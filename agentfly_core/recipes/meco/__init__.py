"""A probe of hidden states decides whether a question needs a tool (MeCo, arXiv 2502.12961)."""
