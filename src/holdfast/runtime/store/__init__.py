"""What the runtime needs of a database."""
