// Recursive functions that exceptions and longjmp leave, up to an outer call of the same function. Each call knows its own level, which is the
// number of open calls of its function, and calls the function markN with N = its level. Prints how often each was called.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
static volatile int sink;  // keeps calls from becoming tail calls
static int counts[10];
#define MARK(n) extern "C" __attribute__((noinline)) void mark##n() { sink = ++counts[n]; }
MARK(0) MARK(1) MARK(2) MARK(3) MARK(4) MARK(5) MARK(6) MARK(7) MARK(8) MARK(9)
static void (*const volatile marks[])() = {mark0, mark1, mark2, mark3, mark4, mark5, mark6, mark7, mark8, mark9};
#define MARK_LEVEL(level) (marks[level](), sink = 1)
constexpr int kDeepest = 9;

struct Guard {
  int level;
  __attribute__((always_inline)) ~Guard() { MARK_LEVEL(level); }
};

// Only some levels catch; all have a destructor to run, at another landing pad.
__attribute__((noinline)) void cleans(int level, int catches) {
  Guard guard{level};
  if (level == kDeepest) throw level;
  if (level % catches == 1) {
    try {
      cleans(level + 1, catches);
    } catch (int) {
      MARK_LEVEL(level);
    }
  } else {
    cleans(level + 1, catches);
  }
  MARK_LEVEL(level);
  if (level % catches == 2) throw 1;
}

// All levels catch at one landing pad, and all but one throw again.
__attribute__((noinline)) void passes(int level, int wanted) {
  try {
    if (level == kDeepest) throw level;
    passes(level + 1, wanted);
  } catch (int& thrown) {
    MARK_LEVEL(level);
    if (level != wanted) throw;
  }
  MARK_LEVEL(level);
}

// Some levels catch at the landing pad of an inner, some at that of an outer block. What no level catches passes by both.
__attribute__((noinline)) void nests(int level, int kind) {
  try {
    try {
      if (level == kDeepest && kind == 1) throw 1;
      if (level == kDeepest && kind == 2) throw 2L;
      if (level == kDeepest) throw "";
      nests(level + 1, kind);
    } catch (int) {
      MARK_LEVEL(level);
      if (level > 4) throw 2L;
    }
    MARK_LEVEL(level);
  } catch (long) {
    MARK_LEVEL(level);
    if (level > 2) throw 1;
  }
  MARK_LEVEL(level);
}

struct Chain {
  std::jmp_buf place;
  Chain* outer;
};
static Chain* innermost;

// Only level 1 has called setjmp.
static std::jmp_buf first;
__attribute__((noinline)) void from_first(int level) {
  if (level == 1 && setjmp(first) != 0) {
    MARK_LEVEL(level);
    return;
  }
  if (level == kDeepest) std::longjmp(first, 1);
  from_first(level + 1);
  sink = 1;
}

// Every other level calls setjmp at one place. The innermost one is meant. It passes the error on if `wanted` is further out.
__attribute__((noinline)) void chained(int level, int wanted) {
  Chain chain{{}, innermost};
  if (level % 2 == 1) {
    innermost = &chain;
    if (setjmp(chain.place) != 0) {
      innermost = chain.outer;
      MARK_LEVEL(level);
      if (level != wanted) std::longjmp(innermost->place, 1);
      return;
    }
  }
  if (level == kDeepest - 1) std::longjmp(innermost->place, 1);
  chained(level + 1, wanted);
  innermost = chain.outer;
  MARK_LEVEL(level);
}

// One call comes back several times.
__attribute__((noinline)) void fails(int level) {
  sink = level;
  std::longjmp(first, 1);
}
__attribute__((noinline)) void retries(int level) {
  volatile int tries = 0;
  if (level == 5) {
    setjmp(first);
    MARK_LEVEL(level);
    if (tries < 3) {
      tries = tries + 1;
      fails(level);
    }
  } else {
    retries(level + 1);
  }
  MARK_LEVEL(level);
}

static sigjmp_buf out;
__attribute__((noinline)) void handler(int) { siglongjmp(out, 1); }
__attribute__((noinline)) void signalled(int level) {
  if (level == 3 && sigsetjmp(out, 1) != 0) {
    MARK_LEVEL(level);
    return;
  }
  if (level == kDeepest) raise(SIGUSR1);
  signalled(level + 1);
  MARK_LEVEL(level);
}

// Leaves any number of calls at once. Of setjmp, the calls are known.
static std::jmp_buf surface;
static void* builtin_surface[5];
__attribute__((noinline)) int dives(long left, bool builtin) {
  if (left == 0 && builtin) __builtin_longjmp(builtin_surface, 1);
  if (left == 0) std::longjmp(surface, 1);
  sink = dives(left - 1, builtin) + 1;
  return sink;
}
template <int kLevel>
__attribute__((noinline)) void surfaces(long depth) {
  MARK_LEVEL(kLevel);
  if (setjmp(surface) == 0) dives(depth, false);
  MARK_LEVEL(kLevel);
  if constexpr (kLevel < 3) surfaces<kLevel + 1>(depth);
  MARK_LEVEL(kLevel);
}
__attribute__((noinline)) void surfaces_builtin(long depth) {
  if (__builtin_setjmp(builtin_surface) == 0) dives(depth, true);
  MARK_LEVEL(1);
}

int main(int, char** argv) {
  const auto wants = [&](const char* name) { return std::strcmp(argv[1], name) == 0; };
  signal(SIGUSR1, handler);
  for (int round = 0; round < 20; ++round) {
    MARK_LEVEL(0);
    if (wants("cleans")) {
      cleans(1, 3);
      cleans(1, 4);
    }
    if (wants("passes")) {
      for (int wanted = 1; wanted < kDeepest; ++wanted) passes(1, wanted);
    }
    if (wants("nests")) {
      nests(1, 1);
      nests(1, 2);
      try {
        nests(1, 3);
      } catch (const char*) {
      }
    }
    if (wants("from_first")) from_first(1);
    if (wants("chained")) {
      for (int wanted = 1; wanted < kDeepest - 1; wanted += 2) chained(1, wanted);
    }
    if (wants("retries")) retries(1);
    if (wants("signalled")) signalled(1);
    if (wants("dives")) {
      surfaces<1>(std::atol(argv[2]));
      surfaces_builtin(std::atol(argv[2]));
      MARK_LEVEL(0);
      break;
    }
  }
  for (const int count : counts) std::printf("%d ", count);
  return 0;
}
