"""Questions and answers for a chat model: data, prompt, base, adapter, generation, scores."""
