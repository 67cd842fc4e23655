"""Chat services with OpenAI's API. Requests count against a budget, and each answer is stored."""
