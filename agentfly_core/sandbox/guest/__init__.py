"""What runs inside, or starts, the sandbox: standard library only."""
