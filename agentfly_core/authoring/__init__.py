"""What authors write with: tools, rewards, environments, chat templates."""
