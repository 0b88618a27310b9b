"""The forms of answers: each is a module with `text`, and an entry in cli.output."""
