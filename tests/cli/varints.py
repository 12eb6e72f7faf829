"""Numbers with seven bits per byte, the lowest first, as in protocol buffers and ground truth files."""


def read(data, at):
    """Returns the number at `at`, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
