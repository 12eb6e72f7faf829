// Timeline with a real kernel that patches itself (corpus case pt-kernel-pokes). With all records there are no findings; with records
// dropped the losses are found and healed. The second source is the copy of the text taken after the run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "image/likeliest_section.h"
#include "ptdecode/timeline.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/image/timeline_support.h"

namespace ptd {
namespace {

using namespace timeline_test;  // NOLINT: helpers of this folder
namespace fs = std::filesystem;

std::vector<std::byte> read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> content((std::istreambuf_iterator<char>(in)), {});
  const auto* data = reinterpret_cast<const std::byte*>(content.data());
  return {data, data + content.size()};
}

template <class T>
T load(Bytes bytes, size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// TEXT_POKE records (type 20) of a perf.data whose trailers are TID, TIME, CPU, IDENTIFIER.
std::vector<Edit> read_pokes(Bytes file) {
  std::vector<Edit> pokes;
  const auto begin = load<uint64_t>(file, 40), size = load<uint64_t>(file, 48);
  for (uint64_t at = begin; at + 8 <= begin + size && at + 8 <= file.size();) {
    const auto type = load<uint32_t>(file, at);
    const uint64_t length = load<uint16_t>(file, at + 6);
    if (length < 8) break;
    if (type == 20) {
      const size_t old_size = load<uint16_t>(file, at + 16), new_size = load<uint16_t>(file, at + 18);
      const Bytes all = file.subspan(at + 20, old_size + new_size);
      Edit edit;
      edit.ip = Ip{load<uint64_t>(file, at + 8)};
      edit.old_bytes.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(old_size));
      edit.new_bytes.assign(all.begin() + static_cast<ptrdiff_t>(old_size), all.end());
      edit.time.first = edit.time.last = TimeNs{load<uint64_t>(file, at + length - 24)};
      edit.record_offset_bytes = at;
      pokes.push_back(std::move(edit));
    }
    at += length;
    if (type == 71) at += load<uint64_t>(file, at - length + 8);  // AUXTRACE: its payload follows
  }
  return pokes;
}

/// LOAD segments of an ELF core file.
std::vector<DatedCopy> read_kcore(const CodeBytes& file, Interval taken) {
  std::vector<DatedCopy> copies;
  const auto table = load<uint64_t>(file.bytes, 32);
  const auto count = load<uint16_t>(file.bytes, 56);
  for (uint16_t i = 0; i < count; ++i) {
    const uint64_t header = table + uint64_t{56} * i;
    if (load<uint32_t>(file.bytes, header) != 1) continue;
    DatedCopy copy;
    copy.ip = Ip{load<uint64_t>(file.bytes, header + 16)};
    copy.code = {file.owner, file.bytes.subspan(load<uint64_t>(file.bytes, header + 8), load<uint64_t>(file.bytes, header + 32))};
    copy.taken = taken;
    copies.push_back(copy);
  }
  return copies;
}

struct Capture {
  std::vector<Edit> pokes;
  CodeBytes base, later;

  [[nodiscard]] Interval before_all() const { return {kTimeMin, TimeNs{pokes.front().time.first.value - 1}}; }
  [[nodiscard]] Interval after_all() const { return {TimeNs{pokes.back().time.first.value + 1}, kTimeMax}; }
};

/// The unpacked case: PTDECODE_KERNEL_POKES, or recording.tar.xz of the corpus unpacked into a temporary folder.
const Capture* capture() {
  static const Capture* loaded = []() -> const Capture* {
    const char* unpacked = std::getenv("PTDECODE_KERNEL_POKES");
    const char* corpus = std::getenv("PTDECODE_CORPUS");
    fs::path root = unpacked != nullptr ? unpacked : "";
    fs::path temporary;
    if (unpacked == nullptr) {
      const fs::path archive =
          fs::path(corpus != nullptr ? corpus : PTD_SOURCE_DIR "/../shared/corpus") / "pt-kernel-pokes/recording.tar.xz";
      if (!fs::exists(archive)) return nullptr;
      root = temporary = fs::path(testing::TempDir()) / ("ptdecode-pokes-" + std::to_string(getpid()));
      fs::create_directories(root);
      const std::string command = "tar -xJf '" + archive.string() + "' -C '" + root.string() + "'";
      if (std::system(command.c_str()) != 0) return nullptr;
    }
    auto* result = new Capture;
    result->pokes = read_pokes(read_file(root / "recording/data"));
    result->base = owned(read_file(root / "recording/kcore_dir/kcore"));
    result->later = owned(read_file(root / "after/kcore_dir/kcore"));
    if (!temporary.empty()) fs::remove_all(temporary);
    return result;
  }();
  return loaded;
}

#define NEED_CAPTURE(name)                                                                              \
  const Capture* name##_loaded = capture();                                                             \
  if (name##_loaded == nullptr) GTEST_SKIP() << "corpus case pt-kernel-pokes absent (PTDECODE_CORPUS)"; \
  const Capture& name = *name##_loaded

void add_copies(TimelineBuilder& builder, const CodeBytes& file, Interval taken) {
  for (DatedCopy& copy : read_kcore(file, taken)) builder.add_copy(std::move(copy));
}

std::map<FindingKind, size_t> count(const Timeline& timeline) {
  std::map<FindingKind, size_t> counts;
  for (const Finding& finding : timeline.findings()) ++counts[finding.kind];
  return counts;
}

/// Returns the number of bytes of `file`'s segments, as far as a section maps them, that differ from the timeline at `t`.
size_t differing_bytes(const Timeline& timeline, const CodeBytes& file, uint64_t t) {
  size_t differing = 0;
  CodeView view(timeline);
  for (const DatedCopy& copy : read_kcore(file, {})) {
    const uint64_t size = copy.code.bytes.size();
    for (uint64_t offset = 0; offset < size;) {
      const Got got = fetch(view, kKernelSpace, copy.ip.value + offset, at(t), 1);
      if (got.candidates.size() != 1) {
        ++differing, ++offset;
        continue;
      }
      const Bytes held = got.candidates[0].bytes;
      const uint64_t length = std::min<uint64_t>(held.size(), size - offset);
      for (uint64_t i = 0; i < length; ++i) differing += held[i] != copy.code.bytes[offset + i];
      offset += length;
    }
  }
  return differing;
}

/// Returns the result of a fetch at a point in time, for each poke's address at every poke's time, as text.
std::vector<std::string> sample(const Timeline& timeline, const std::vector<Edit>& pokes) {
  std::vector<std::string> out;
  CodeView view(timeline);
  std::set<uint64_t> ips;
  for (const Edit& poke : pokes) ips.insert(poke.ip.value);
  for (const uint64_t ip : ips) {
    for (const Edit& poke : pokes) {
      for (const uint64_t t : {poke.time.first.value - 1, poke.time.first.value, poke.time.first.value + 1}) {
        const Got got = fetch(view, kKernelSpace, ip, at(t));
        std::string line = got.hex();
        for (const CodeCandidate& c : got.candidates)
          line += " " + std::to_string(c.certain.first.value) + "-" + std::to_string(c.certain.last.value);
        out.push_back(line);
      }
    }
  }
  return out;
}

TEST(TimelineKernel, AllRecordsLeaveNothingToFind) {
  NEED_CAPTURE(kernel);
  ASSERT_EQ(kernel.pokes.size(), 813U);  // case.json
  TimelineBuilder builder;
  add_copies(builder, kernel.base, kernel.before_all());
  add_copies(builder, kernel.later, kernel.after_all());
  for (const Edit& poke : kernel.pokes) builder.add_edit(poke);
  const Timeline timeline = builder.build();
  for (const Finding& finding : timeline.findings()) ADD_FAILURE() << std::hex << finding.ip.value << " " << finding.what;
  EXPECT_EQ(differing_bytes(timeline, kernel.base, kernel.before_all().last.value), 0U);
  EXPECT_EQ(differing_bytes(timeline, kernel.later, kernel.after_all().first.value), 0U);
}

TEST(TimelineKernel, VersionsAreTheRecordsBytes) {
  NEED_CAPTURE(kernel);
  TimelineBuilder builder;
  add_copies(builder, kernel.base, kernel.before_all());
  for (const Edit& poke : kernel.pokes) builder.add_edit(poke);
  const Timeline timeline = builder.build();
  CodeView view(timeline);
  for (const Edit& poke : kernel.pokes) {
    const auto t = poke.time.first.value;
    const auto check = [&](uint64_t when, const std::vector<std::byte>& want) {
      const auto span = static_cast<unsigned>(std::min<size_t>(want.size(), 15));
      const Got got = fetch(view, kKernelSpace, poke.ip.value, at(when), std::max(span, 1U));
      if (want.empty()) {
        EXPECT_EQ(got.candidates.size(), 0U) << std::hex << poke.ip.value;
        return;
      }
      EXPECT_EQ(got.hex(), to_hex(Bytes{want}.first(span))) << std::hex << poke.ip.value;
    };
    check(t - 1, poke.old_bytes);
    check(t + 1, poke.new_bytes);
  }
}

TEST(TimelineKernel, BaseCopyOfAnotherMomentGivesTheSameTimeline) {
  NEED_CAPTURE(kernel);
  TimelineBuilder straight;
  add_copies(straight, kernel.base, kernel.before_all());
  for (const Edit& poke : kernel.pokes) straight.add_edit(poke);

  std::vector<std::byte> moved(kernel.base.bytes.begin(), kernel.base.bytes.end());
  const size_t half = kernel.pokes.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    for (const DatedCopy& copy : read_kcore(kernel.base, {})) {
      const uint64_t offset = kernel.pokes[i].ip - copy.ip;
      if (offset >= copy.code.bytes.size()) continue;
      const auto where = copy.code.bytes.data() - kernel.base.bytes.data() + static_cast<ptrdiff_t>(offset);
      std::copy(kernel.pokes[i].new_bytes.begin(), kernel.pokes[i].new_bytes.end(), moved.begin() + where);
    }
  }
  const TimeNs then = kernel.pokes[half - 1].time.first;
  const std::vector<std::string> want = sample(straight.build(), kernel.pokes);
  for (const Interval taken : {Interval{TimeNs{then.value + 1}, TimeNs{then.value + 1}}, Interval{}}) {  // dated and undated
    TimelineBuilder builder;
    add_copies(builder, owned(moved), taken);
    for (const Edit& poke : kernel.pokes) builder.add_edit(poke);
    const Timeline timeline = builder.build();
    auto found = count(timeline);
    const bool is_dated = taken != Interval{};  // then nothing is odd about it
    EXPECT_EQ(found[FindingKind::base_copy_redated] == 0, is_dated);
    EXPECT_EQ(found.size(), 1U);
    EXPECT_TRUE(sample(timeline, kernel.pokes) == want);
  }
}

/// The fate of the dropped records.
struct Loss {
  size_t dropped = 0, found = 0, healed = 0;
  size_t silent = 0;     ///< times at which the true bytes are not among the candidates
  size_t ambiguous = 0;  ///< times with several candidates, including the truth
};

Loss drop_every_tenth(const Capture& kernel, size_t residue, bool with_later_copy) {
  Loss loss;
  TimelineBuilder whole, builder;
  add_copies(whole, kernel.base, kernel.before_all());
  add_copies(builder, kernel.base, kernel.before_all());
  if (with_later_copy) add_copies(builder, kernel.later, kernel.after_all());
  std::vector<const Edit*> dropped;
  for (size_t i = 0; i < kernel.pokes.size(); ++i) {
    whole.add_edit(kernel.pokes[i]);
    if (i % 10 == residue) {
      dropped.push_back(&kernel.pokes[i]);
    } else {
      builder.add_edit(kernel.pokes[i]);
    }
  }
  loss.dropped = dropped.size();
  const Timeline timeline = builder.build();
  loss.healed = count(timeline)[FindingKind::poke_healed];
  CodeView truth(whole.build()), view(timeline);
  for (const Edit* poke : dropped) {
    bool found = false;
    for (const Finding& finding : timeline.findings()) {
      const bool healed = finding.kind == FindingKind::poke_healed || finding.kind == FindingKind::poke_lost_by_copy;
      found = found || (healed && finding.time.contains(poke->time) && finding.ip.value < poke->ip.value + 5 &&
                        poke->ip.value < finding.ip.value + 5);
    }
    loss.found += found;
  }
  for (size_t i = 0; i < kernel.pokes.size(); i += 7) {
    const Edit& poke = kernel.pokes[i];
    for (const Edit& other : kernel.pokes) {
      const Interval when = at(other.time.first.value + 1);
      const Got want = fetch(truth, kKernelSpace, poke.ip.value, when, 5), got = fetch(view, kKernelSpace, poke.ip.value, when, 5);
      if (want.candidates.empty()) continue;
      bool among = false;
      for (const CodeCandidate& c : got.candidates)
        among = among || to_hex(c.bytes.first(std::min<size_t>(5, c.bytes.size()))) == want.hex();
      if (!among) ++loss.silent;
      if (among && got.candidates.size() > 1) ++loss.ambiguous;
    }
  }
  return loss;
}

/// Returns what old bytes can prove, computed per address: the number of remaining records whose old bytes do not match the previous
/// record.
size_t broken_joins(const Capture& kernel, size_t residue) {
  std::map<uint64_t, std::vector<std::byte>> held;
  for (const Edit& poke : kernel.pokes) held.emplace(poke.ip.value, poke.old_bytes);  // the content before all records
  size_t broken = 0;
  for (size_t i = 0; i < kernel.pokes.size(); ++i) {
    if (i % 10 == residue) continue;
    std::vector<std::byte>& now = held[kernel.pokes[i].ip.value];
    broken += now != kernel.pokes[i].old_bytes;
    now = kernel.pokes[i].new_bytes;
  }
  return broken;
}

// All ten ways to drop every tenth record: each resulting mismatch is reported, nothing else is, and if the true bytes are not among the
// candidates, the loss left no evidence (a pair of lost records that cancel each other, or no later record at the address).
TEST(TimelineKernel, LostRecordsAreFoundByOldBytes) {
  NEED_CAPTURE(kernel);
  for (size_t residue = 0; residue < 10; ++residue) {
    const Loss alone = drop_every_tenth(kernel, residue, false), both = drop_every_tenth(kernel, residue, true);
    std::printf(
        "residue %zu: %zu dropped, old bytes find %zu (silent %zu, ambiguous %zu), with the later copy %zu (silent %zu, ambiguous %zu)\n",
        residue, alone.dropped, alone.found, alone.silent, alone.ambiguous, both.found, both.silent, both.ambiguous);
    EXPECT_EQ(alone.healed, broken_joins(kernel, residue)) << "residue " << residue;
    EXPECT_GE(alone.found, 65U);
    EXPECT_GE(both.found, 75U);
    EXPECT_LT(both.silent, alone.silent);
  }
}

// A trampoline is removed, and a module is loaded to its place: only a poke record gives its code. A clock that is late still finds the
// trampoline.
TEST(LikeliestSection, CodeOfARecordIsNotOfASectionThatEndedBeforeIt) {
  TimelineBuilder builder;
  Section trampoline;
  trampoline.ip = Ip{kKernelIp};
  trampoline.size_bytes = 4;
  trampoline.live = during(100, 200);
  builder.add_section(std::move(trampoline));
  builder.add_edit(poke(kKernelIp, {}, {0x55, 0xc3}, 100));
  builder.remove(kKernelSpace, Ip{kKernelIp}, 4, TimeNs{200});
  builder.add_edit(poke(kKernelIp, {}, {0x90, 0xc3}, 300));
  const Timeline timeline = builder.build();
  EXPECT_EQ(likeliest_section(timeline, kKernelSpace, Ip{kKernelIp}, TimeNs{150}).id, 0U);
  EXPECT_EQ(likeliest_section(timeline, kKernelSpace, Ip{kKernelIp}, TimeNs{250}).id, 0U);
  EXPECT_EQ(likeliest_section(timeline, kKernelSpace, Ip{kKernelIp}, TimeNs{350}).id, kNoSection);
}

}  // namespace
}  // namespace ptd
