"""What a training's data files hold, row by row, in bounded memory. No torch."""
