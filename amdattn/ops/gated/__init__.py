"""An activation times a factor, element by element."""
