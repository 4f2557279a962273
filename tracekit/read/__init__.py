"""Turns report files into the tables of the model, one reader a format."""
