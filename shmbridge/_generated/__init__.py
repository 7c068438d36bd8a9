"""What protoc makes of schemas/bridge.proto; schemas/generate is the command. Do not edit."""
