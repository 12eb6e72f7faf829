"""A program whose functions python_announcer names: PYTHONPATH=FOLDER python3 calls.py. It makes functions, frees them, and prints a sum."""
import python_announcer


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def made(rounds):
    """Each function is freed before the next one is made, which then has its place."""
    total = 0
    for i in range(rounds):
        space = {}
        exec(f"def made_{i}(x):\n    return x * {i}\n", space)  # noqa: S102
        total += space[f"made_{i}"](3) + space[f"made_{i}"](4)
    return total


class Steps:
    def numbers(self):
        yield from range(10)


python_announcer.poll()
print(fibonacci(12) + made(50) + sum(Steps().numbers()))
