"""Interfaces for authors of tools, rewards, environments and chat templates."""
