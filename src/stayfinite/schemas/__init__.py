"""JSON Schemas of everything that stayfinite prints with --json and writes into a run directory."""

from stayfinite.schemas.listing import schema

__all__ = ["schema"]
