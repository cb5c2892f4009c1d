"""The numbers that masks stand for."""

IGNORED = -100  # the label of a position that losses and metrics leave out
# Attention's additive bias on what must not be seen. Its exponential is zero, and the sum of two
# still fits into float16.
MASKED = -3e4
