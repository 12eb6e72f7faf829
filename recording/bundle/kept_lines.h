// keep_lines(): chooses the code that a bundle stores.
#pragma once

#include <cstdint>
#include <vector>

#include "recording/bundle/bundle_code.h"
#include "recording/data/image_log.h"

namespace ptd {

/// Adds the code of all sections and copies to `code` as sources, and keeps what the lines of a space show of the code that the space, or
/// one that it was forked from, mapped. Returns the number of steps, for tests of the cost.
uint64_t keep_lines(const std::vector<ImageOp>& ops, const CodeLines& lines, BundleCodeWriter& code);

/// Keeps all code of all sections and copies.
void keep_all(const std::vector<ImageOp>& ops, BundleCodeWriter& code);

}  // namespace ptd
