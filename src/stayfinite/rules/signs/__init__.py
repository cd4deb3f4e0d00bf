"""Signs that rules of several families look for in a run; each rule weighs them by itself."""
