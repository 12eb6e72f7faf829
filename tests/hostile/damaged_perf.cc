// Cuts and mutates perf.data files: records before the damage, and the flow that it does not affect, equal those of the whole file.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "perfio/perf_reader.h"
#include "ptdecode/recording.h"
#include "tests/differential/program.h"
#include "tests/hostile/damage.h"
#include "tests/hostile/digest.h"
#include "tests/hostile/each_damage.h"
#include "tests/hostile/guard.h"
#include "tests/hostile/temp_dir.h"
#include "tests/support/segments.h"

namespace ptd::test {
namespace {

constexpr uint32_t kAuxtrace = 71;  // PERF_RECORD_AUXTRACE
constexpr uint32_t kFinishedRound = 68;
constexpr size_t kHeaderBytes = 104;
constexpr uint64_t kMaxSegments = 48;  // maximum number decoded of each stream
constexpr uint64_t kPsbBytes = 16;

/// The compared fields of a record: offset, type, time.
using RecordKey = std::tuple<uint64_t, uint32_t, uint32_t, uint16_t, uint64_t>;

/// Position of a stream's bytes in the file.
struct Payload {
  StreamKey stream;
  uint64_t file_offset = 0, stream_offset = 0, size = 0;
};
struct RecordList {
  bool opened = false;
  std::map<RecordKey, uint64_t> end_bytes;  // where the record ends in the file
  std::vector<Payload> payloads;
};

RecordList read_records(const std::string& path) {
  RecordList out;
  auto reader = perfio::PerfReader::open(path);
  if (!reader.ok()) return out;
  out.opened = true;
  (void)(*reader)->read([&](const perfio::Record& record) {
    uint64_t end = record.file_offset_bytes + record.size_bytes;
    if (const auto* aux = std::get_if<perfio::AuxtraceRecord>(&record.payload)) {
      out.payloads.push_back({stream_key(aux->cpu, aux->tid), end, aux->offset_bytes, aux->payload.size()});
      end += aux->size_bytes;
    }
    out.end_bytes[{record.file_offset_bytes, record.type, record.size_bytes, record.misc, record.sample_id.time}] = end;
    return true;
  });
  return out;
}

class DamagedPerf {
 public:
  DamagedPerf(const PerfCapture& capture, std::vector<std::string>& findings) : capture_(capture), findings_(findings) {
    if (!capture.kcore_dir.empty()) dir_.link(capture.kcore_dir, "kcore_dir");
    put(capture.file);
    base_ = read_records(dir_ / "data");
    digests_ = decode(capture.name);
    pipe_ = number_at(capture.file, 8) == 16;
    data_at_ = pipe_ ? 16 : number_at(capture.file, 40);
    data_end_ = pipe_ ? capture.file.size() : data_at_ + number_at(capture.file, 48);
    for (const auto& [key, end] : base_.end_bytes) {
      const uint32_t type = std::get<1>(key);
      if (type != kAuxtrace && type != kFinishedRound) last_sideband_ = std::max(last_sideband_, std::get<0>(key));
    }
    placed_ = std::all_of(base_.payloads.begin(), base_.payloads.end(), [&](const Payload& p) { return is_placed(p); });
    if (!base_.opened || base_.end_bytes.empty()) findings_.push_back(capture.name + ": the undamaged file does not open");
    if (!placed_) findings_.push_back(capture.name + ": its trace is not where its records say");
  }

  /// Somewhere in the trace, or anywhere if there is none.
  [[nodiscard]] uint64_t trace_place(Random& random) const {
    const auto any = random.below(static_cast<uint32_t>(capture_.file.size()));
    if (base_.payloads.empty()) return any;
    const Payload& payload = base_.payloads[random.below(static_cast<uint32_t>(base_.payloads.size()))];
    return payload.size == 0 ? any : payload.file_offset + random.below(static_cast<uint32_t>(payload.size));
  }
  void cut(uint64_t at) {
    const std::vector<std::byte> file(capture_.file.begin(), capture_.file.begin() + static_cast<long>(at));
    check(capture_.name + " cut at " + std::to_string(at), file, std::min(at, data_end_), {at, ~0ULL});
  }
  void mutate(uint64_t at, uint64_t length, uint64_t seed) {
    check(capture_.name + " mutated at " + std::to_string(at), mutated(capture_.file, at, length, seed), at, {at, at + length});
  }

 private:
  void put(const std::vector<std::byte>& file) const { dir_.write("data", file); }

  std::vector<StreamDigest> decode(const std::string& what) {
    OpenOptions options;
    options.path = capture_.kcore_dir.empty() ? dir_ / "data" : dir_.path();
    options.symfs = capture_.symfs.empty() ? std::vector<std::string>{"/nonexistent"} : capture_.symfs;
    options.debug_dirs.clear();
    const auto recording = Recording::open(options);
    if (recording.ok()) return digest(**recording, kMaxSegments, what, findings_);
    if (recording.error().message.empty()) findings_.push_back(what + ": refused without a sentence");
    return {};
  }

  // Every PSB in the decoded stream is at the file offset given by the payload's record.
  bool is_placed(const Payload& payload) const {
    const auto stream = std::find_if(digests_.begin(), digests_.end(), [&](const auto& one) { return one.key() == payload.stream; });
    if (stream == digests_.end()) return payload.size < kPsbBytes;
    return std::all_of(stream->segments.begin(), stream->segments.end(), [&](const SegmentDigest& segment) {
      const uint64_t at = segment.first_byte - payload.stream_offset;
      if (segment.first_byte < payload.stream_offset || at + kPsbBytes > payload.size) return true;
      return !psb_offsets(Bytes(capture_.file).subspan(payload.file_offset + at, kPsbBytes)).empty();
    });
  }

  // Returns the stream's bytes that are in [damage.first, damage.last) of the file; an empty range at the end if there are none.
  [[nodiscard]] DamagedRange in_stream(const StreamDigest& stream, DamagedRange damage) const {
    DamagedRange out{~0ULL, ~0ULL};
    bool touched = false;
    for (const Payload& payload : base_.payloads) {
      if (payload.stream != stream.key()) continue;
      const uint64_t end = payload.file_offset + payload.size;
      if (damage.last <= payload.file_offset || end <= damage.first) continue;
      const uint64_t first = std::max(damage.first, payload.file_offset) - payload.file_offset + payload.stream_offset;
      const uint64_t last = std::min(damage.last, end) - payload.file_offset + payload.stream_offset;
      out.first = touched ? std::min(out.first, first) : first;
      out.last = damage.last == ~0ULL ? ~0ULL : last;
      touched = true;
    }
    return out;
  }
  [[nodiscard]] bool in_payload(uint64_t at) const {
    return std::any_of(base_.payloads.begin(), base_.payloads.end(),
                       [&](const Payload& p) { return at >= p.file_offset && at < p.file_offset + p.size; });
  }

  void check(const std::string& what, const std::vector<std::byte>& file, uint64_t damage_at, DamagedRange damage) {
    CaseGuard guard(what);
    put(file);
    const RecordList got = read_records(dir_ / "data");
    const auto flows = decode(what);
    guard.end(findings_);
    expect_records(what, got, damage_at);
    // The file's header, attributes, sideband and features decide how the trace is read: only damage to the trace does not affect that.
    if (!in_payload(damage.first) || (damage.last == ~0ULL && damage.first < last_sideband_)) return;
    for (const StreamDigest& stream : digests_) {
      const auto same = std::find_if(flows.begin(), flows.end(), [&](const auto& one) { return one.key() == stream.key(); });
      expect_same_outside(stream, same == flows.end() ? nullptr : &*same, in_stream(stream, damage), what, findings_);
    }
  }

  void expect_records(const std::string& what, const RecordList& got, uint64_t damage_at) {
    // A pipe has its attributes in records: damage to those changes how all that follow are read, which is not tested here.
    const uint64_t first_sure = pipe_ ? std::min<uint64_t>(capture_.file.size(), 512) : data_at_;
    if (damage_at < first_sure) return;
    for (const auto& [key, end] : base_.end_bytes) {
      if (end > damage_at || got.end_bytes.count(key) != 0) continue;
      findings_.push_back(what + ": the record at " + std::to_string(std::get<0>(key)) + ", type " + std::to_string(std::get<1>(key)) +
                          ", which stands before the damage, is " + (got.opened ? "lost or differs" : "lost: the file is refused"));
      return;
    }
  }

  const PerfCapture& capture_;
  std::vector<std::string>& findings_;
  TempDir dir_;
  RecordList base_;
  std::vector<StreamDigest> digests_;
  bool pipe_ = false, placed_ = false;
  uint64_t data_at_ = 0, data_end_ = 0, last_sideband_ = 0;
};

}  // namespace

void check_damaged_perf(const PerfCapture& capture, const DamagePlan& plan, std::vector<std::string>& findings) {
  const size_t before = findings.size();
  DamagedPerf run(capture, findings);
  if (findings.size() != before) return;
  Random random(plan.seed);
  const auto size = static_cast<uint32_t>(capture.file.size());
  for (uint64_t i = 0; i < plan.cuts; ++i) run.cut(random.below(size));
  for (uint64_t i = 0; i < plan.mutations; ++i) {
    const uint64_t at = random.below(size);
    run.mutate(at, 1 + random.below(8), random.next());
  }
  // Sideband is most of such a file: an additional half of the cases damages only the trace, cuts and mutations in turn.
  for (uint64_t i = 0; i < (plan.cuts + plan.mutations) / 2; ++i) {
    const uint64_t at = run.trace_place(random);
    if (i % 2 == 0) {
      run.cut(at);
    } else {
      run.mutate(at, 1 + random.below(8), random.next());
    }
  }
}

std::vector<std::byte> mutated(const std::vector<std::byte>& bytes, uint64_t at, uint64_t length, uint64_t seed) {
  std::vector<std::byte> out = bytes;
  Random random(seed);
  for (uint64_t i = at; i < std::min<uint64_t>(at + length, out.size()); ++i) out[i] ^= static_cast<std::byte>(1 + random.below(255));
  return out;
}

std::vector<std::byte> first_segments_of(const std::vector<std::byte>& file, unsigned psbs) {
  const uint64_t data_at = number_at(file, 40), data_end = data_at + number_at(file, 48);
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), "PERFILE2", 8) != 0 || data_end > file.size()) return {};
  std::vector<std::byte> out(file.begin(), file.begin() + static_cast<long>(data_at)), trace;
  const auto append = [&](std::vector<std::byte>& to, uint64_t first, uint64_t last) {
    to.insert(to.end(), file.begin() + static_cast<long>(first), file.begin() + static_cast<long>(last));
  };
  for (uint64_t at = data_at; at + 8 <= data_end;) {
    const uint64_t head = number_at(file, at);
    const uint64_t size = head >> 48, body = at + size;
    if (size < 8 || body > data_end) break;
    const bool auxtrace = static_cast<uint32_t>(head) == kAuxtrace;
    append(auxtrace ? trace : out, at, body);
    at = body;
    if (!auxtrace) continue;
    const uint64_t payload = std::min(number_at(file, body - size + 8), data_end - body);
    const auto offsets = psb_offsets(Bytes(file).subspan(body, std::min<uint64_t>(payload, 4U << 20)));
    const uint64_t kept = (psbs < offsets.size() ? offsets[psbs] : payload) & ~7ULL;
    std::memcpy(trace.data() + trace.size() - size + 8, &kept, 8);
    append(trace, body, body + kept);
    at += payload;
  }
  out.insert(out.end(), trace.begin(), trace.end());
  const uint64_t new_size = out.size() - data_at, moved = data_end - out.size();
  std::memcpy(out.data() + 48, &new_size, 8);
  // The feature table follows the data; the sections that it refers to are moved with it.
  const size_t table = out.size();
  append(out, data_end, file.size());
  unsigned features = 0;
  for (size_t i = 72; i < kHeaderBytes; i += 8) features += static_cast<unsigned>(__builtin_popcountll(number_at(file, i)));
  for (unsigned i = 0; i < features && table + i * 16 + 16 <= out.size(); ++i) {
    const uint64_t offset = number_at(out, table + i * 16) - moved;
    std::memcpy(out.data() + table + i * 16, &offset, 8);
  }
  return out;
}

}  // namespace ptd::test
