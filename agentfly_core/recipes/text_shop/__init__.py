"""One product among a thousand."""
