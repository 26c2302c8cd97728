"""Torch modules: observation in, features and head outputs out."""
