"""Noting the generators at every step tells the same as asking each of them."""

import random

import numpy as np
import torch

from stayfinite.state.rng import RngMemory, capture_rng, restore_rng


def test_it_tells_what_a_full_capture_tells_whichever_generator_moves():
    memory = RngMemory()
    moves = [random.random, np.random.rand, lambda: torch.rand(1), lambda: np.random.seed(3), lambda: None]
    for move in moves * 2:
        move()
        assert memory.capture() == capture_rng()


def test_what_it_told_can_be_restored():
    memory = RngMemory()
    memory.capture()
    np.random.rand(700)
    before = memory.capture()
    drawn = np.random.rand(5).tolist(), torch.rand(5).tolist(), random.random()
    restore_rng(before)
    assert (np.random.rand(5).tolist(), torch.rand(5).tolist(), random.random()) == drawn


def test_a_generator_that_was_exchanged_is_noticed():
    memory = RngMemory()
    before = np.random.get_state()
    memory.capture()
    np.random.set_state(np.random.RandomState(7).get_state())
    assert memory.capture() == capture_rng()
    np.random.set_state(before)
