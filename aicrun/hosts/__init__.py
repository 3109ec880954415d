"""Hosts: reaching machines. Every effect on another machine passes through this room.

It must not decide what to run and never imports `agent`: it ships the agent's files as bytes. Start with
`transport.py` and `backend.py`, the two seams; `connect.py` is the only list of ways to reach a machine.
"""
