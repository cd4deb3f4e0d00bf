"""The live view: how runs stand, on a terminal, as plain lines, or in a browser."""
