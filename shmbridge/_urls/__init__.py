"""What a URL says: a plug-in by its scheme, and options."""
