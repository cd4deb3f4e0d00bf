"""What a signal, a decision, a finding and a run are, and the policy that turns one into the other.

Standard library only, and pure: every judgment is a function of (signals, state, policy) that returns the new state.
"""
