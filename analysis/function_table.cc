// FunctionTable: see function_table.h.
#include "ptdecode/function_table.h"

namespace ptd {

FunctionId FunctionTable::intern(std::string_view name, std::string_view module) {
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find({name, module}); known != ids_.end()) return known->second;
  const auto id = static_cast<FunctionId>(functions_.size());
  const FunctionInfo& info = functions_.emplace_back(FunctionInfo{std::string(name), std::string(module)});
  ids_.emplace(std::pair<std::string_view, std::string_view>(info.name, info.module), id);
  return id;
}

const FunctionInfo& FunctionTable::info(FunctionId id) const {
  static const FunctionInfo kUnknown;
  const std::lock_guard lock(mutex_);
  return id < functions_.size() ? functions_[id] : kUnknown;
}

size_t FunctionTable::size() const {
  const std::lock_guard lock(mutex_);
  return functions_.size();
}

}  // namespace ptd
