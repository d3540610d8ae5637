"""`python -m model.training.synthesis`: generated speech for training."""

from model.training.synthesis.generate import main

main()
