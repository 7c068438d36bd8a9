"""The model's side of a bridge."""
