// Finds times of a jitdump that cannot be true.
#include "recording/image/jit_times.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

namespace ptd {
namespace {

constexpr uint64_t kSlackNs = 1'000'000;  // between a record and what it records, and between records of two threads

bool is_after(TimeNs a, TimeNs b) { return a.value > b.value && a.value - b.value > kSlackNs; }

/// Returns whether `a` is before `b`, and the conversion between clocks does not explain it.
bool is_before(TimeNs a, TimeNs b) {
  constexpr uint64_t kRoundingNs = 100;
  return a < b && b.value - a.value > kRoundingNs;
}

/// Returns the entries of a longest sequence whose times do not go back.
std::vector<bool> in_order(const std::vector<DatedCode>& codes) {
  std::vector<size_t> ends;  // of the sequence of each length, the entry with the earliest time
  std::vector<size_t> before(codes.size(), ~size_t{0});
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto later = [&](TimeNs time, size_t entry) { return time < codes[entry].time; };
    const auto at = std::upper_bound(ends.begin(), ends.end(), codes[i].time, later);
    if (at != ends.begin()) before[i] = *std::prev(at);
    if (at == ends.end()) {
      ends.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<bool> ordered(codes.size());
  for (size_t i = ends.empty() ? ~size_t{0} : ends.back(); i != ~size_t{0}; i = before[i]) ordered[i] = true;
  return ordered;
}

/// Adds code that was logged after code at its addresses, but has an earlier time.
void add_replaced_later(const std::vector<DatedCode>& codes, std::vector<bool>& displaced) {
  struct Last {
    uint64_t end = 0;
    size_t entry = 0;
  };
  std::map<uint64_t, Last> last;  // by first address; disjoint
  for (size_t i = 0; i < codes.size(); ++i) {
    const JitCode& code = codes[i].code;
    const uint64_t first = code.address, end = first + std::min(code.size_bytes, ~first);
    auto at = last.upper_bound(first);
    if (at != last.begin() && std::prev(at)->second.end > first) --at;
    while (at != last.end() && at->first < end) {
      const uint64_t old_first = at->first;
      const Last old = at->second;
      if (codes[i].time < codes[old.entry].time) displaced[i] = displaced[old.entry] = true;
      at = last.erase(at);
      if (old_first < first) last[old_first] = {first, old.entry};
      if (old.end > end) last[end] = old;
    }
    if (end > first) last[first] = {end, i};
  }
}

}  // namespace

void report_jitdump(ImageBuild& image, const JitdumpMapping& mapping, FindingKind kind, TimeNs since, const std::string& what) {
  Finding finding;
  finding.kind = kind;
  finding.space = mapping.space;
  finding.time = {since, kTimeMax};
  finding.what = mapping.path + ": " + what;
  image.builder.add_finding(std::move(finding));
}

bool is_all_later(const std::vector<DatedCode>& codes, const JitClock& clock) {
  return std::all_of(codes.begin(), codes.end(), [&](const DatedCode& entry) { return is_after(entry.time, clock.last_record); });
}

void repair_times(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping, TimeNs ended, bool all_later) {
  uint64_t impossible = 0;
  TimeNs previous = mapping.mapped_at;
  for (DatedCode& entry : codes) {
    if (all_later || entry.code.time == 0 || is_before(entry.time, mapping.mapped_at) || is_after(entry.time, ended)) {
      entry.time = previous;
      ++impossible;
    }
    previous = entry.time;
  }
  if (impossible == 0) return;
  for (DatedCode& entry : codes) entry.assumed = true;
  report_jitdump(
      image, mapping, FindingKind::bad_record, mapping.mapped_at,
      std::to_string(impossible) + " of " + std::to_string(codes.size()) +
          " records have a time at which their process did not log code: the order in the file is used instead, and all code of the file "
          "is assumed");
}

void check_clock(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping, const JitClock& clock, TimeNs begin) {
  const bool has_start = mapping.started > kTimeMin;
  const TimeNs least = has_start ? mapping.started : clock.first_record;
  if (begin == kTimeMin || begin >= mapping.mapped_at || !is_before(begin, least)) return;
  for (DatedCode& entry : codes) entry.assumed = true;
  report_jitdump(image, mapping, FindingKind::bad_record, mapping.mapped_at,
                 "its header has a time " + std::to_string(least.value - begin.value) + " ns before " +
                     (has_start ? "its process started" : "the recording, in which its process mapped it") +
                     ", so its times are of another clock: all code of the file is assumed");
}

void mark_disorder(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping) {
  const std::vector<bool> ordered = in_order(codes);
  std::vector<bool> displaced(codes.size());
  TimeNs before = kTimeMin;                        // of the entries in order
  std::unordered_map<uint32_t, TimeNs> of_thread;  // the same, of each thread: it logs one record after the other
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto own = of_thread.find(codes[i].code.tid);
    if (ordered[i]) {
      of_thread[codes[i].code.tid] = before = codes[i].time;
    } else {
      displaced[i] = is_after(before, codes[i].time) || (own != of_thread.end() && codes[i].time < own->second);
    }
  }
  of_thread.clear();
  TimeNs next = kTimeMax;
  for (size_t i = codes.size(); i-- > 0;) {
    const auto own = of_thread.find(codes[i].code.tid);
    if (ordered[i]) {
      of_thread[codes[i].code.tid] = next = codes[i].time;
    } else if (is_after(codes[i].time, next) || (own != of_thread.end() && own->second < codes[i].time)) {
      displaced[i] = true;
    }
  }
  add_replaced_later(codes, displaced);
  AddressRanges doubtful;
  uint64_t count = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (!displaced[i]) continue;
    ++count;
    doubtful.add(codes[i].code.address, std::max<uint64_t>(codes[i].code.size_bytes, 1));
    if (codes[i].code.move) doubtful.add(codes[i].code.old_address, std::max<uint64_t>(codes[i].code.size_bytes, 1));
  }
  if (count == 0) return;
  for (DatedCode& entry : codes) {
    if (doubtful.overlap(entry.code.address, std::max<uint64_t>(entry.code.size_bytes, 1))) entry.assumed = true;
  }
  report_jitdump(image, mapping, FindingKind::bad_record, mapping.mapped_at,
                 std::to_string(count) + " of " + std::to_string(codes.size()) +
                     " records have times that contradict the order of the file: all code at their addresses is assumed");
}

void mark_equal_times(ImageBuild& image, std::vector<DatedCode>& codes, const JitdumpMapping& mapping) {
  const auto overlap = [](const JitCode& a, const JitCode& b) { return b.address - a.address < a.size_bytes; };  // b is not before a
  const auto same = [](const JitCode& a, const JitCode& b) {
    return !a.move && !b.move && a.address == b.address && std::equal(a.code.begin(), a.code.end(), b.code.begin(), b.code.end());
  };
  std::vector<DatedCode*> at_once;
  uint64_t marked = 0;
  const auto mark = [&marked](DatedCode& entry) {
    marked += entry.assumed ? 0 : 1;
    entry.assumed = true;
  };
  for (size_t first = 0, end = 0; first < codes.size(); first = end) {
    at_once.clear();
    for (end = first; end < codes.size() && codes[end].time == codes[first].time; ++end) at_once.push_back(&codes[end]);
    std::stable_sort(at_once.begin(), at_once.end(),
                     [](const DatedCode* a, const DatedCode* b) { return a->code.address < b->code.address; });
    DatedCode* widest = nullptr;  // of those before: the one that ends last
    for (DatedCode* entry : at_once) {
      if (widest != nullptr && overlap(widest->code, entry->code) && !same(widest->code, entry->code)) {
        mark(*widest);
        mark(*entry);
      }
      if (widest == nullptr || entry->code.address + entry->code.size_bytes > widest->code.address + widest->code.size_bytes)
        widest = entry;
    }
  }
  if (marked != 0)
    report_jitdump(image, mapping, FindingKind::bad_record, mapping.mapped_at,
                   std::to_string(marked) +
                       " functions have the time of another one at the same address: nothing says which of them ran when, so "
                       "they are assumed");
}

}  // namespace ptd
