"""Wire: what client and host say to each other, and the words both must agree on.

Standard library only, Python 3.8 syntax, no input or output except on streams that are handed in. Start with
`jobs.py` (what a host runs), then `calls.py` (how it is asked). Shapes here are frozen: fields are added with a
default, never renamed, retyped or reused; golden files in `tests/golden/` hold them.
"""
