"""Many ranks, one decision: agreement, per-rank gradients, drifting replicas."""
