"""A probe of hidden states decides whether a question needs a tool, after MeCo."""
