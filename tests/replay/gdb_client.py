"""A client of GDB's remote protocol, over the standard streams of `ptdecode replay --gdb`."""
import subprocess


def framed(text):
    body = text.encode() if isinstance(text, str) else text
    return b"$" + body + b"#%02x" % (sum(body) & 0xff)


class Client:
    def __init__(self, *words, ptdecode, features=""):
        self.process = subprocess.Popen([ptdecode, "replay", "--gdb", "-q", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.rest = b""
        self.console = ""
        self.features = self.ask("qSupported:swbreak+;hwbreak+;vContSupported+;" + features).split(";")
        assert self.ask("QStartNoAckMode") == "OK"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.process.stderr.close()

    def read_packet(self):
        while True:
            start = self.rest.find(b"$")
            end = self.rest.find(b"#", start) if start >= 0 else -1
            if end >= 0 and len(self.rest) >= end + 3:
                body = self.rest[start + 1:end]
                assert int(self.rest[end + 1:end + 3], 16) == sum(body) & 0xff
                self.rest = self.rest[end + 3:]
                return body
            more = self.process.stdout.read1(1 << 16)
            assert more, "the server ended: " + self.process.stderr.read().decode()
            self.rest += more

    def send(self, text):
        self.process.stdin.write(framed(text))
        self.process.stdin.flush()

    def reply(self):
        """Returns the next packet that is not console output."""
        while True:
            body = self.read_packet()
            if body[:1] == b"O" and body != b"OK":
                self.console += bytes.fromhex(body[1:].decode()).decode()
                continue
            return body.decode("latin-1")

    def ask(self, text):
        self.send(text)
        return self.reply()

    def ask_all(self, texts):
        """Sends all, then returns the replies."""
        self.process.stdin.write(b"".join(framed(text) for text in texts))
        self.process.stdin.flush()
        return [self.reply() for _ in texts]

    def monitor(self, command):
        self.console = ""
        assert self.ask("qRcmd," + command.encode().hex()) == "OK"
        return self.console

    def document(self, name, annex=""):
        text = ""
        while True:
            part = self.ask(f"qXfer:{name}:read:{annex}:{len(text):x},4000")
            assert part[:1] in ("l", "m"), part
            data, at = "", 1
            while at < len(part):
                if part[at] == "}":
                    data += chr(ord(part[at + 1]) ^ 0x20)
                    at += 1
                else:
                    data += part[at]
                at += 1
            text += data
            if part[0] == "l":
                return text


def stop_of(reply):
    """Returns (signal, pc, thread, the other pairs) of a stop reply."""
    assert reply[0] == "T", reply
    pairs = [pair.partition(":") for pair in reply[3:].split(";") if pair]
    named = {name: value for name, _, value in pairs}
    thread = int(named.pop("thread"), 16)
    pc = None
    for number in ("10", "20", "8", "f"):  # rip, pc of AArch64, eip, pc of A32
        if number in named:
            pc = int.from_bytes(bytes.fromhex(named.pop(number)), "little")
    return int(reply[1:3], 16), pc, thread, named
