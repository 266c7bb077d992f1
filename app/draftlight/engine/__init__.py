"""Speculative decoding, pure: numpy and the standard library. Knows no llama.cpp, no Qt, no disk.

Letters follow Leviathan et al. 2023 (arXiv:2211.17192): p is the target model's law, q the draft model's.
"""
