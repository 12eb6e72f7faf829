// PTD_FUZZ_CHECK: a property that must hold for every input; aborts with the message so that fuzzers and tests detect it.
#pragma once

#include <cstdio>
#include <cstdlib>

#define PTD_FUZZ_CHECK(condition)                                                             \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: property violated: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)

// NOLINTNEXTLINE: the name and signature are libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size);
