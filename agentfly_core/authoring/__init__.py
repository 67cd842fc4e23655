"""Interfaces for authors of parts: tools, rewards, environments, chat templates."""
