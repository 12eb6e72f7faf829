// Sums of tables: see table_sums.h.
#include "cli/fleet/table_sums.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/fleet/plan_input.h"
#include "cli/fleet/table_lines.h"
#include "image/base/mapped_file.h"
#include "image/base/whole_file.h"
#include "recording/bundle/bundle_container.h"

namespace ptd::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr uint64_t kMostBytes = 1U << 16;

std::string sums_file(const std::string& folder, uint32_t unit) { return unit_file(folder, unit, "sums.json"); }

Json json_of(uint64_t plan, uint32_t unit) { return {{"plan", fmt::format("{:016x}", plan)}, {"unit", unit}}; }

Result<Json> sum_of(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  const Bytes bytes = (*file)->bytes();
  return Json{{"size_bytes", bytes.size()}, {"hash", fmt::format("{:016x}", hash_of_chunk(bytes))}};
}

}  // namespace

Status write_table_sums(const std::string& folder, uint64_t plan, uint32_t unit) {
  Json sums = json_of(plan, unit);
  for (const std::string_view table : kUnitTables) {
    const Result<Json> sum = sum_of(unit_file(folder, unit, std::string(table) + ".jsonl"));
    if (!sum) return sum.error();
    sums[std::string(table)] = *sum;
  }
  auto file = WholeFile::open(sums_file(folder, unit));
  if (!file) return file.error();
  (void)(*file)->write(sums.dump() + "\n");  // finish() says what failed
  return (*file)->finish();
}

Status check_table_sums(const std::string& folder, uint64_t plan, uint32_t unit) {
  const std::string path = sums_file(folder, unit);
  const auto file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  const Bytes bytes = (*file)->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Json sums = bytes.size() > kMostBytes ? Json() : Json::parse(text, nullptr, false);
  const auto again = fmt::format("; decode unit {} again", unit);
  if (!sums.is_object()) return Error{ErrorCode::bad_format, path + ": not a file of sizes and hashes of tables" + again, 0};
  const Json wanted = json_of(plan, unit);
  for (const auto& [key, value] : wanted.items()) {
    if (sums.value(key, Json()) != value) return Error{ErrorCode::wrong_recording, path + ": of another plan or unit" + again, 0};
  }
  for (const std::string_view table : kUnitTables) {
    const std::string name = unit_file(folder, unit, std::string(table) + ".jsonl");
    const Result<Json> sum = sum_of(name);
    if (!sum) return sum.error();
    if (sums.value(std::string(table), Json()) != *sum)
      return Error{ErrorCode::bad_checksum, name + ": changed since 'ptdecode unit' wrote it, or of another unit" + again, 0};
  }
  return {};
}

}  // namespace ptd::cli
