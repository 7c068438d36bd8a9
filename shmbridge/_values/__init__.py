"""What a message holds: dtypes, and values as tensors and back."""
