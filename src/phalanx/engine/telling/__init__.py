"""What a cycle says of those who did not start, and of the room that nobody took."""
