"""Simulates how the decode of one recording scales: the plan, its units on many workers, and the merge."""
import random


def replicate(seconds, count):
    """Returns `count` times of units that are distributed as the measured ones: all of them, as often as they fit, and a random sample."""
    whole, rest = divmod(count, len(seconds))
    return seconds * whole + random.Random(1).sample(seconds, rest)


def simulate(units, plan, merge, workers, task=0.002):
    """Returns the seconds until all is done: the plan, the units, each on the next free worker, the longest first, and the merge. `task`: what the
    scheduler takes for one task."""
    free = [plan] * workers
    given = plan
    for seconds in sorted(units, reverse=True):
        index = free.index(min(free))
        given += task
        free[index] = max(free[index], given) + seconds
    return max(free) + merge


def least(units, plan, merge, workers):
    """Returns a lower bound of simulate(): the units fill all workers evenly, or the longest one decides."""
    return plan + max(max(units), sum(units) / workers) + merge
