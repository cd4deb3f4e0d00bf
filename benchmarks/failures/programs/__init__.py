"""Plain training programs, healthy and with one planted fault each."""
