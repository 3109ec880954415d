"""Agent: the host's side. Shipped to a host as plain files; Python 3.8, standard library (and `pynvml`) only.

It knows `wire` and no other room. One process serves one connection; one keeper and one pump belong to each job.
Start with `serve.py` (what can be asked), then `keeper.py` (where a run truly lives).
"""
