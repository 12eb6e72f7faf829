// Runs a fuzz target over a folder of inputs and seeded mutations of them, without libFuzzer. Usage: <target> DIR MUTATIONS [SEED]
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/check.h"

namespace {

using Input = std::vector<unsigned char>;

struct Random {
  uint64_t state;
  uint64_t next() {
    state += 0x9e3779b97f4a7c15ULL;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(next() % bound); }
};

// One change: flip a bit, set a byte to a significant value, truncate, repeat a range, drop a range, splice from another input.
void mutate(Input& input, const Input& other, Random& random) {
  static constexpr unsigned char kTelling[] = {0x00, 0xff, 0x7f, 0x80, 0x02, 0x82, 0x01, 0xfe};
  const size_t at = random.below(input.size());
  const size_t length = 1 + random.below(16);
  switch (random.below(6)) {
    case 0:
      if (!input.empty()) input[at] ^= static_cast<unsigned char>(1U << random.below(8));
      break;
    case 1:
      if (!input.empty()) input[at] = kTelling[random.below(sizeof kTelling)];
      break;
    case 2:
      input.resize(at);
      break;
    case 3: {
      const Input piece(input.begin() + static_cast<long>(at), input.begin() + static_cast<long>(std::min(input.size(), at + length)));
      input.insert(input.begin() + static_cast<long>(at), piece.begin(), piece.end());
      break;
    }
    case 4:
      input.erase(input.begin() + static_cast<long>(at), input.begin() + static_cast<long>(std::min(input.size(), at + length)));
      break;
    default: {
      const size_t from = random.below(other.size());
      for (size_t i = 0; i < length && at + i < input.size() && from + i < other.size(); ++i) input[at + i] = other[from + i];
    }
  }
}

// Exact-size heap copy, so that a sanitizer sees the first byte read beyond the input.
void run(const Input& input) {
  const Input copy(input.begin(), input.end());
  (void)LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s DIR MUTATIONS [SEED]\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1], error)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "%s: no inputs\n", argv[1]);
    return 1;
  }
  const unsigned long mutations = std::strtoul(argv[2], nullptr, 0);
  Random random{argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 1};
  run({});
  for (const Input& input : inputs) {
    run(input);
    for (unsigned long i = 0; i < mutations; ++i) {
      Input changed = input;
      for (size_t n = 1 + random.below(4); n != 0; --n) mutate(changed, inputs[random.below(inputs.size())], random);
      run(changed);
    }
  }
  std::printf("%zu inputs, %lu mutations of each: no finding\n", inputs.size(), mutations);
  return 0;
}
