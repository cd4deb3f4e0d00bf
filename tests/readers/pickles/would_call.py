"""An object whose pickle calls something when it is loaded the usual way."""


class WouldCall:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments
