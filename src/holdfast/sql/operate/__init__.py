"""What operators see and change."""
