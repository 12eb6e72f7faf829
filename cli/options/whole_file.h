// A command's result goes to a file or to standard output.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "image/base/whole_file.h"

namespace ptd::cli {

/// Writes a result, which is text, to `path`, to standard output if that is empty; the exit status. What goes to anything but a file is
/// escaped as Output::write() does. A reader of standard output that has had enough is
/// fine.
int write_result(const std::string& path, std::string_view text);

/// Returns whether a result that Ctrl-C cut short must not replace the file at `path`: one with content is there. Then says so. `status` is
/// that of the work.
bool keeps_earlier_file(const std::string& path, int status);

}  // namespace ptd::cli
