"""Core types (signals, decisions, findings, runs) and the policy that maps signals to decisions.

Standard library only, and pure: every judgment is a function of (signals, state, policy) that returns the new state.
"""
