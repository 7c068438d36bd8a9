"""The compiler's side."""
