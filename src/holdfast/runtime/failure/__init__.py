"""What follows when an event fails."""
