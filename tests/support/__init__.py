"""What several folders of tests use: message_generated.py is made by schemas/generate."""
