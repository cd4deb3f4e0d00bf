"""One line in the trainer that people already use; each framework is loaded only with its own file."""
