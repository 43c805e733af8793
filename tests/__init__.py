"""Tests, and in `support` what they share."""
