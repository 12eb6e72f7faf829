// Trace time to perf time.
#include "recording/perf/perf_time.h"

#include <algorithm>
#include <optional>

#include "perfio/emulated.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kMostTscs = 4096;
constexpr unsigned kTscBits = 56;             // of a TSC packet
constexpr size_t kSearchedBytes = 64U << 10;  // of a payload, for its first PSB
constexpr uint64_t kRecordNs = 1'000'000;     // by which a record may be early or late
constexpr uint64_t kFarNs = 1'000'000'000;    // no order of writing explains this

// The TSC of a PSB+, unless it may be that of a VMX guest.
std::optional<uint64_t> tsc_of(Bytes psb_plus) {
  pt::PacketReader reader(psb_plus);
  pt::Packet packet;
  std::optional<uint64_t> tsc;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::psbend) return tsc;
    if (packet.kind == pt::PacketKind::ovf || packet.kind == pt::PacketKind::vmcs) return {};
    if (packet.kind == pt::PacketKind::pip && (packet.flags & pt::kFlagNonRoot) != 0) return {};
    if (packet.kind == pt::PacketKind::tsc) tsc = packet.value;
  }
  return {};
}

TimeConversion conversion_of(const perfio::IntelPtInfo& info) {
  TimeConversion time;
  time.time_shift = info.time_shift;
  time.time_mult = info.time_mult;
  time.time_zero = info.time_zero;
  return time;
}

TimeConversion conversion_of(const perfio::TimeConvRecord& record) {
  TimeConversion time;
  time.time_shift = static_cast<uint16_t>(record.time_shift);
  time.time_mult = static_cast<uint32_t>(record.time_mult);
  time.time_zero = record.time_zero;
  if (record.time_mask == 0) return time;
  time.time_cycles = record.time_cycles;
  time.time_mask = record.time_mask;
  time.cap_user_time_short = record.cap_user_time_short;
  return time;
}

void add(FindingKind kind, std::string what, ChosenTime& chosen) {
  Finding& finding = chosen.findings.emplace_back();
  finding.kind = kind;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = std::move(what);
}

// Chooses between two conversions that differ.
void compare(const TimeConversion& from_record, const TimeConversion& from_info, const ClockWitness& witness, ChosenTime& chosen) {
  const uint64_t apart = witness.difference_ns(from_record, from_info);
  if (from_info.valid() && from_record.valid() && apart == 0) return;
  std::string what = "TIME_CONV and AUXTRACE_INFO contain different conversions from TSC to time";
  if (from_info.valid() && from_record.valid()) what += ", " + std::to_string(apart) + " ns apart";
  const uint64_t record_error = witness.error_ns(from_record), info_error = witness.error_ns(from_info);
  const bool one_invalid = from_record.valid() != from_info.valid();
  const bool by_info = one_invalid ? from_info.valid() : info_error < record_error;
  if (by_info) chosen.time = from_info;
  what += by_info ? ": that of AUXTRACE_INFO is used" : ": that of TIME_CONV is used";
  if (one_invalid) {
    what += ", the other one is not valid";
  } else if (record_error != info_error) {
    what += ", as the times of the records contradict the other one";
  } else {
    what += ", but the times of the records do not show which one is right: times and threads may be wrong";
  }
  add(FindingKind::clock_contradicts, std::move(what), chosen);
}

}  // namespace

bool uses_other_clock(const perfio::PerfReader& reader) {
  if (reader.damage().cut() || reader.features().cpu_desc == perfio::kEmulatedCpu) return false;
  return std::ranges::any_of(reader.attrs(), [](const perfio::EventAttr& attr) { return attr.use_clockid; });
}

void ClockWitness::finish(const perfio::PerfReader& reader) {
  const bool has_clockid = std::ranges::any_of(reader.attrs(), [](const perfio::EventAttr& attr) { return attr.use_clockid; });
  is_of_other_clock_ = uses_other_clock(reader) || (reader.damage().cut() && has_clockid);
  distrusted_ = is_of_other_clock_ || !reader.damage().holes.empty();
}

void ClockWitness::on_record(const perfio::Record& record) {
  if (const auto* payload = std::get_if<perfio::AuxtraceRecord>(&record.payload)) {
    if (reference_ == 0) reference_ = payload->reference;
    add_trace(payload->payload);
  }
  if (!record.sample_id.has_time) return;
  records_.add(record.sample_id.time);
  has_aux_ = has_aux_ || std::holds_alternative<perfio::AuxRecord>(record.payload);
  const auto* sample = std::get_if<perfio::OtherSample>(&record.payload);
  if (sample == nullptr || sample->aux.empty()) return;
  has_aux_ = true;
  add_trace(sample->aux);
}

// Of many payloads, later ones replace earlier ones.
void ClockWitness::add_trace(Bytes trace) {
  const Bytes start = trace.subspan(0, std::min(trace.size(), kSearchedBytes));
  const uint64_t psb = pt::find_psb(start, 0);
  const std::optional<uint64_t> tsc = psb < start.size() ? tsc_of(start.subspan(psb)) : std::nullopt;
  if (!tsc) return;
  const uint64_t number = payloads_++;
  if (number < kMostTscs) {
    tscs_.push_back(*tsc);
  } else {
    tscs_[kMostTscs / 2 + number % (kMostTscs / 2)] = *tsc;
  }
}

// The TSC wraps every 2^56 ticks (278 days at 3 GHz), so records that are a day off still tell which wrap it is. A reference may be no TSC:
// perf takes one, other recorders any number.
TimeConversion ClockWitness::for_packets(const TimeConversion& time) const {
  constexpr uint64_t kNear = uint64_t{1} << 48, kWrap = uint64_t{1} << kTscBits;
  if (!time.valid() || time.cap_user_time_short || tscs_.empty()) return time;
  const bool is_dated = records_.last_ns != 0 && !is_of_other_clock_;
  const Tsc near = is_dated ? time.to_tsc(TimeNs{records_.first_ns + (records_.last_ns - records_.first_ns) / 2}) : Tsc{reference_};
  if (near.value < kWrap - kNear) return time;
  const TimeConversion made = time.for_short_counter(near, kTscBits);
  const auto fits = [&](uint64_t tsc) {
    const uint64_t whole = made.whole(Tsc{tsc}).value;
    return (whole > near.value ? whole - near.value : near.value - whole) < kNear;
  };
  const auto count = static_cast<size_t>(std::ranges::count_if(tscs_, fits));
  return count * 2 > tscs_.size() ? made : time;
}

uint64_t ClockWitness::outside_ns(const TimeConversion& time, uint64_t tsc) const {
  const uint64_t ns = time.to_ns(Tsc{tsc}).value;
  return ns < records_.first_ns ? records_.first_ns - ns : ns > records_.last_ns ? ns - records_.last_ns : 0;
}

uint64_t ClockWitness::error_ns(const TimeConversion& time) const {
  uint64_t sum = 0;
  for (const uint64_t tsc : tscs_) {
    const uint64_t far = knows() ? outside_ns(time, tsc) : 0;
    sum += far > kRecordNs ? std::min(far, kFarNs) : 0;
  }
  return sum;
}

bool ClockWitness::refutes(const TimeConversion& time) const {
  return knows() && std::all_of(tscs_.begin(), tscs_.end(), [&](uint64_t tsc) { return outside_ns(time, tsc) > kFarNs; });
}

bool ClockWitness::is_far(Interval time) const {
  if (distrusted_ || !has_aux_) return false;
  return (time.first != kTimeMin && time.first.value > records_.last_ns + kRecordNs) ||
         (time.last != kTimeMax && time.last.value + kRecordNs < records_.first_ns);
}

std::string ClockWitness::told_apart(Interval trace) const {
  const auto from_to = [](uint64_t first, uint64_t last) {
    return "from " + std::to_string(first) + " to " + std::to_string(last) + " ns";
  };
  return from_to(trace.first.value, trace.last.value) + ", but the records are " + from_to(records_.first_ns, records_.last_ns) +
         ": the conversion is wrong, and so are times and threads";
}

uint64_t ClockWitness::difference_ns(const TimeConversion& a, const TimeConversion& b) const {
  uint64_t most = 0;
  for (const uint64_t tsc : tscs_) {
    const uint64_t at_a = a.to_ns(Tsc{tsc}).value, at_b = b.to_ns(Tsc{tsc}).value;
    most = std::max(most, at_a < at_b ? at_b - at_a : at_a - at_b);
  }
  return most;
}

Interval ClockWitness::trace_time(const TimeConversion& time) const {
  const auto [first, last] = std::minmax_element(tscs_.begin(), tscs_.end());
  return tscs_.empty() ? Interval{} : time.to_interval(Tsc{*first}, Tsc{*last});
}

ChosenTime choose_time(const perfio::IntelPtInfo& info, const perfio::TimeConvRecord& record, const ClockWitness& witness) {
  ChosenTime chosen;
  const TimeConversion from_record = witness.for_packets(conversion_of(record)), from_info = witness.for_packets(conversion_of(info));
  if (record.time_mult != 0) {
    if (record.cap_user_time_short && record.time_mask == 0)
      add(FindingKind::bad_record, "TIME_CONV sets cap_user_time_short but has no mask: the flag is ignored", chosen);
    chosen.time = from_record;
    if (info.cap_user_time_zero || info.time_mult != 0) compare(from_record, from_info, witness, chosen);
  } else if (info.cap_user_time_zero) {
    chosen.time = from_info;
  }
  if (!chosen.time.valid()) chosen.time = {};
  if (chosen.time.valid() && witness.refutes(chosen.time)) {
    add(FindingKind::clock_contradicts,
        "by the conversion from TSC to time, the trace is " + witness.told_apart(witness.trace_time(chosen.time)), chosen);
  }
  return chosen;
}

}  // namespace ptd
