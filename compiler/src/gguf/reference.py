#!/usr/bin/env python3
"""Prints the expected numbers of `blocks_decode_as_the_reference_does` in tests.rs (pip install gguf==0.19.0 numpy)."""
import numpy as np
import gguf.quants as q
from gguf import GGMLQuantizationType as T

SIZES = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210, "MXFP4": 17}
HALVES = {name: [0] if name in ("Q4_0", "Q5_0", "Q8_0") else [208] if name == "Q6_K" else [0, 2] for name in SIZES}
HALVES["MXFP4"] = []  # Its scale is the exponent in its first byte.

for name, size in SIZES.items():
    block = np.array([(i * 73 + 41) % 256 for i in range(size)], dtype=np.uint8)
    for n, at in enumerate(HALVES[name]):
        block[at : at + 2] = np.array([0.0625 * (n + 1)], dtype=np.float16).view(np.uint8)
    if name == "MXFP4":
        block[0] = 125
    numbers = q.dequantize(block.reshape(1, size), T[name]).reshape(-1)
    step = len(numbers) // 8
    print(name, [float(x) for x in numbers[3::step]], float(numbers.astype(np.float64).sum()))
