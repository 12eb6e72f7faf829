// Calls that are nested to different depths, with much trace: indirect calls.
#pragma once

static int leaf(int x) { return x ^ (x >> 3); }
static int outer(int x);
static int (*volatile const kFunctions[2])(int) = {leaf, outer};

static int outer(int x) {
  int sum = 0;
  for (int i = x & 3; i > 0; --i) sum += kFunctions[(x >> i) & 1](x >> 2);
  return sum;
}
