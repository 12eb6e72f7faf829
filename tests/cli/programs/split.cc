// Functions that clang splits into sections of one basic block or more: loops, recursion, tail calls, exceptions. leaf() counts.
#include <stdexcept>

#define APART __attribute__((noinline))

extern "C" APART void leaf(int) { asm volatile(""); }

extern "C" APART int plain(int x) {
  if (x % 3 == 0) {
    leaf(x);
    for (int i = 0; i < x % 5; ++i) leaf(i);
  } else if (x % 7 == 1) {
    leaf(2);
    return x * 2;
  }
  leaf(3);
  return x + 1;
}

APART int recurses(int n) {
  if (n < 2) return n;
  if (n % 5 == 0) leaf(n);
  return recurses(n - 1) + recurses(n - 2);
}

APART int throws(int x) {
  if (x % 4 == 0) throw std::runtime_error("four");
  if (x % 7 == 0) throw x;
  leaf(x);
  return x;
}

APART int catches(int x) {
  int sum = 0;
  try {
    sum += throws(x);
  } catch (const std::exception&) {
    leaf(x);
    sum -= 1;
  } catch (int) {
    leaf(x);
  }
  try {
    sum += throws(x + 1);
  } catch (...) {
    leaf(x);
  }
  return sum;
}

static APART int ends_in_call(int x) {
  leaf(x);
  if ((x & 1) != 0) return plain(x);
  return recurses(x % 5);
}

int main() {
  int sum = 0;
  for (int i = 0; i < 60; ++i) sum += plain(i);
  sum += recurses(8);
  for (int i = 0; i < 20; ++i) sum += catches(i);
  for (int i = 0; i < 30; ++i) sum += ends_in_call(i);
  return sum == 0 ? 1 : 0;
}
