// Text that comes from a recording, a file or the kernel, as it may be shown: what a terminal would obey, and what is no text, is escaped.
#pragma once

#include <string>
#include <string_view>

#include "cli/text/output.h"

namespace ptd::cli {

/// A name in a line: control characters (also those of two bytes, U+0080 to U+009F), DEL, marks that reorder
/// text or end a line (U+202E and the like) and bytes that are no UTF-8 become \x1b and so on,
/// as of perf and ls; newlines and tabs too, so that a name stays in its line and column. A backslash stays as it is.
[[nodiscard]] std::string shown(std::string_view name);
/// The same at the end of `out`; names that are harmless cost a look.
void put_shown(TextBuffer& out, std::string_view name);

/// Whole lines: the same, but newlines and tabs stay. Every text that this program writes to a terminal goes through here.
[[nodiscard]] bool is_harmless(std::string_view lines);
void put_harmless(TextBuffer& out, std::string_view lines);

}  // namespace ptd::cli
