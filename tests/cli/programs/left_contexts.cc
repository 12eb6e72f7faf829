// Exceptions, longjmp and signals, in functions with two callers. Each place where the flow goes on calls a function of its own. Of outer_a()'s 12
// rounds, the even 6 leave calls; of outer_b()'s 3 rounds, 2.
#include <csetjmp>
#include <csignal>
#include <cstdlib>
static volatile int sink;  // keeps calls from becoming tail calls
#define NOINLINE extern "C" __attribute__((noinline, noclone))
#define MARK(name) \
  NOINLINE void name() { sink = sink + 1; }
MARK(in_same) MARK(not_thrown) MARK(after_same) MARK(in_cleanup) MARK(after_pass) MARK(in_above) MARK(after_above) MARK(in_catches) MARK(after_catches)
MARK(in_rethrown) MARK(after_rethrown) MARK(in_inlined) MARK(after_inlined) MARK(after_hosts) MARK(in_sorts) MARK(after_sorts) MARK(in_jumps)
MARK(not_jumped) MARK(after_jumps) MARK(in_signals) MARK(not_left) MARK(after_raise) MARK(after_signals) MARK(in_handler)

// Throws and catches.
NOINLINE void same(int x) {
  try {
    if (x % 2 == 0) throw x;
    not_thrown();
  } catch (int) {
    in_same();
  }
  after_same();
}

NOINLINE void throws(int x) {
  if (x % 2 == 0) throw x;
  sink = x;
}

// Catches what comes from several calls further in, one of which has a destructor.
struct Guard {
  __attribute__((always_inline)) ~Guard() { in_cleanup(); }
};
NOINLINE void cleans(int x) {
  Guard guard;
  throws(x);
}
NOINLINE void passes(int x) {
  cleans(x);
  after_pass();
}
NOINLINE void above(int x) {
  try {
    passes(x);
  } catch (int) {
    in_above();
  }
  after_above();
}

// Catches what was caught and thrown again.
NOINLINE void catches(int x) {
  try {
    throws(x);
  } catch (int) {
    in_catches();
    throw;
  }
  after_catches();
}
NOINLINE void rethrown(int x) {
  try {
    catches(x);
  } catch (int) {
    in_rethrown();
  }
  after_rethrown();
}

// Has the code of a function that catches.
extern "C" inline __attribute__((always_inline)) void inlined(int x) {
  try {
    throws(x);
  } catch (int) {
    in_inlined();
  }
  after_inlined();
}
NOINLINE void hosts(int x) {
  inlined(x);
  after_hosts();
}

// Catches what a function throws that the C library calls.
static int thrown;
NOINLINE int compares(const void*, const void*) {
  throws(thrown);
  return 0;
}
NOINLINE void sorts(int x) {
  int values[2] = {1, 2};
  thrown = x;
  try {
    std::qsort(values, 2, sizeof *values, compares);
  } catch (int) {
    in_sorts();
  }
  after_sorts();
}

static std::jmp_buf place;
NOINLINE void dives(int x) {
  if (x % 2 == 0) std::longjmp(place, 1);
  sink = x;
}
NOINLINE void dips(int x) {
  dives(x);
  sink = x;
}
NOINLINE void jumps(int x) {
  if (setjmp(place) == 0) {
    dips(x);
    not_jumped();
  } else {
    in_jumps();
  }
  after_jumps();
}

static sigjmp_buf out;
NOINLINE void leaves(int) { siglongjmp(out, 1); }
NOINLINE void handles(int) { in_handler(); }
NOINLINE void raises(int x) {
  raise(x % 2 == 0 ? SIGUSR1 : SIGUSR2);
  after_raise();
}
NOINLINE void signals(int x) {
  if (sigsetjmp(out, 1) == 0) {
    raises(x);
    not_left();
  } else {
    in_signals();
  }
  after_signals();
}

NOINLINE void outer_a(int x) {
  same(x);
  above(x);
  rethrown(x);
  hosts(x);
  sorts(x);
  jumps(x);
  signals(x);
  sink = x;
}
NOINLINE void outer_b(int x) {
  same(x);
  above(x);
  rethrown(x);
  hosts(x);
  sorts(x);
  jumps(x);
  signals(x);
  sink = x;
}

int main() {
  signal(SIGUSR1, leaves);
  signal(SIGUSR2, handles);
  for (int i = 0; i < 12; ++i) outer_a(i);
  for (int i = 0; i < 3; ++i) outer_b(i);
  return 0;
}
