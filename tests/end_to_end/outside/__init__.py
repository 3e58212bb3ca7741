"""What somebody gets who has the wheel and an empty folder."""
