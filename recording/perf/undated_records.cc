// Records without a time: see undated_records.h.
#include "recording/perf/undated_records.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <variant>

#include "perfio/format/wire.h"

namespace ptd {
namespace {

/// The first ancestor of a process. Limitation: of at most 64 generations.
int32_t root_of(int32_t pid, const std::unordered_map<int32_t, int32_t>& parents) {
  constexpr int kMaxGenerations = 64;
  for (int i = 0; i < kMaxGenerations; ++i) {
    const auto parent = parents.find(pid);
    if (parent == parents.end()) return pid;
    pid = parent->second;
  }
  return pid;
}

/// Whether an address of a process, or of one that shares its mappings since a fork, was mapped from two places.
bool has_two_mappings(const UserMappings& mappings, const std::unordered_map<int32_t, int32_t>& parents) {
  struct Mapped {
    int32_t root = 0;
    const UserMapping* mapping = nullptr;
  };
  std::vector<Mapped> all;
  all.reserve(mappings.size());
  for (const UserMapping& mapping : mappings) all.push_back({root_of(mapping.pid, parents), &mapping});
  std::sort(all.begin(), all.end(), [](const Mapped& a, const Mapped& b) {
    return std::tuple(a.root, a.mapping->ip.value, a.mapping->size_bytes) < std::tuple(b.root, b.mapping->ip.value, b.mapping->size_bytes);
  });
  const Mapped* furthest = nullptr;  // of those that begin before; all of them that overlap are of the same place
  const auto end_of = [](const UserMapping& mapping) { return mapping.ip.value + std::min(mapping.size_bytes, ~mapping.ip.value); };
  for (const Mapped& now : all) {
    if (furthest == nullptr || furthest->root != now.root || end_of(*furthest->mapping) <= now.mapping->ip.value) {
      furthest = &now;
      continue;
    }
    const UserMapping &a = *furthest->mapping, &b = *now.mapping;
    if (a.path != b.path || a.ip.value - a.file_offset_bytes != b.ip.value - b.file_offset_bytes) return true;
    if (end_of(b) > end_of(a)) furthest = &now;
  }
  return false;
}

}  // namespace

bool UndatedRecords::gives_time(const perfio::Record& record) const {
  if (attrs_ == nullptr || record.attr_index >= attrs_->size()) return false;
  const perfio::EventAttr& attr = (*attrs_)[record.attr_index];
  return attr.sample_id_all && (attr.sample_type & perfio::kSampleTime) != 0;
}

void UndatedRecords::on_record(const perfio::Record& record) {
  if (record.sample_id.has_time) return;
  const auto* map = std::get_if<perfio::MmapRecord>(&record.payload);
  const auto* comm = std::get_if<perfio::CommRecord>(&record.payload);
  const bool is_edit = std::holds_alternative<perfio::TextPokeRecord>(record.payload);
  const bool is_mapping = map != nullptr && map->executable && !map->kernel && !map->guest;
  const bool is_exec = comm != nullptr && comm->exec;
  if ((!is_edit && !is_mapping && !is_exec && !std::holds_alternative<perfio::SwitchRecord>(record.payload)) || gives_time(record)) return;
  ++count_;
  if (is_edit) ++edits_;
}

void UndatedRecords::report(const UserMappings& mappings, const std::unordered_map<int32_t, int32_t>& parents, ImageBuild& image) const {
  if (count_ == 0) return;
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = std::to_string(count_) + (count_ == 1 ? " record" : " records") +
                 " of mappings, programs, switches or changes of text without time, because " +
                 (attrs_ == nullptr || attrs_->empty() ? "the recording has no event attributes" : "the recording's events give them none");
  if (edits_ != 0 || has_two_mappings(mappings, parents)) {
    finding.what += ": addresses had more than one content, and which one at a moment is unknown; all code is suspect";
    image.builder.add_lost_window(finding.time);
  } else {
    finding.what += "; no address had more than one content";
  }
  image.builder.add_finding(std::move(finding));
}

}  // namespace ptd
