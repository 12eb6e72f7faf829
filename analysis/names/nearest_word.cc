// Nearest words: see nearest_word.h.
#include "analysis/names/nearest_word.h"

#include <algorithm>

namespace ptd {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> row(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t k = 0; k <= b.size(); ++k) {
      if (i == 0 || k == 0) {
        row[i][k] = i + k;
        continue;
      }
      row[i][k] = std::min({row[i - 1][k] + 1, row[i][k - 1] + 1, row[i - 1][k - 1] + (a[i - 1] != b[k - 1] ? 1U : 0U)});
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) row[i][k] = std::min(row[i][k], row[i - 2][k - 2] + 1);
    }
  }
  return row[a.size()][b.size()];
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kMaxWord = 64;
  std::string best;
  size_t least = word.size() / 3 + 1;
  if (word.empty() || word.size() > kMaxWord) return best;
  for (const std::string& name : known) {
    const size_t distance = name.starts_with(word) ? 0 : edit_distance(word, name);
    if (distance >= least && !(distance == 0 && best.empty())) continue;
    least = distance;
    best = name;
  }
  return best;
}

}  // namespace ptd
