"""Views: values in, lines out. A view prints nothing, asks nothing and decides nothing.

Text of hosts passes `safe_text` or `plan.words.harmless` on its way into a line.
"""
