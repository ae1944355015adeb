"""The proof: estimate before loading, compare and diagnose afterwards, and the experiments behind the README's numbers.

Computing is kept apart from printing: every module but `commands` returns plain values that a page can show as well.
"""
