"""Plan: pure deciding. The same wish and the same fleet give the same plan, for ever.

No clock, disk, environment, random or log enters here. Start with `model.py` (what a plan is), then `decide.py`.
"""
