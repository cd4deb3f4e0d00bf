"""Many ranks, one decision: agreeing, looking at one's own gradients, noticing that replicas drift apart."""
