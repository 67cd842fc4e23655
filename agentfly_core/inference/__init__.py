"""Samplers: vLLM, transformers in this process, scripted and random policies, chat services."""
