// StepFile: see step_file.h.
#include "analysis/step_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "analysis/flow_clock.h"
#include "analysis/thread_schedule.h"
#include "perfio/zstd_stream.h"
#include "recording/bundle/plan.h"
#include "recording/data/recording_data.h"
#include "recording/parallel.h"

namespace ptd {
namespace {

constexpr std::string_view kMagic = "PTDSTEPS";
constexpr uint32_t kVersion = 1;
constexpr size_t kBlockBytes = 1U << 20, kMostBlockBytes = 64U << 20;
constexpr size_t kHeaderBytes = 12, kBlockHeaderBytes = 24;
constexpr int kLevel = 1;
enum BlockKind : uint64_t { kHead, kSteps, kEnd };
enum Mask : uint64_t { kContext = 1, kCycles = 2, kFloor = 4, kMaskBits = 3 };

uint64_t hash_of(Bytes bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

void put(std::byte* at, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t get(Bytes bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

Result<std::unique_ptr<StepFileWriter>> StepFileWriter::create(const std::string& path, const StepFileHead& head) {
  std::unique_ptr<StepFileWriter> writer(new StepFileWriter());
  auto file = WholeFile::open(path);
  if (!file) return file.error();
  writer->file_ = std::move(*file);
  std::array<std::byte, kHeaderBytes> header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  put(header.data() + kMagic.size(), kVersion, 4);
  (void)writer->file_->write(text_of(header));
  ByteWriter content;
  content.number(head.plan);
  content.number(head.unit);
  writer->put_block(kHead, content.bytes());
  return writer;
}

void StepFileWriter::put_block(uint64_t kind, Bytes content) {
  const std::vector<std::byte> stored = perfio::zstd_compress(content, kLevel);
  std::array<std::byte, kBlockHeaderBytes> header{};
  put(header.data(), kind, 8);
  put(header.data() + 8, stored.size(), 4);
  put(header.data() + 12, content.size(), 4);
  put(header.data() + 16, hash_of(stored), 8);
  (void)file_->write(text_of(header));  // finish() reports the failure
  (void)file_->write(text_of(stored));
}

uint64_t StepFileWriter::number_of(FunctionId id, const FunctionTable& functions) {
  if (id == kNoFunction) return 0;
  if (id >= numbers_.size()) numbers_.resize(std::max<size_t>(id + 1, 2 * numbers_.size()));
  if (numbers_[id] != 0) return numbers_[id];
  names_.text(functions.info(id).name);
  names_.text(functions.info(id).module);
  const std::vector<std::string> names = functions.names(id);
  names_.number(names.size());
  for (const std::string& name : names) names_.text(name);
  ++new_names_;
  return numbers_[id] = ++functions_;
}

void StepFileWriter::add(const FlowStep& step, const FunctionTable& functions) {
  const bool context = all_steps_ == 0 || step.pid != last_.pid || step.tid != last_.tid || step.cpu != last_.cpu || step.space != last_.space;
  const uint64_t mask = (context ? kContext : 0) | (step.cycles != 0 ? kCycles : 0) | (step.floor != step.time ? kFloor : 0);
  ByteWriter& out = steps_;
  out.number(static_cast<uint64_t>(step.kind) << kMaskBits | mask);
  out.number(step.flags);
  if (step.kind == FlowKind::gap) out.number(static_cast<uint64_t>(step.gap));
  if (context) {
    for (const int32_t id : {step.pid, step.tid, step.cpu}) out.signed_number(id);
    out.number(uint64_t{step.space.value} + 1);
  }
  out.number(number_of(step.function, functions));
  out.number(number_of(step.from, functions));
  out.number(step.instructions);
  if (step.cycles != 0) out.number(step.cycles);
  out.signed_number(static_cast<int64_t>(step.to.value - last_.to.value));
  out.signed_number(static_cast<int64_t>(step.return_to.value - step.to.value));
  out.signed_number(static_cast<int64_t>(step.time.value - last_.time.value));
  if (step.floor != step.time) out.signed_number(static_cast<int64_t>(step.time.value - step.floor.value));
  last_ = step;
  ++new_steps_;
  ++all_steps_;
  if (steps_.bytes().size() + names_.bytes().size() >= kBlockBytes) put_steps();
}

void StepFileWriter::put_steps() {
  if (new_steps_ == 0) return;
  ByteWriter out;
  out.number(new_names_);
  out.raw(names_.bytes());
  out.number(new_steps_);
  out.raw(steps_.bytes());
  put_block(kSteps, out.bytes());
  names_.clear();
  steps_.clear();
  new_names_ = new_steps_ = 0;
}

Status StepFileWriter::finish(uint64_t tail, bool timed) {
  put_steps();
  ByteWriter out;
  out.number(all_steps_);
  out.number(tail);
  out.flag(timed);
  put_block(kEnd, out.bytes());
  return file_->finish();
}

Error StepFileReader::damaged(ErrorCode code, const char* what) const { return Error{code, file_->path() + ": " + what, at_}; }

Result<std::unique_ptr<StepFileReader>> StepFileReader::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  std::unique_ptr<StepFileReader> reader(new StepFileReader());
  reader->file_ = std::move(*file);
  const Bytes bytes = reader->file_->bytes();
  if (bytes.size() < kHeaderBytes) return reader->damaged(ErrorCode::truncated, "the file of steps ends inside its header");
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return reader->damaged(ErrorCode::bad_magic, "not a file of steps");
  if (get(bytes, kMagic.size(), 4) != kVersion) return reader->damaged(ErrorCode::unsupported_version, "a file of steps of another version; decode the unit again");
  reader->at_ = kHeaderBytes;
  uint64_t kind = 0;
  const auto content = reader->block(kind);
  if (!content) return content.error();
  ByteReader in(*content);
  reader->head_.plan = in.number();
  reader->head_.unit = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  if (kind != kHead || !in.done()) return reader->damaged(ErrorCode::bad_format, "the head of the file of steps is inconsistent");
  return reader;
}

Result<std::vector<std::byte>> StepFileReader::block(uint64_t& kind) {
  const Bytes bytes = file_->bytes();
  if (bytes.size() - at_ < kBlockHeaderBytes) return damaged(ErrorCode::truncated, "the file of steps is truncated");
  kind = get(bytes, at_, 8);
  const uint64_t stored = get(bytes, at_ + 8, 4), raw = get(bytes, at_ + 12, 4), hash = get(bytes, at_ + 16, 8);
  if (stored > bytes.size() - at_ - kBlockHeaderBytes) return damaged(ErrorCode::truncated, "the file of steps is truncated");
  if (raw > kMostBlockBytes) return damaged(ErrorCode::bad_format, "a part of the file of steps is too large");
  const Bytes content = bytes.subspan(at_ + kBlockHeaderBytes, stored);
  if (hash_of(content) != hash) return damaged(ErrorCode::bad_checksum, "a part of the file of steps does not have its checksum");
  at_ += kBlockHeaderBytes + stored;
  return perfio::zstd_decompress(content, raw);
}

namespace {

/// Reads a step, after `last`. `ids`: functions by number.
FlowStep read_step(ByteReader& in, const FlowStep& last, const std::vector<FunctionId>& ids) {
  FlowStep step;
  const uint64_t word = in.number_to((static_cast<uint64_t>(FlowKind::switch_out) + 1) << kMaskBits);
  step.kind = static_cast<FlowKind>(std::min<uint64_t>(word >> kMaskBits, static_cast<uint64_t>(FlowKind::switch_out)));
  step.flags = static_cast<uint8_t>(in.number_to(UINT8_MAX));
  if (step.kind == FlowKind::gap) step.gap = static_cast<GapReason>(in.number_to(kGapReasons - 1));
  step.pid = last.pid;
  step.tid = last.tid;
  step.cpu = last.cpu;
  step.space = last.space;
  if ((word & kContext) != 0) {
    for (int32_t* id : {&step.pid, &step.tid, &step.cpu}) *id = in.id();
    step.space = SpaceId{static_cast<uint32_t>(in.number_to(uint64_t{1} << 32) - 1)};
  }
  const auto function = [&] {
    const uint64_t number = in.number_to(ids.size());
    return number == 0 ? kNoFunction : ids[number - 1];
  };
  step.function = function();
  step.from = function();
  step.instructions = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  if ((word & kCycles) != 0) step.cycles = in.number();
  step.to.value = last.to.value + static_cast<uint64_t>(in.signed_number());
  step.return_to.value = step.to.value + static_cast<uint64_t>(in.signed_number());
  step.time.value = last.time.value + static_cast<uint64_t>(in.signed_number());
  step.floor = step.time;
  if ((word & kFloor) != 0) step.floor.value = step.time.value - static_cast<uint64_t>(in.signed_number());
  return step;
}

}  // namespace

Result<bool> StepFileReader::next(std::vector<FlowStep>& steps, FunctionTable& functions) {
  uint64_t kind = 0;
  const auto content = block(kind);
  if (!content) return content.error();
  ByteReader in(*content);
  if (kind == kEnd) {
    const uint64_t all = in.number();
    tail_ = in.number();
    timed_ = in.flag();
    if (!in.done() || all != count_) return damaged(ErrorCode::bad_format, "the end of the file of steps is inconsistent");
    return false;
  }
  if (kind != kSteps) return damaged(ErrorCode::bad_format, "unknown part of the file of steps");
  for (uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const std::string name = in.text(), module = in.text();
    std::vector<std::string> names;
    for (uint64_t each = in.count(); each > 0 && in.ok(); --each) names.push_back(in.text());
    const FunctionId id = functions.intern(name, module);
    if (names.size() > 1) functions.add_names(id, names);
    ids_.push_back(id);
  }
  for (uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    last_ = read_step(in, last_, ids_);
    if (in.ok()) steps.push_back(last_);
    ++count_;
  }
  if (!in.done()) return damaged(ErrorCode::bad_format, "the steps are inconsistent");
  return true;
}

namespace {

/// Follows one unit. A step belongs to the unit if the flow that made it is in a segment of its own.
class UnitFollower {
 public:
  UnitFollower(const Recording& plan, const PlanUnit& unit)
      : plan_(plan),
        unit_(unit),
        schedule_(plan.contexts()),
        flow_(plan.symbolizer(), plan.timeline(), functions_, plan.streams()[unit.stream].cpu, plan.streams()[unit.stream].tid,
              flow_clock(plan, unit.stream, schedule_)) {}

  Status run(StepFileWriter& file, const std::function<bool()>& stopped) {
    auto decode = start_decode(plan_, {unit_.stream, unit_.from_offset, unit_.to_offset, 1});
    if (!decode) return decode.error();
    DecodedBatch next;
    while ((*decode)->next(next)) {
      if (stopped && stopped()) return Error{ErrorCode::cancelled, "the caller cancelled the operation", 0};
      begin(*next.segment);
      flow_.take(*next.batch, next.decoder->blocks());
      give(file);
    }
    const bool is_last = unit_.to_offset == Recording::kStreamEnd && unit_.last_offset == Recording::kStreamEnd;
    if (!is_last) set_part(FlowPart::after);
    flow_.finish(is_last ? plan_.streams()[unit_.stream].time.last : kTimeMin);
    give(file);
    if (is_last) own_end_ = flow_.position();
    return file.finish(own_end_ - own_first_ - std::min(own_end_ - own_first_, counted_), flow_.timed());
  }

 private:
  void begin(const AuxSegment& segment) {
    const uint64_t offset = segment.stream_offset_bytes;
    if (std::exchange(segment_, offset) == offset) return;
    set_part(offset < unit_.first_offset ? FlowPart::before : unit_.owns(offset) ? FlowPart::own : FlowPart::after);
    flow_.begin_segment(segment.time);
  }
  void set_part(FlowPart part) {
    if (std::exchange(part_, part) == part) return;
    if (part == FlowPart::own) own_first_ = flow_.position();
    if (part == FlowPart::after) own_end_ = flow_.position();
    flow_.set_part(part);
  }
  // The instructions of all steps so far are the position of the last one: those of steps that were dropped went to the next one.
  void give(StepFileWriter& file) {
    flow_.give(steps_);
    for (FlowStep& step : steps_) {
      position_ += step.instructions;
      if (step.part != FlowPart::own) continue;
      const uint64_t since_first = std::max(position_, own_first_) - own_first_;
      step.instructions = static_cast<uint32_t>(std::min<uint64_t>(since_first - std::min(since_first, counted_), UINT32_MAX));
      counted_ += step.instructions;
      file.add(step, functions_);
    }
    steps_.clear();
  }

  const Recording& plan_;
  const PlanUnit unit_;
  const ThreadSchedule schedule_;
  FunctionTable functions_;
  CallFlow flow_;
  FlowPart part_ = FlowPart::before;
  std::vector<FlowStep> steps_;
  uint64_t segment_ = ~uint64_t{0};
  uint64_t position_ = 0;                  ///< of the last step, in instructions
  uint64_t own_first_ = 0, own_end_ = 0;   ///< where the unit's own flow begins and ends
  uint64_t counted_ = 0;                   ///< instructions of its steps
};

}  // namespace

Status write_unit_steps(const Recording& plan, uint32_t unit, const std::string& path, const std::function<bool()>& stopped) {
  const PlanUnit& wanted = units_of(plan)[unit];
  auto file = StepFileWriter::create(path, {data_of(plan).plan->id, unit});
  if (!file) return file.error();
  return UnitFollower(plan, wanted).run(**file, stopped);
}

Result<StepFiles> collect_steps(const Recording& plan, const std::vector<std::string>& paths) {
  const std::vector<PlanUnit>& units = units_of(plan);
  std::vector<std::string> by_unit(units.size());
  for (const std::string& path : paths) {
    const auto reader = StepFileReader::open(path);
    if (!reader) return reader.error();
    const StepFileHead& head = (*reader)->head();
    if (head.plan != data_of(plan).plan->id || head.unit >= units.size())
      return Error{ErrorCode::wrong_recording, path + ": the steps are of another plan; decode its units again", 0};
    by_unit[head.unit] = path;
  }
  StepFiles files;
  std::string missing;
  size_t count = 0;
  constexpr size_t kNamed = 8;
  for (size_t i = 0; i < units.size(); ++i) {
    if (by_unit[i].empty() && count++ < kNamed) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    files.by_stream[units[i].stream].push_back(by_unit[i]);
  }
  if (count != 0)
    return Error{ErrorCode::missing_part,
                 "the steps of " + std::to_string(count) + " of " + std::to_string(units.size()) + " units are missing: " + missing + (count > kNamed ? ", ..." : ""), 0};
  return files;
}

}  // namespace ptd
