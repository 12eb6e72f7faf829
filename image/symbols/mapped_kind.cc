// Kinds of mappings.
#include "image/symbols/mapped_kind.h"

#include "image/source/code_source.h"
#include "image/source/jitdump.h"

namespace ptd {

bool shows_file(const std::string& path) { return !is_anonymous(path) && !is_jitdump_path(path); }
bool is_generated_code(const std::string& path) { return !shows_file(path) || path == "[jit]"; }

}  // namespace ptd
