// Differential test of the classifier against libipt's instruction decoder, over synthetic traces of enumerated encodings.
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ptdecode/insn.h"
#include "tests/unit/insn/encodings.h"

namespace ptd {
namespace {

constexpr uint64_t kBase = 0x10000;
constexpr size_t kRunLength = 200;          // sequential instructions in one trace
constexpr size_t kBatch = size_t{1} << 17;  // encodings in one image

/// The address of one encoding, and our result for it.
struct Item {
  uint64_t ip = 0;
  Insn ours;
};

int read_memory(uint8_t* buffer, size_t size, const pt_asid*, uint64_t ip, void* context) {
  const auto& memory = *static_cast<const std::vector<uint8_t>*>(context);
  if (ip < kBase || ip - kBase >= memory.size()) return -pte_nomap;
  const size_t count = std::min<size_t>(size, memory.size() - (ip - kBase));
  std::memcpy(buffer, memory.data() + (ip - kBase), count);
  return static_cast<int>(count);
}

pt_insn_class libipt_class(const Insn& insn) {
  switch (insn.cls) {
    case InsnClass::jump_direct:
    case InsnClass::jump_indirect:
    case InsnClass::jmpabs:
      return ptic_jump;
    case InsnClass::jcc:
      return ptic_cond_jump;
    case InsnClass::call_direct:
    case InsnClass::call_indirect:
      return ptic_call;
    case InsnClass::ret:
      return ptic_return;
    case InsnClass::far_call:
      return ptic_far_call;
    case InsnClass::far_jump:
      return ptic_far_jump;
    case InsnClass::far_ret:
      return ptic_far_return;
    case InsnClass::ptwrite:
      return ptic_ptwrite;
    default:
      return ptic_other;
  }
}

/// Collects encodings, lays them out as runs of sequential instructions and as single instructions, and lets libipt walk them.
class LibiptComparison {
 public:
  explicit LibiptComparison(ExecMode mode) : mode_(mode) {}

  void operator()(const Encoding& bytes, bool always_alone = false) {
    const Insn ours = classify(bytes, mode_);
    const bool alone = always_alone || ours.cls != InsnClass::other;
    const size_t keep = alone ? bytes.size() : ours.length_bytes;
    if (alone || run_ == kRunLength) run_ = 0;
    if (run_ == 0) {
      memory_.resize(memory_.size() + 16, 0xcc);  // the previous run ends in INT3s
      begin_trace(kBase + memory_.size());
    }
    items_.push_back({kBase + memory_.size(), ours});
    for (size_t i = 0; i < keep; ++i) memory_.push_back(std::to_integer<uint8_t>(bytes[i]));
    run_ = alone ? 0 : run_ + 1;
    if (items_.size() >= kBatch) flush();
  }

  void report(const char* name) {
    flush();
    while (!skipped_.empty()) {
      const std::vector<Encoding> again = std::move(skipped_);
      skipped_.clear();
      for (const Encoding& bytes : again) (*this)(bytes, true);
      flush();
    }
    std::printf("%s: %llu encodings walked, %llu equal, %llu unexplained\n", name, static_cast<unsigned long long>(compared_),
                static_cast<unsigned long long>(equal_), static_cast<unsigned long long>(unexplained_));
    for (const auto& [rule, count] : by_rule_) std::printf("  %10llu %s\n", static_cast<unsigned long long>(count), rule.c_str());
    EXPECT_GT(equal_, 10000U);
    EXPECT_EQ(unexplained_, 0U);
  }

 private:
  /// Writes PSB, MODE.Exec, PSBEND, TIP.PGE(ip) ([SDM] "Packet Definitions"). The trace's first item is the next one.
  void begin_trace(uint64_t ip) {
    traces_.push_back({trace_.size(), items_.size()});
    for (int i = 0; i < 8; ++i) put({0x02, 0x82});
    put({0x99, mode_ == ExecMode::bits64 ? 0x01 : mode_ == ExecMode::bits32 ? 0x02 : 0x00});
    put({0x02, 0x23});
    put({0xd1});  // TIP.PGE with a full IP
    for (int i = 0; i < 8; ++i) put({static_cast<int>(ip >> (8 * i) & 0xff)});
    put({0x7d, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01});  // FUP to nowhere, TIP.PGD: the walk ends in an error
  }
  void put(std::initializer_list<int> bytes) {
    for (int b : bytes) trace_.push_back(static_cast<uint8_t>(b));
  }

  void flush() {
    memory_.resize(memory_.size() + 32, 0xcc);
    pt_config config{};
    config.size = sizeof config;
    config.begin = trace_.data();
    config.end = trace_.data() + trace_.size();
    pt_insn_decoder* decoder = pt_insn_alloc_decoder(&config);
    ASSERT_NE(decoder, nullptr);
    pt_image_set_callback(pt_insn_get_image(decoder), read_memory, &memory_);
    for (size_t t = 0; t < traces_.size(); ++t) {
      const size_t end = t + 1 < traces_.size() ? traces_[t + 1].first_item : items_.size();
      walk(decoder, traces_[t].offset, traces_[t].first_item, end);
    }
    pt_insn_free_decoder(decoder);
    memory_.clear();
    trace_.clear();
    traces_.clear();
    items_.clear();
    run_ = 0;
  }

  void walk(pt_insn_decoder* decoder, size_t offset, size_t first, size_t end) {
    int status = pt_insn_sync_set(decoder, offset);
    for (size_t i = first; i < end; ++i) {
      while (status >= 0 && (status & pts_event_pending) != 0) {
        pt_event event{};
        status = pt_insn_event(decoder, &event, sizeof event);
      }
      pt_insn insn{};
      if (status >= 0) status = pt_insn_next(decoder, &insn, sizeof insn);
      if (!compare(items_[i], insn, status)) return skip_from(i + 1, end);
    }
  }

  /// libipt lost the run: its other instructions are walked later, each in its own trace.
  void skip_from(size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {
      Encoding bytes{};
      std::memcpy(bytes.data(), memory_.data() + (items_[i].ip - kBase), std::min<size_t>(items_[i].ours.length_bytes, bytes.size()));
      skipped_.push_back(bytes);
    }
  }

  bool compare(const Item& item, const pt_insn& theirs, int status) {
    ++compared_;
    const bool decoded = theirs.size != 0 && theirs.ip == item.ip;
    if (decoded ? theirs.size == item.ours.length_bytes && theirs.iclass == libipt_class(item.ours) : item.ours.cls == InsnClass::bad) {
      ++equal_;
      return true;
    }
    const uint8_t* bytes = memory_.data() + (item.ip - kBase);
    if (const char* rule = rule_of(bytes, item.ours, decoded ? &theirs : nullptr); rule != nullptr) {
      ++by_rule_[rule];
    } else if (++unexplained_ <= 12) {
      std::string text;
      char byte[8];
      for (int i = 0; i < 15; ++i) {
        std::snprintf(byte, sizeof byte, " %02x", bytes[i]);
        text += byte;
      }
      ADD_FAILURE() << "mode " << static_cast<int>(mode_) << ":" << text << " | ours: length " << int{item.ours.length_bytes} << " class "
                    << static_cast<int>(item.ours.cls) << " | libipt: length " << int{theirs.size} << " class " << theirs.iclass
                    << " status " << status;
    }
    return false;
  }

  const char* rule_of(const uint8_t* bytes, const Insn& ours, const pt_insn* theirs) const;

  struct Trace {
    size_t offset, first_item;
  };
  ExecMode mode_;
  std::vector<uint8_t> memory_, trace_;
  std::vector<Trace> traces_;
  std::vector<Item> items_;
  std::vector<Encoding> skipped_;
  size_t run_ = 0;
  uint64_t compared_ = 0, equal_ = 0, unexplained_ = 0;
  std::map<std::string, uint64_t> by_rule_;
};

/// Returns true for opcodes of 0F that have no ModRM, or an immediate, only in the legacy encoding; they are unassigned under VEX and EVEX.
bool legacy_only(unsigned opcode) {
  static const std::vector<std::pair<unsigned, unsigned>> kRanges = {{0x04, 0x0f}, {0x24, 0x27}, {0x30, 0x3f}, {0x78, 0x7b}, {0x80, 0x8f},
                                                                     {0xa0, 0xaf}, {0xb8, 0xba}, {0xc8, 0xcf}, {0xff, 0xff}, {0x20, 0x23}};
  return std::any_of(kRanges.begin(), kRanges.end(), [opcode](auto range) { return range.first <= opcode && opcode <= range.second; });
}

/// Returns the name of the rule that allows a difference, or null. docs/DIFFERENCES.md gives the reason of each rule.
const char* LibiptComparison::rule_of(const uint8_t* raw, const Insn& ours, const pt_insn* theirs) const {
  if (ours.cls == InsnClass::bad) return theirs != nullptr ? "no-such-instruction" : nullptr;
  const size_t at = opcode_at({reinterpret_cast<const std::byte*>(raw), 15}, mode_);
  const uint8_t* p = raw + at;
  const bool sequential = ours.cls == InsnClass::other;
  const bool same_length = theirs != nullptr && theirs->size == ours.length_bytes;
  switch (p[0]) {
    case 0xd5:
      return mode_ == ExecMode::bits64 ? "apx-rex2" : nullptr;
    case 0x62:
      if (!sequential) return nullptr;
      return (p[1] & 7) > 3 ? "vector-map-length" : (p[1] & 7) == 1 && legacy_only(p[4]) ? "vector-slot-length" : nullptr;
    case 0xc4:
      if (!sequential) return nullptr;
      return (p[1] & 0x1f) > 3 ? "vector-map-length" : (p[1] & 0x1f) == 1 && legacy_only(p[3]) ? "vector-slot-length" : nullptr;
    case 0xc5:
      return sequential && legacy_only(p[2]) ? "vector-slot-length" : nullptr;
    case 0x8f:
      return sequential && (p[1] & 0x1f) >= 8 ? "amd-xop" : nullptr;
    case 0x0f:
      break;
    default:
      return nullptr;
  }
  if (p[1] == 0x0f)
    return sequential && theirs != nullptr && theirs->iclass == ptic_other && theirs->size == at + 2 ? "amd-3dnow" : nullptr;
  if (p[1] == 0xb9 || p[1] == 0xff) return ours.detail == InsnDetail::ud ? "ud0-ud1-modrm" : nullptr;
  if (p[1] == 0xa6 || p[1] == 0xa7) return sequential ? "via-padlock" : nullptr;
  if (ours.detail == InsnDetail::rsm && same_length) return "rsm-far";
  if ((ours.detail == InsnDetail::eretu || ours.detail == InsnDetail::erets) && same_length) return "fred";
  if (p[1] == 0xae && theirs != nullptr && theirs->iclass == ptic_ptwrite && sequential && same_length) return "ptwrite-f3-not-last";
  if (p[1] == 0x01 && p[2] == 0xec && sequential && same_length) return "uiret-without-f3";
  return nullptr;
}

void compare_all(ExecMode mode, const char* name) {
  LibiptComparison comparison(mode);
  const Density density = Density::from_environment();
  const auto visit = [&](const Encoding& bytes, ExecMode) { comparison(bytes); };
  for_each_legacy(mode, density, visit);
  for_each_vector(mode, {false}, visit);
  comparison.report(name);
}

TEST(LibiptDifferential, Mode16) { compare_all(ExecMode::bits16, "16-bit"); }
TEST(LibiptDifferential, Mode32) { compare_all(ExecMode::bits32, "32-bit"); }
TEST(LibiptDifferential, Mode64) { compare_all(ExecMode::bits64, "64-bit"); }

}  // namespace
}  // namespace ptd
