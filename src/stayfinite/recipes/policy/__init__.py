"""Reinforcement learning from sampled answers: groups, rewards, advantages, policy loss."""
