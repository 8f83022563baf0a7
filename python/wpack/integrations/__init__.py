"""Adapters: trainers and libraries that load from a pack.

Nothing is imported until it is asked for: each adapter needs its own package (``diffsynth``,
``accelerate``, ``deepspeed``, ``transformers``, ``diffusers``), and says so where it is missing.
"""
