"""Numbers of seven bits a byte, the lowest first, as protocol buffers and ground truth files have them."""


def read(data, at):
    """The number that begins at `at`, and where the next thing begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
