"""Inputs are flipped or rotated, but their labels are not.

## What it means
An augmentation mirrors or rotates the image and leaves its mask, boxes or keypoints where they were. Half of the labels
then contradict their inputs, and the model learns the average of both.

## Why it happens
- A random transform is applied to the image alone.
- Image and mask go through the same random transform one after the other, each with its own random numbers.

## How to recognize it
- The training loss stays above the validation loss, though nothing is dropped out.
- Draw one row of the dataset several times and show image and mask side by side.
- `stayfinite doctor train.py` draws rows again and compares them.

## How to fix it
Draw the random numbers once for both: `torchvision.transforms.v2` takes image and mask together as `tv_tensors`;
albumentations takes `image=` and `mask=`; by hand, flip both under the same condition.

## When it is a false alarm
Labels that do not depend on the direction, such as a class or a symmetric mask, need no flip.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF332",
    fix="flip input and label together, with one random draw",
    proofs={
        # What was flipped alone, in words; empty where labels follow.
        "data.labels_not_augmented": "{}",
    },
)
