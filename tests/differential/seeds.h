// The seeds that the tests of generated traces run.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace ptd::test {

struct Seeds {
  uint64_t first = 0, count = 400;
};
/// Returns PTDECODE_SEEDS=first,count, or the default.
inline Seeds seeds() {
  Seeds out;
  if (const char* env = std::getenv("PTDECODE_SEEDS")) {
    char* end = nullptr;
    out.first = std::strtoull(env, &end, 0);
    if (*end == ',') out.count = std::strtoull(end + 1, nullptr, 0);
  }
  return out;
}

}  // namespace ptd::test
