"""Answers that are sampled, rewarded and learned from: groups, rewards, advantages, the policy's loss."""
