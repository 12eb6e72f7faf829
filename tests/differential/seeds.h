// The seeds that the tests of generated traces run.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace ptd::test {

struct Seeds {
  uint64_t first = 0, count = 0;
};
/// Returns PTDECODE_SEEDS=first,count, or the first `count`.
inline Seeds seeds(uint64_t count = 400) {
  Seeds out{0, count};
  if (const char* env = std::getenv("PTDECODE_SEEDS")) {
    char* end = nullptr;
    out.first = std::strtoull(env, &end, 0);
    if (*end == ',') out.count = std::strtoull(end + 1, nullptr, 0);
  }
  return out;
}

}  // namespace ptd::test
