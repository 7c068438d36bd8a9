"""Programs that run under limits, and end with the process that started them."""
