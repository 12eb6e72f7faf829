// Random A32 and T32 programs, traced by our own models of PTM and ETMv3 trace units: the decoded flow equals the execution, by
// instruction.
#include <gtest/gtest.h>

#include <cstdlib>

#include "decoder/arm/legacy_decoder.h"
#include "tests/coresight/support/made_program.h"
#include "tests/coresight/support/made_told.h"

namespace ptd::test {
namespace {

constexpr uint64_t kMadeBase = 0x10000;

/// The configuration of a trace unit.
struct Setup {
  bool ptm = true;
  bool return_stack = false;   ///< PTM
  bool short_branches = true;  ///< exceptions in branch packets of any length ([ETMv3] "alternative encoding"; PTM always)
  unsigned context_bytes = 0;

  [[nodiscard]] arm::TraceConfig config() const {
    arm::TraceConfig config;
    config.protocol = ptm ? arm::Protocol::ptm : arm::Protocol::etmv3;
    config.idr0 = ptm ? 0x4100f310 : 0x4100f250 | (short_branches ? 1U << 20 : 0);
    config.idr1 = 0;
    config.configr = (return_stack ? 1U << 29 : 0) | (context_bytes == 0   ? 0
                                                      : context_bytes == 1 ? 1U << 14
                                                      : context_bytes == 2 ? 2U << 14
                                                                           : 3U << 14);
    return config;
  }
};

/// [PFT], [ETMv3]: packets.
class LegacyUnit {
 public:
  enum class Why : uint8_t { periodic = 0, trace_on = 1, overflow = 2 };
  LegacyUnit(std::mt19937& random, const Setup& setup) : random_(&random), setup_(setup) {}

  void async() { put({0, 0, 0, 0, 0, 0x80}); }
  void isync(const Place& place, Why why);
  void atom(bool executed);
  void branch(const Place& to) { put_address(0, to, -1); }
  void exception(const Place& to, uint32_t number) { put_address(0, to, static_cast<int>(number)); }
  void waypoint(const Place& at) { put_address(0x72, at, -1); }
  void exception_return() { put({0x76}); }
  void aside();
  std::vector<uint8_t> take() {
    flush();
    return std::move(out_);
  }

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((*random_)() % bound); }
  void put(std::initializer_list<unsigned> bytes) {
    flush();
    for (const unsigned byte : bytes) out_.push_back(static_cast<uint8_t>(byte));
  }
  void context() {
    for (unsigned i = 0; i < setup_.context_bytes; ++i) put({below(256)});
  }
  void flush();
  void put_address(unsigned header, const Place& place, int exception);

  std::mt19937* random_;
  Setup setup_;
  std::vector<uint8_t> out_;
  std::vector<bool> atoms_;
  Place last_;
};

void LegacyUnit::flush() {
  std::vector<bool> atoms;
  atoms.swap(atoms_);
  for (size_t at = 0; at < atoms.size();) {
    const size_t left = atoms.size() - at;
    if (setup_.ptm) {  // 1, zeros, a one, the atoms (the oldest first, 0 is E), 0
      const size_t count = 1 + below(static_cast<uint32_t>(std::min<size_t>(left, 5)));
      unsigned bits = 1;
      for (size_t i = 0; i < count; ++i) bits = bits << 1 | (atoms[at + i] ? 0 : 1);
      out_.push_back(static_cast<uint8_t>(0x80 | bits << 1));
      at += count;
      continue;
    }
    if (left >= 2 && below(4) == 0) {  // 1000ab10: 1 is N
      out_.push_back(static_cast<uint8_t>(0x82 | (atoms[at] ? 0 : 8) | (atoms[at + 1] ? 0 : 4)));
      at += 2;
      continue;
    }
    unsigned executed = 0;  // 1neeee00
    while (executed < left && executed < 15 && atoms[at + executed]) ++executed;
    const bool skipped = executed < left && !atoms[at + executed];
    out_.push_back(static_cast<uint8_t>(0x80 | executed << 2 | (skipped ? 0x40 : 0)));
    at += executed + (skipped ? 1 : 0);
  }
}

void LegacyUnit::atom(bool executed) {
  atoms_.push_back(executed);
  if (below(8) == 0) flush();
}

void LegacyUnit::isync(const Place& place, Why why) {
  const unsigned information = 0x01U | static_cast<unsigned>(why) << 5 | 0x08U;  // non-secure
  const auto address = [&] {
    put({static_cast<unsigned>(place.address & 0xff) | (place.mode == ExecMode::t32 ? 1U : 0U)});
    for (unsigned at = 1; at < 4; ++at) put({static_cast<unsigned>(place.address >> (8 * at) & 0xff)});
  };
  put({0x08});
  if (setup_.ptm) {
    address();
    put({information});
    context();
  } else {
    context();
    put({information});
    address();
  }
  last_ = place;
}

/// `exception`: its number, or a negative value for none.
void LegacyUnit::put_address(unsigned header, const Place& place, int exception) {
  if (header != 0) put({header});
  const bool t32 = place.mode == ExecMode::t32, same_set = place.mode == last_.mode;
  const uint64_t shift = t32 ? 1 : 2, value = place.address >> shift, before = last_.address >> shift;
  last_ = place;
  const bool six_at_end = setup_.ptm || setup_.short_branches;  // bit 6 of the last byte indicates that an exception follows
  unsigned bytes = 1;
  for (; bytes < 5; ++bytes) {
    const unsigned bits = 6 + 7 * (bytes - 1) - (bytes > 1 && six_at_end ? 1 : 0);
    const bool told = same_set && value >> bits == before >> bits;
    if (told && (exception < 0 || (six_at_end && bytes > 1)) && below(5) != 0) break;
  }
  const unsigned follows = exception >= 0 ? 0x40U : 0U;
  for (unsigned i = 0; i < bytes && i < 4; ++i) {
    const bool last = i + 1 == bytes;
    const auto part = static_cast<unsigned>(i == 0 ? (value & 0x3f) << 1 | 1 : value >> (7 * i - 1) & 0x7f);
    if (!last)
      put({part | 0x80});
    else
      put({i == 0 || !six_at_end ? part : (part & 0x3f) | follows});
  }
  if (bytes == 5)
    put({(t32 ? 0x10U | static_cast<unsigned>(place.address >> 28 & 0xf) : 0x08U | static_cast<unsigned>(place.address >> 29 & 7)) |
         follows});
  if (exception >= 0) put({static_cast<unsigned>(exception) << 1 | 1});
}

void LegacyUnit::aside() {
  switch (below(4)) {
    case 0:
      return put({0x0c});  // trigger
    case 1:
      put({setup_.ptm ? 0x42U : 0x42U});  // timestamp
      for (unsigned i = 0; i < 2; ++i) put({0x80 | below(128)});
      return put({below(128)});
    case 2:
      if (setup_.context_bytes == 0) return;
      put({0x6e});
      return context();
    default:
      return put({0x66});  // ignore
  }
}

/// Executes a program and traces it.
class LegacyRun {
 public:
  LegacyRun(std::mt19937& random, MadeProgram& program, const Setup& setup)
      : random_(&random), program_(&program), setup_(setup), unit_(random, setup), stack_depth_(1 + below(15)) {}

  std::vector<uint8_t> run(unsigned steps, std::vector<Told>& told);

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((*random_)() % bound); }
  Place anywhere() { return program_->any_of(below(2) == 0 ? ExecMode::a32 : ExecMode::t32); }
  void happen();
  void execute();
  void branch(const MadeInsn& insn);
  void is_told() { told_ = trace_.size(), ran_ = false; }

  std::mt19937* random_;
  MadeProgram* program_;
  Setup setup_;
  LegacyUnit unit_;
  size_t stack_depth_;
  Place pc_, before_;
  bool ran_ = false;  ///< instructions were executed since the last one output
  std::vector<Place> calls_, return_stack_;
  std::vector<Told> trace_;
  size_t told_ = 0;
};

void LegacyRun::happen() {
  const uint32_t chance = below(200);
  if (chance < 8) {
    if (ran_) unit_.waypoint(before_);
    constexpr uint32_t kNumbers[] = {2, 3, 10, 12, 14, 15};
    const uint32_t number = kNumbers[below(std::size(kNumbers))];
    trace_.push_back({true, pc_.address, number});
    is_told();
    pc_ = anywhere();
    unit_.exception(pc_, number);
  } else if (chance < 13) {  // tracing stops for a while, or packets are lost
    trace_.resize(told_);
    ran_ = false;
    pc_ = anywhere();
    unit_.isync(pc_, below(2) == 0 ? LegacyUnit::Why::trace_on : LegacyUnit::Why::overflow);
    return_stack_.clear();
  } else if (chance < 18 && !ran_) {
    if (below(2) == 0) unit_.async();
    unit_.isync(pc_, LegacyUnit::Why::periodic);
    return_stack_.clear();
  } else if (chance < 60) {
    unit_.aside();
  }
}

void LegacyRun::branch(const MadeInsn& insn) {
  const Place back{pc_.mode, pc_.address + insn.size};
  if (insn.kind == MadeInsn::Kind::direct) {
    pc_ = insn.target;
    unit_.atom(true);
  } else {
    const bool to_caller = insn.kind == MadeInsn::Kind::returns && !calls_.empty() && below(4) != 0;
    pc_ = to_caller ? calls_.back() : anywhere();
    if (to_caller) calls_.pop_back();
    const bool on_stack = setup_.return_stack && !insn.link && !return_stack_.empty() && return_stack_.back() == pc_;
    if (on_stack) return_stack_.pop_back();
    if (on_stack || !setup_.ptm) unit_.atom(true);
    if (!on_stack) unit_.branch(pc_);
  }
  if (!insn.link) return;
  calls_.push_back(back);
  return_stack_.push_back(back);
  if (return_stack_.size() > stack_depth_) return_stack_.erase(return_stack_.begin());
}

void LegacyRun::execute() {
  const MadeInsn& insn = program_->at(pc_);
  using Kind = MadeInsn::Kind;
  trace_.push_back({false, pc_.address, 0});
  before_ = pc_;
  const bool is_branch = insn.kind == Kind::direct || insn.kind == Kind::indirect || insn.kind == Kind::returns;
  const bool taken = is_branch && (!insn.conditional || below(2) == 0);
  const bool waypoint = is_branch || insn.kind == Kind::isb || !setup_.ptm;
  if (taken) {
    branch(insn);
  } else {
    if (waypoint) unit_.atom(!is_branch);
    pc_.address += insn.size;
  }
  if (waypoint)
    is_told();
  else
    ran_ = true;
}

std::vector<uint8_t> LegacyRun::run(unsigned steps, std::vector<Told>& told) {
  pc_ = anywhere();
  unit_.async();
  unit_.isync(pc_, LegacyUnit::Why::trace_on);
  for (unsigned i = 0; i < steps; ++i) {
    happen();
    execute();
  }
  trace_.resize(told_);
  told = std::move(trace_);
  return unit_.take();
}

Decoded decode(const Setup& setup, const MadeProgram& program, const std::vector<uint8_t>& bytes, size_t capacity) {
  arm::FollowOptions options;
  const Timeline timeline = timeline_of(program, options.default_space);
  const ContextTrack contexts;
  arm::LegacyDecoder decoder(timeline, contexts, setup.config(), options);
  return decode_segment(decoder, bytes, capacity);
}

void compare(bool ptm) {
  const char* seeds = std::getenv("PTDECODE_SEEDS");  // how many
  const unsigned count = seeds == nullptr ? 500U : static_cast<unsigned>(std::atoi(seeds));
  for (unsigned seed = 0; seed < count; ++seed) {
    std::mt19937 random(seed);
    MadeProgram program(random, kMadeBase, true);
    const Setup setup{ptm, ptm && random() % 2 == 0, random() % 2 == 0, static_cast<unsigned>(random() % 2 == 0 ? 0 : 1U << random() % 3)};
    std::vector<Told> told;
    const std::vector<uint8_t> bytes = LegacyRun(random, program, setup).run(50 + static_cast<unsigned>(random() % 400), told);
    const Decoded decoded = decode(setup, program, bytes, 1 + static_cast<size_t>(random() % 100));
    size_t same = 0;
    while (same < decoded.told.size() && same < told.size() && decoded.told[same] == told[same]) ++same;
    ASSERT_EQ(same, told.size()) << "seed " << seed << " of " << decoded.told.size() << " gap " << decoded.first_gap;
    ASSERT_EQ(decoded.told.size(), told.size()) << "seed " << seed;
    ASSERT_EQ(decoded.overflows + decoded.other_gaps + decoded.marked, 0U) << "seed " << seed << " " << decoded.first_gap;
  }
}

TEST(ArmMadeFlow, OfPtmIsWhatRan) { compare(true); }
TEST(ArmMadeFlow, OfEtmv3IsWhatRan) { compare(false); }

}  // namespace
}  // namespace ptd::test
