"""`stayfinite export`: a trained model in a form that others can load."""
