// Dumps of ipt.sys: one stream a thread, oldest byte first.
#include "recording/windows/winipt_dump.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "decoder/pt/packet/packet_table.h"
#include "image/base/mapped_file.h"
#include "ptdecode/guest.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kDataHeaderBytes = 8, kThreadHeaderBytes = 28;
constexpr uint16_t kKnownVersion = 1;
constexpr uint32_t kMostTiming = 2, kMostMtcPeriod = 15;  // IPT_TIMING_SETTINGS; IA32_RTIT_CTL.MTCFreq
constexpr uint64_t kMostThreadId = (1U << kGuestThreadBits) - 1;

struct ThreadHeader {
  uint64_t id = 0, offset_bytes = 0, size_bytes = 0;
  uint32_t timing = 0, mtc_period = 0, ratio = 0;
};

ThreadHeader header_at(Bytes bytes) {
  ThreadHeader header;
  header.id = number_at<uint64_t>(bytes, 0);
  header.timing = number_at<uint32_t>(bytes, 8);
  header.mtc_period = number_at<uint32_t>(bytes, 12);
  header.ratio = number_at<uint32_t>(bytes, 16);
  header.offset_bytes = number_at<uint32_t>(bytes, 20);
  header.size_bytes = number_at<uint32_t>(bytes, 24);
  return header;
}

bool is_zero(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

// Whether a PSB comes after at most so many bytes: none in a trace that lacks nothing and is not damaged.
bool begins_with_psb(Bytes bytes, uint64_t most_before = 0) {
  const Bytes begin = bytes.first(std::min<uint64_t>(bytes.size(), most_before + pt::kPsbBytes));
  return pt::find_psb(begin, 0) < begin.size();
}

class DumpReader {
 public:
  explicit DumpReader(const MappedFile& file) : path_(file.path()), bytes_(file.bytes()) {}

  Result<WiniptDump> read() {
    if (bytes_.empty()) return Error{ErrorCode::empty_file, path_ + " is empty", 0};
    if (bytes_.size() < kDataHeaderBytes) return Error{ErrorCode::truncated_header, path_ + " ends within its header", 0};
    Bytes threads = bytes_;
    if (Status status = take_data_header(threads); !status.ok()) return status.error();
    const auto content_end = std::find_if(threads.rbegin(), threads.rend(), [](std::byte byte) { return byte != std::byte{0}; }).base();
    const auto is_rest_zero = [&] { return content_end - threads.begin() <= 0; };
    while (!threads.empty() && dump_.streams.size() < WiniptDump::kMostThreads && !(is_rest_zero() && !dump_.streams.empty()))
      take_thread(threads);
    if (is_rest_zero()) threads = {};  // ipttool writes a buffer of the size that it asked for, which may be more than it then got
    if (!threads.empty())
      note(FindingKind::trace_lost,
           "has more than " + std::to_string(WiniptDump::kMostThreads) + " threads: the trace of the others is not used", 0);
    for (const auto& [key, problem] : problems_) add_finding(key.first, key.second, problem);
    return std::move(dump_);
  }

 private:
  struct Problem {
    uint64_t first_thread = 0, count = 0;
  };

  // Thread ids of Windows have 32 bits, so the second word of a dump without IPT_TRACE_DATA is zero; with it, it is the size.
  Status take_data_header(Bytes& threads) {
    const uint64_t size = number_at<uint32_t>(bytes_, 4);
    if (size == 0) return {};
    const auto version = number_at<uint16_t>(bytes_, 0);
    if (version != kKnownVersion)
      return Error{ErrorCode::unsupported_version,
                   path_ + " has version " + std::to_string(version) + " of a trace of ipt.sys, or is none: only version 1 is known", 0};
    if (number_at<uint16_t>(bytes_, 2) == 0) note(FindingKind::bad_record, "is marked as not valid by the driver (ValidTrace)", 0);
    threads = bytes_.subspan(kDataHeaderBytes);
    if (size > threads.size())
      note(FindingKind::trace_lost, "is cut: it has " + std::to_string(threads.size()) + " of " + std::to_string(size) + " bytes of trace",
           0);
    if (size < threads.size())
      dump_.warnings.push_back(path_ + ": " + std::to_string(threads.size() - size) + " bytes after the trace are not used");
    threads = threads.first(std::min<uint64_t>(size, threads.size()));
    return {};
  }

  void take_thread(Bytes& threads) {
    if (threads.size() < kThreadHeaderBytes) {
      note(FindingKind::trace_lost, "ends within the header of a thread", 0);
      threads = {};
      return;
    }
    const ThreadHeader header = header_at(threads);
    const Bytes ring =
        threads.subspan(kThreadHeaderBytes).first(std::min<uint64_t>(header.size_bytes, threads.size() - kThreadHeaderBytes));
    threads = threads.subspan(kThreadHeaderBytes + ring.size());
    if (ring.size() < header.size_bytes) note(FindingKind::trace_lost, "is cut: trace is missing", header.id);
    take_timing(header);
    AuxStream stream;
    stream.idx = static_cast<uint32_t>(dump_.streams.size());
    if (header.id != 0 && header.id <= kMostThreadId) {
      stream.tid = static_cast<int32_t>(header.id);
    } else {
      note(FindingKind::bad_record, "has a thread id of no thread: its trace is that of an unknown thread", header.id);
    }
    if (!seen_.insert(header.id).second) {
      note(FindingKind::trace_lost, "has a thread more than once: the trace of the first is used", header.id);
    } else if (header.offset_bytes > header.size_bytes) {
      note(FindingKind::trace_lost,
           "has a ring offset outside of the ring: which bytes are the oldest is not known, and they are not decoded", header.id);
    } else {
      unroll(ring, header, stream);
    }
    dump_.streams.push_back(std::move(stream));
  }

  void unroll(Bytes ring, const ThreadHeader& header, AuxStream& stream) {
    const uint64_t offset = header.offset_bytes, size = header.size_bytes;
    const Bytes newer = ring.first(std::min<uint64_t>(offset, ring.size())), older = ring.subspan(newer.size());
    // A few zeros may be the rest of a packet. After them, or at the end of the ring or of the file, only the first packet tells.
    const bool is_rest = older.size() < pt::kPsbBytes;
    const bool was_full = !is_zero(older) || (is_rest && !newer.empty() && !begins_with_psb(newer));
    if (!was_full) {
      constexpr uint64_t kMostBefore = 64;
      stream.add_payload(0, offset, newer, false);
      if (!newer.empty() && !begins_with_psb(newer, kMostBefore)) stream.lose_begin();
    } else if (offset == 0) {
      stream.add_payload(begins_with_psb(ring) ? 0 : size, size, ring, false);
    } else {
      stream.add_payload(offset, size - offset, older, false);
      stream.add_payload(size, offset, newer, false);
    }
    const auto has_psb = [](Bytes bytes) { return pt::find_psb(bytes, 0) < bytes.size(); };
    dump_.has_psb = dump_.has_psb || has_psb(newer) || (was_full && has_psb(older)) || (was_full && has_joined_psb(older, newer));
  }

  static bool has_joined_psb(Bytes older, Bytes newer) {
    const Bytes last = older.last(std::min<uint64_t>(older.size(), pt::kPsbBytes));
    const Bytes first = newer.first(std::min<uint64_t>(newer.size(), pt::kPsbBytes));
    std::vector<std::byte> joined(last.begin(), last.end());
    joined.insert(joined.end(), first.begin(), first.end());
    return pt::find_psb(joined, 0) < joined.size();
  }

  // One configuration is that of all threads: the driver sets them up alike.
  void take_timing(const ThreadHeader& header) {
    if (header.timing > kMostTiming) note(FindingKind::bad_record, "has unknown timing settings", header.id);
    if (header.timing == 0) return;
    const bool is_known = header.mtc_period <= kMostMtcPeriod;
    if (!is_known) note(FindingKind::bad_record, "has an MTC frequency above 15, which is not used", header.id);
    const uint8_t period = is_known ? static_cast<uint8_t>(header.mtc_period) : 0;
    if (dump_.has_timing && (dump_.mtc_period != period || dump_.tsc_ctc_ratio != header.ratio))
      note(FindingKind::clock_contradicts, "has MTC frequencies or ratios that differ from thread to thread: those of the first are used",
           header.id);
    if (std::exchange(dump_.has_timing, true)) return;
    dump_.mtc_period = period;
    dump_.tsc_ctc_ratio = header.ratio;
  }

  // A damaged dump may have the same problem in each thread: one finding for all.
  void note(FindingKind kind, const std::string& what, uint64_t thread) {
    Problem& problem = problems_[{kind, what}];
    if (problem.count++ == 0) problem.first_thread = thread;
  }

  void add_finding(FindingKind kind, const std::string& what, const Problem& problem) {
    Finding& finding = dump_.findings.emplace_back();
    finding.kind = kind;
    finding.what = path_ + " " + what;
    if (problem.first_thread != 0) finding.what += " (thread " + std::to_string(problem.first_thread) + ")";
    if (problem.count > 1) finding.what += ", " + std::to_string(problem.count) + " times";
  }

  const std::string path_;
  const Bytes bytes_;
  WiniptDump dump_;
  std::set<uint64_t> seen_;
  std::map<std::pair<FindingKind, std::string>, Problem> problems_;
};

}  // namespace

Result<WiniptDump> read_winipt(const MappedFile& file) { return DumpReader(file).read(); }

}  // namespace ptd
