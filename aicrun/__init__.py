"""aicrun: run training jobs on GPU machines you own. Imports nothing, for it travels to hosts with the agent."""

__version__ = "0.1.0"
