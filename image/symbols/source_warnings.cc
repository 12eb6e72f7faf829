// The list of warnings: see source_warnings.h.
#include "image/symbols/source_warnings.h"

#include <mutex>
#include <set>

namespace ptd {
namespace {

struct Warnings {
  std::mutex mutex;
  std::set<std::string> texts;
};

Warnings& warnings() {
  static Warnings all;
  return all;
}

}  // namespace

std::vector<std::string> source_warnings() {
  const std::lock_guard lock(warnings().mutex);
  return {warnings().texts.begin(), warnings().texts.end()};
}

void add_source_warning(const std::string& text) {
  const std::lock_guard lock(warnings().mutex);
  warnings().texts.insert(text);
}

}  // namespace ptd
