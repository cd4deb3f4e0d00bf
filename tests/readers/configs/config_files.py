"""A config file written and read in one go, and what came of it."""

from stayfinite.readers.configs import read_config


def read(folder, name, text):
    path = folder / name
    path.write_text(text)
    return read_config(path)


def told(settings):
    return {setting.name: setting.value for setting in settings}
