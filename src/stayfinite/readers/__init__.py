"""Other people's files -> facts. A reader judges nothing, executes nothing, streams, and survives half a file."""
