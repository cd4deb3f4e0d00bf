"""Explaining an incident: trace, origin, worlds, conclusions; incidents on disk, and replaying them."""
