"""`stayfinite mcp`: a Model Context Protocol server, so that an assistant asks instead of guessing."""
