"""Shared by both ends of grpc://."""
