"""Answers as text for people: the tables and their columns, a module for each answer."""
