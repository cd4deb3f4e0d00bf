"""Explaining an incident: capture, trace, worlds, verdict, replay."""
