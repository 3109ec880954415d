"""Spec: what is wanted. From the text of a run.yaml or machines.yaml to checked values, all faults at once.

It never asks a machine, never knows the clock. Start with `model.py` (the values), then `load.py` (the way in).
"""
