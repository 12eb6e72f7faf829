// Cuts and mutates perf.data files and compares the records before the damage with those of the whole file.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <tuple>

#include "perfio/perf_reader.h"
#include "recording/recording.h"
#include "tests/differential/program.h"
#include "tests/fuzz/temp_file.h"
#include "tests/hostile/damage.h"

namespace ptd::test {
namespace {

constexpr double kMaxSeconds = 30;
constexpr uint32_t kAuxtrace = 71;  // PERF_RECORD_AUXTRACE
constexpr size_t kHeaderBytes = 104;

/// What is compared of a record: where it stands, what it is, when it was.
using RecordKey = std::tuple<uint64_t, uint32_t, uint32_t, uint16_t, uint64_t>;
struct RecordList {
  bool opened = false;
  bool damaged = false;
  std::map<RecordKey, uint64_t> end_bytes;  // where the record ends in the file
};

RecordList read_records(const std::vector<std::byte>& file) {
  const MemoryFile memory(std::span(reinterpret_cast<const unsigned char*>(file.data()), file.size()));
  RecordList out;
  auto reader = perfio::PerfReader::open(memory.path());
  if (!reader.ok()) return out;
  out.opened = true;
  const auto status = (*reader)->read([&](const perfio::Record& record) {
    uint64_t end = record.file_offset_bytes + record.size_bytes;
    if (const auto* aux = std::get_if<perfio::AuxtraceRecord>(&record.payload)) end += aux->size_bytes;
    out.end_bytes[{record.file_offset_bytes, record.type, record.size_bytes, record.misc, record.sample_id.time}] = end;
    return true;
  });
  out.damaged = !status.ok() || (*reader)->damage().cut || (*reader)->damage().bad_records != 0;
  return out;
}

uint64_t number_at(const std::vector<std::byte>& file, size_t at) {
  uint64_t out = 0;
  if (at + 8 <= file.size()) std::memcpy(&out, file.data() + at, 8);
  return out;
}

// Opens it as a user would and decodes the start of each stream; only crashes, hangs and silence count.
void open_and_decode(const std::vector<std::byte>& file, const std::string& what, std::vector<std::string>& findings) {
  const MemoryFile memory(std::span(reinterpret_cast<const unsigned char*>(file.data()), file.size()));
  OpenOptions options;
  options.path = memory.path();
  options.symfs = {"/nonexistent"};
  options.debug_dirs.clear();
  const auto recording = Recording::open(options);
  if (!recording.ok()) {
    if (recording.error().message.empty()) findings.push_back(what + ": refused without a sentence");
    return;
  }
  for (uint32_t stream = 0; stream < (*recording)->streams().size(); ++stream) {
    const auto status = (*recording)
                            ->decode(stream, 0, std::min<uint64_t>(3, (*recording)->segment_count(stream)),
                                     [](const Batch&, const pt::Decoder&, const AuxSegment&) { return true; });
    if (!status.ok() && status.error().message.empty()) findings.push_back(what + ": an error without a sentence");
  }
}

void check(const std::string& what, const RecordList& base, const std::vector<std::byte>& file, uint64_t damage_at, uint64_t data_at,
           std::vector<std::string>& findings) {
  const auto start = std::chrono::steady_clock::now();
  const RecordList got = read_records(file);
  open_and_decode(file, what, findings);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (seconds > kMaxSeconds) findings.push_back(what + ": took " + std::to_string(seconds) + " s");
  if (damage_at < data_at) return;  // header and attributes decide how everything is read
  for (const auto& [key, end] : base.end_bytes) {
    if (end > damage_at || got.end_bytes.count(key) != 0) continue;
    findings.push_back(what + ": the record at " + std::to_string(std::get<0>(key)) + ", type " + std::to_string(std::get<1>(key)) +
                       ", which stands before the damage, is " + (got.opened ? "lost or differs" : "lost: the file is refused"));
    return;
  }
}

}  // namespace

void check_damaged_perf(const std::string& name, const std::vector<std::byte>& file, const DamagePlan& plan,
                        std::vector<std::string>& findings) {
  const RecordList base = read_records(file);
  if (!base.opened || base.end_bytes.empty()) {
    findings.push_back(name + ": the undamaged file does not open");
    return;
  }
  const bool pipe = number_at(file, 8) == 16;
  const uint64_t data_at = pipe ? 16 : number_at(file, 40);
  const uint64_t data_end = pipe ? file.size() : data_at + number_at(file, 48);
  // A pipe carries its attributes as records: damage to those changes how all that follow are read, which is not what is asked here.
  const uint64_t first_sure = pipe ? std::min<uint64_t>(file.size(), 512) : data_at;
  Random random(plan.seed);
  const auto size = static_cast<uint32_t>(file.size());
  for (uint64_t i = 0; i < plan.cuts; ++i) {
    const uint64_t at = random.below(size);
    const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<long>(at));
    check(name + " cut at " + std::to_string(at), base, cut, std::min(at, data_end), first_sure, findings);
  }
  for (uint64_t i = 0; i < plan.mutations; ++i) {
    const uint64_t at = random.below(size);
    std::vector<std::byte> mutated = file;
    for (uint64_t k = at, end = std::min<uint64_t>(size, at + 1 + random.below(8)); k < end; ++k)
      mutated[k] ^= static_cast<std::byte>(1 + random.below(255));
    check(name + " mutated at " + std::to_string(at), base, mutated, at, first_sure, findings);
  }
}

std::vector<std::byte> without_aux(const std::vector<std::byte>& file, uint64_t keep_bytes) {
  const uint64_t data_at = number_at(file, 40), data_end = data_at + number_at(file, 48);
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), "PERFILE2", 8) != 0 || data_end > file.size()) return {};
  std::vector<std::byte> out(file.begin(), file.begin() + static_cast<long>(data_at));
  const auto append = [&](uint64_t first, uint64_t last) {
    out.insert(out.end(), file.begin() + static_cast<long>(first), file.begin() + static_cast<long>(last));
  };
  for (uint64_t at = data_at; at + 8 <= data_end;) {
    const uint64_t head = number_at(file, at);
    const auto type = static_cast<uint32_t>(head);
    const uint64_t size = head >> 48;
    if (size < 8 || at + size > data_end) break;
    const size_t copied = out.size();
    append(at, at + size);
    at += size;
    if (type != kAuxtrace) continue;
    const uint64_t payload = std::min(number_at(file, at - size + 8), data_end - at);
    const uint64_t kept = std::min(payload, keep_bytes) & ~7ULL;
    std::memcpy(out.data() + copied + 8, &kept, 8);
    append(at, at + kept);
    at += payload;
  }
  const uint64_t new_size = out.size() - data_at, moved = data_end - out.size();
  std::memcpy(out.data() + 48, &new_size, 8);
  // The feature table follows the data; what it points to moves up with it.
  const size_t table = out.size();
  append(data_end, file.size());
  unsigned features = 0;
  for (size_t i = 72; i < kHeaderBytes; i += 8) features += static_cast<unsigned>(__builtin_popcountll(number_at(file, i)));
  for (unsigned i = 0; i < features && table + i * 16 + 16 <= out.size(); ++i) {
    const uint64_t offset = number_at(out, table + i * 16) - moved;
    std::memcpy(out.data() + table + i * 16, &offset, 8);
  }
  return out;
}

}  // namespace ptd::test
