"""What a user does beside a study."""
