"""Samplers: vLLM, transformers in this process, scripted and random policies, and chat services."""
