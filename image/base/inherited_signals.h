// Signals that were ignored when this process began: programs that it starts are to ignore them too.
#pragma once

namespace ptd {

/// Stores which signals are ignored now. Called first in main(), before this program ignores any itself.
void note_inherited_signals();
/// Returns whether note_inherited_signals() found the signal ignored.
[[nodiscard]] bool was_ignored(int number);

}  // namespace ptd
