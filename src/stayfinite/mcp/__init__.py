"""`stayfinite mcp`: a Model Context Protocol server, so an assistant can ask instead of guessing."""
