// A program with what compilers put into ELF and DWARF: inlined functions, exceptions, templates, local functions, ranges of addresses,
// long names.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace hostile::deep {

template <typename Key>
struct Table {
  std::map<Key, std::vector<int>> rows;
  __attribute__((always_inline)) void add(const Key& key, int value) { rows[key].push_back(value); }
  [[nodiscard]] int sum(const Key& key) const {
    int total = 0;
    for (const int value : rows.at(key)) total += value;
    return total;
  }
};

}  // namespace hostile::deep

namespace {

[[gnu::noinline, gnu::cold]] int fail(int value) { throw std::runtime_error(std::to_string(value)); }
[[gnu::noinline]] int twice(int value) { return value > 1000 ? fail(value) : 2 * value; }

}  // namespace

extern "C" [[gnu::weak]] int alias_target(int value) { return value + 1; }
extern "C" int other_name(int value) __attribute__((alias("alias_target")));

int main(int argc, char** argv) {
  hostile::deep::Table<std::string> table;
  for (int i = 0; i < argc; ++i) table.add(argv[i], i);
  try {
    std::printf("%d\n", twice(table.sum(argv[0])) + other_name(argc));
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
  return 0;
}
