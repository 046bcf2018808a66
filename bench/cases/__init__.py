"""The cases, one module per contestant. Each has `cases(scale)`."""
