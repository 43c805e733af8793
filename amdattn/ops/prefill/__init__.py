"""Attention of many queries over a cache of keys and values: chunks of prompts."""
