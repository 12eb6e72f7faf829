// Functions chosen by name: see function_filter.h.
#include "analysis/names/function_filter.h"

#include <algorithm>

#include "analysis/names/name_match.h"

namespace ptd {

bool FunctionFilter::look_up(FunctionId id) const {
  if (id == kNoFunction) return name_wanted(patterns_, "[not traced]");
  const std::vector<std::string> names = functions_.names(id);
  return std::any_of(names.begin(), names.end(), [this](const std::string& name) { return name_wanted(patterns_, name); });
}

}  // namespace ptd
