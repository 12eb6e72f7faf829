// Generated programs and paths, encoded by a trace unit of the tests: the decoded flow equals the path, instruction by instruction.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>

#include "decoder/arm/decoder.h"
#include "ptdecode/recording.h"
#include "tests/coresight/support/folder.h"
#include "tests/coresight/support/made_told.h"
#include "tests/coresight/support/made_unit.h"

namespace ptd::test {
namespace {

struct MadeTrace {
  std::vector<uint8_t> bytes;
  std::vector<Told> told;
  size_t overflows = 0;
};

/// Runs a program and has it traced.
class MadeRun {
 public:
  MadeRun(std::mt19937& random, MadeProgram& program, const arm::TraceConfig& config)
      : random_(&random), program_(&program), config_(config), unit_(random, config), stack_depth_(1 + below(15)) {}

  MadeTrace run(unsigned steps);

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((*random_)() % bound); }
  [[nodiscard]] Place anywhere();
  void start_at(const Place& place);
  void happen();
  void execute();
  void branch(const MadeInsn& insn, bool taken);
  void take_exception();
  void is_p0();
  void note_commits();

  std::mt19937* random_;
  MadeProgram* program_;
  arm::TraceConfig config_;
  MadeUnit unit_;
  size_t stack_depth_;
  Place pc_;
  bool owes_target_ = false;  ///< the last branch's target is not output yet
  bool at_start_ = true;      ///< nothing ran since the last P0 element
  bool is64_ = true;
  std::vector<Place> calls_, return_stack_;
  MadeTrace trace_;
  size_t told_ = 0, committed_ = 0;  // of trace_.told
  std::deque<size_t> in_flight_;     // the output so far at each P0 element
};

Place MadeRun::anywhere() {
  if (is64_) return program_->any_of(ExecMode::a64);
  return program_->any_of(below(2) == 0 ? ExecMode::a32 : ExecMode::t32);
}

void MadeRun::note_commits() {
  while (in_flight_.size() > unit_.in_flight()) {
    committed_ = in_flight_.front();
    in_flight_.pop_front();
  }
}

void MadeRun::is_p0() {
  told_ = trace_.told.size();
  in_flight_.push_back(told_);
  at_start_ = true;
  note_commits();
}

void MadeRun::start_at(const Place& place) {
  pc_ = place;
  is64_ = place.mode == ExecMode::a64;
  owes_target_ = false;
  at_start_ = true;
  unit_.address(pc_, true);
}

void MadeRun::take_exception() {
  constexpr uint32_t kNumbers[] = {2, 3, 0xa, 0xb, 0xc, 0xe, 0xf, 0x2e};
  const uint32_t number = kNumbers[below(std::size(kNumbers))];
  const bool is_target = owes_target_ && at_start_ && below(2) == 0;
  if (owes_target_ && !is_target) unit_.address(pc_, false);
  unit_.exception(number, pc_, is_target);
  trace_.told.push_back({true, pc_.address, number});
  is_p0();
  unit_.set_level(1);
  is64_ = !program_->has_aarch32() || below(3) != 0;
  start_at(is64_ ? program_->any_of(ExecMode::a64) : program_->any_of(ExecMode::a32));
}

/// What may happen before an instruction.
void MadeRun::happen() {
  const uint32_t chance = below(240);
  if (chance < 10) return take_exception();
  if (chance < 16 || (chance < 20 && trace_.overflows < 3)) {
    const bool overflow = chance >= 16;  // else tracing stops for a while
    trace_.overflows += overflow ? 1 : 0;
    trace_.told.resize(overflow ? committed_ : told_);
    told_ = trace_.told.size();
    if (overflow) {
      in_flight_.clear();
      unit_.overflow();
    }
    if (!overflow || below(2) == 0) unit_.trace_on();
    return_stack_.clear();
    return start_at(anywhere());
  }
  if (owes_target_) unit_.address(pc_, false);
  owes_target_ = false;
  if (chance < 25 && at_start_) {
    unit_.sync();
    return_stack_.clear();
    return start_at(pc_);
  }
  if (chance < 80) unit_.aside();
  note_commits();
}

void MadeRun::execute() {
  const MadeInsn& insn = program_->at(pc_);
  trace_.told.push_back({false, pc_.address, 0});
  const Place next{pc_.mode, pc_.address + insn.size};
  using Kind = MadeInsn::Kind;
  if (insn.kind == Kind::plain || (insn.kind == Kind::wait && !config_.wait_is_p0())) {
    pc_ = next;
    at_start_ = false;
    return;
  }
  const bool taken = !insn.conditional || below(2) == 0;
  unit_.atom(taken, *program_);
  is_p0();
  if (insn.kind == Kind::isb || insn.kind == Kind::wait || !taken) {
    pc_ = next;
    return;
  }
  const Place from = pc_;
  if (insn.kind == Kind::direct) {
    pc_ = insn.target;
  } else if (insn.kind == Kind::exception_return) {
    if (!config_.is_ete()) unit_.exception_return();
    unit_.set_level(0);
    is64_ = !program_->has_aarch32() || below(2) == 0;
    return start_at(anywhere());
  } else {
    const bool to_caller = insn.kind == Kind::returns && !calls_.empty() && (calls_.back().mode == ExecMode::a64) == is64_ && below(4) != 0;
    pc_ = to_caller ? calls_.back() : anywhere();
    if (to_caller) calls_.pop_back();
    const bool on_stack = config_.has_return_stack() && !insn.link && !return_stack_.empty() && return_stack_.back() == pc_;
    if (on_stack) return_stack_.pop_back();
    owes_target_ = !on_stack;
  }
  if (!insn.link) return;
  const Place back{from.mode, from.address + insn.size};
  calls_.push_back(back);
  return_stack_.push_back(back);
  if (return_stack_.size() > stack_depth_) return_stack_.erase(return_stack_.begin());
}

MadeTrace MadeRun::run(unsigned steps) {
  unit_.sync();
  unit_.trace_on();
  is64_ = !program_->has_aarch32() || below(2) == 0;
  start_at(anywhere());
  for (unsigned i = 0; i < steps; ++i) {
    happen();
    execute();
  }
  trace_.told.resize(told_);
  trace_.bytes = unit_.take();
  return std::move(trace_);
}

arm::TraceConfig made_config(std::mt19937& random) {
  const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  arm::TraceConfig config;
  const bool ete = below(3) == 0;
  config.protocol = ete ? arm::Protocol::ete : arm::Protocol::etmv4;
  config.trace_id = 0x10;
  config.traceidr = 0x10;
  config.devarch = ete ? 0x47705a13 : 0;
  config.idr0 = 0x28000ea1;
  config.idr1 = ete ? 0x4100fff3 : below(2) == 0 ? 0x4100f403 : 0x4100f443;
  constexpr uint32_t kVmidSizes[] = {0, 1, 2, 4};
  const uint32_t vmid_size = kVmidSizes[config.version() > 0x40 ? below(4) : below(2)];
  config.idr2 = 0x08 | (below(2) == 0 ? 0x80U : 0U) | vmid_size << 10 | (below(2) == 0 ? 0x80000000 : 0);
  constexpr uint32_t kDepths[] = {0, 0, 1, 3, 4, 9, 16, 40, 126};
  config.idr8 = kDepths[below(std::size(kDepths))];
  if (config.idr8 != 0 && below(2) == 0) config.idr0 &= ~0x20000000U;  // cycle counts commit
  config.configr = (below(2) == 0 ? 0x1000 : 0) | (below(2) == 0 ? 0x10 : 0);
  return config;
}

Decoded decode(const arm::TraceConfig& config, const MadeProgram& program, const std::vector<uint8_t>& bytes, size_t capacity) {
  arm::DecoderOptions options;
  options.config = config;
  const Timeline timeline = timeline_of(program, options.follow.default_space);
  const ContextTrack contexts;
  arm::Decoder decoder(timeline, contexts, options);
  return decode_segment(decoder, bytes, capacity);
}

/// The same from files, cut into segments.
Decoded decode_files(const arm::TraceConfig& config, const MadeProgram& program, const std::vector<uint8_t>& bytes, size_t& segments) {
  const Folder folder;
  folder.text("trace.bin", {bytes.begin(), bytes.end()});
  folder.text("code.bin", {reinterpret_cast<const char*>(program.bytes().data()), program.bytes().size()});
  std::string ini = "[capture]\nfile=trace.bin\nformat=source_data\n[core c]\ntype=ARM-AA64\n[dump]\nfile=code.bin\naddress=" +
                    std::to_string(program.base()) + "\n[source s]\ncore=c\ntype=" + (config.is_ete() ? "ETE" : "ETM4");
  const std::pair<const char*, uint32_t> registers[] = {{"CONFIGR", config.configr}, {"TRACEIDR", 0x10},    {"IDR0", config.idr0},
                                                        {"IDR1", config.idr1},       {"IDR2", config.idr2}, {"IDR8", config.idr8},
                                                        {"DEVARCH", config.devarch}};
  for (const auto& [name, value] : registers) ini += std::string("\nTRC") + name + "=" + std::to_string(value);
  folder.text("capture.ini", ini + "\n");
  OpenOptions options;
  options.path = folder.path() + "/capture.ini";
  const auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok());
  Decoded decoded;
  if (!opened.ok()) return decoded;
  uint64_t last = ~uint64_t{0};
  (void)(*opened)->decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
    take(batch, decoder.blocks(), decoded);
    segments += segment.stream_offset_bytes != last ? 1 : 0;
    last = segment.stream_offset_bytes;
    return true;
  });
  return decoded;
}

TEST(ArmMadeFlow, IsTheSameInSegments) {
  size_t segments = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    MadeProgram program(random, seed % 2 == 0 ? 0xffff800008010000 : 0x10000, seed % 4 == 1);
    const arm::TraceConfig config = made_config(random);
    const MadeTrace trace = MadeRun(random, program, config).run(300);
    const Decoded decoded = decode_files(config, program, trace.bytes, segments);
    size_t same = 0;
    while (same < decoded.told.size() && same < trace.told.size() && decoded.told[same] == trace.told[same]) ++same;
    ASSERT_EQ(same, trace.told.size()) << "seed " << seed << " of " << decoded.told.size() << " gap " << decoded.first_gap;
    ASSERT_EQ(decoded.told.size(), trace.told.size()) << seed;
    ASSERT_EQ(decoded.other_gaps + decoded.marked, 0U) << seed << " " << decoded.first_gap;
  }
  EXPECT_GT(segments, 1000U);
}

TEST(ArmMadeFlow, IsWhatRan) {
  const char* seeds = std::getenv("PTDECODE_SEEDS");  // how many
  const unsigned count = seeds == nullptr ? 2000U : static_cast<unsigned>(std::atoi(seeds));
  uint64_t instructions = 0;
  for (unsigned seed = 0; seed < count; ++seed) {
    std::mt19937 random(seed);
    const bool upper = random() % 3 == 0;
    MadeProgram program(random, upper ? 0xffff800008010000 : 0x10000, !upper && random() % 2 == 0);
    const arm::TraceConfig config = made_config(random);
    const MadeTrace trace = MadeRun(random, program, config).run(50 + static_cast<unsigned>(random() % 400));
    const Decoded decoded = decode(config, program, trace.bytes, 1 + static_cast<size_t>(random() % 100));
    size_t same = 0;
    while (same < decoded.told.size() && same < trace.told.size() && decoded.told[same] == trace.told[same]) ++same;
    ASSERT_EQ(decoded.told.size(), trace.told.size()) << "seed " << seed << " same " << same << " gap " << decoded.first_gap;
    ASSERT_EQ(same, trace.told.size()) << "seed " << seed;
    ASSERT_EQ(decoded.overflows, trace.overflows) << seed;
    ASSERT_EQ(decoded.other_gaps + decoded.marked, 0U) << seed << " " << decoded.first_gap;
    instructions += trace.told.size();
  }
  EXPECT_GT(instructions, 20U * count);
}

}  // namespace
}  // namespace ptd::test
