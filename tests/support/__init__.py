"""What tests share: oracles, fixtures, builders of code objects, programs that write pages."""
