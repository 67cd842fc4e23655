"""Chat services in OpenAI's format. Requests count against a budget, and each answer is stored."""
