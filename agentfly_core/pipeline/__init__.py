"""Stages of a run: inputs, playing, scoring, updates, stop conditions, retention."""
