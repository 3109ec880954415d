"""Lifecycle: the verbs of a run: survey, apply, follow, stop, upload, note.

It acts through `hosts.backend` and never prints, never knows how a host is reached, never decides what `plan`
decides. Start with `apply.py`.
"""
