// Inherited signals: see inherited_signals.h.
#include "image/base/inherited_signals.h"

#include <array>
#include <csignal>

namespace ptd {
namespace {

std::array<bool, 65> g_ignored{};

}  // namespace

void note_inherited_signals() {
  for (int number = 1; number < static_cast<int>(g_ignored.size()); ++number) {
    struct sigaction now {};
    g_ignored[static_cast<size_t>(number)] = sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }
}

bool was_ignored(int number) { return number > 0 && number < static_cast<int>(g_ignored.size()) && g_ignored[static_cast<size_t>(number)]; }

}  // namespace ptd
