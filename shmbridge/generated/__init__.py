"""What flatc makes of schemas/; schemas/generate is the command. Do not edit."""
