// FunctionTable: see function_table.h.
#include "ptdecode/function_table.h"

#include <algorithm>

#include "ptdecode/symbols.h"

namespace ptd {

FunctionId FunctionTable::intern(std::string_view name, std::string_view module) {
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find({name, module}); known != ids_.end()) return known->second;
  const auto id = static_cast<FunctionId>(functions_.size());
  const FunctionInfo& info = functions_.emplace_back(FunctionInfo{std::string(name), std::string(module)});
  ids_.emplace(std::pair<std::string_view, std::string_view>(info.name, info.module), id);
  return id;
}

void FunctionTable::add_names(FunctionId id, std::span<const std::string> names) {
  const std::lock_guard lock(mutex_);
  if (id >= functions_.size()) return;
  for (const std::string& name : names) {
    if (name == functions_[id].name) continue;
    std::vector<std::string>& known = aliases_[id];
    if (known.size() < Symbolizer::kMostNames && std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  }
}

std::vector<std::string> FunctionTable::names(FunctionId id) const {
  const std::lock_guard lock(mutex_);
  if (id >= functions_.size()) return {};
  std::vector<std::string> names{functions_[id].name};
  if (const auto aliases = aliases_.find(id); aliases != aliases_.end())
    names.insert(names.end(), aliases->second.begin(), aliases->second.end());
  return names;
}

void FunctionTable::add_code(FunctionId id, const FunctionCode& code) {
  const std::lock_guard lock(mutex_);
  if (id >= functions_.size() || code.state == FunctionCode::State::unknown) return;
  const auto [known, is_new] = codes_.try_emplace(id, code);
  if (is_new || known->second.state == FunctionCode::State::several) return;
  if (code.state == FunctionCode::State::several || code.code != known->second.code || code.offset_bytes != known->second.offset_bytes)
    known->second = {FunctionCode::State::several, {}, 0};
}

FunctionCode FunctionTable::code(FunctionId id) const {
  const std::lock_guard lock(mutex_);
  const auto known = codes_.find(id);
  return known == codes_.end() ? FunctionCode{} : known->second;
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
