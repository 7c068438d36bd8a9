"""What both ends of grpc:// share."""
