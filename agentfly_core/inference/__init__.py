"""Samplers: vLLM, transformers in process, scripted."""
