// Writes the inputs of tests/fuzz/corpus/flow from the trace generator. Usage: make_flow_seeds DIR
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/differential/trace_generator.h"

using namespace ptd;

namespace {

// The program's pieces, joined where they touch.
std::vector<std::pair<uint64_t, std::vector<std::byte>>> sections_of(const test::SparseMemory& memory) {
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> out;
  for (const auto& [address, bytes] : memory.pieces()) {
    // Gaps of less than a page become NOPs, so that a region is one section.
    if (!out.empty() && address - out.back().first < 0x4000) {
      out.back().second.resize(address - out.back().first, std::byte{0x90});
      out.back().second.insert(out.back().second.end(), bytes.begin(), bytes.end());
    } else {
      out.emplace_back(address, bytes);
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  for (uint64_t seed = 0; seed < 24; ++seed) {
    auto options = test::options_of_seed(seed);
    options.steps = 250;
    options.psb_period_bytes = 128;
    const auto trace = test::generate(options);
    std::ofstream file(std::filesystem::path(argv[1]) / ("generated-" + std::to_string(seed)), std::ios::binary);
    const auto put = [&](const void* data, size_t size) { file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size)); };
    const auto sections = sections_of(trace.memory);
    const auto count = static_cast<uint8_t>(sections.size());
    put(&count, 1);
    for (const auto& [address, bytes] : sections) {
      const auto size = static_cast<uint16_t>(bytes.size());
      put(&address, 8);
      put(&size, 2);
      put(bytes.data(), size);
    }
    put(trace.trace.data(), trace.trace.size());
  }
  return 0;
}
