"""Other people's files -> facts. What is read is never executed, imported or unpickled."""
