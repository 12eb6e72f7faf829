// Encodes CoreSight sources as bytes and back.
#include "recording/bundle/bundle_arm.h"

#include <array>

namespace ptd {
namespace {

// Added to the number of ContextNames:
constexpr uint64_t kWithWorlds = 4;    ///< a space for each world follows
constexpr uint64_t kWithOwnUpper = 8;  ///< with a separate upper half

/// The registers in the order of the file.
std::array<uint32_t*, 12> registers_of(arm::TraceConfig& c) {
  return {&c.configr, &c.traceidr, &c.idr0, &c.idr1, &c.idr2, &c.idr8, &c.idr9, &c.idr10, &c.idr11, &c.idr12, &c.idr13, &c.devarch};
}

void write_source(const ArmSource& source, ByteWriter& out) {
  arm::TraceConfig config = source.config;
  out.text(source.name);
  out.text(source.core);
  out.number(static_cast<uint64_t>(config.protocol));
  out.number(config.trace_id);
  for (const uint32_t* value : registers_of(config)) out.number(*value);
  out.flag(config.m_profile);
  out.flag(config.v7_core);
  out.number(source.places.size());
  std::pair<uint64_t, uint64_t> before;
  for (const auto& place : source.places) {
    out.number(place.first - before.first);
    out.signed_number(static_cast<int64_t>(place.second - before.second));
    before = place;
  }
}

bool read_source(ByteReader& in, ArmSource& source) {
  arm::TraceConfig& config = source.config;
  source.name = in.text();
  source.core = in.text();
  config.protocol = static_cast<arm::Protocol>(in.number_to(static_cast<uint64_t>(arm::Protocol::stm)));
  config.trace_id = static_cast<uint8_t>(in.number_to(0x7f));
  for (uint32_t* value : registers_of(config)) *value = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  config.m_profile = in.flag();
  config.v7_core = in.flag();
  std::pair<uint64_t, uint64_t> place;
  for (uint64_t left = in.count(sizeof(place)); left > 0 && in.ok(); --left) {
    place.first += in.number_to(~uint64_t{0} - place.first);
    place.second += static_cast<uint64_t>(in.signed_number());
    source.places.push_back(place);
  }
  return in.ok();
}

}  // namespace

void write_arm_sources(const RecordingData& data, ByteWriter& out) {
  const arm::FollowOptions& follow = data.arm_follow;
  const bool worlds = follow.worlds[0] != kNoSpace;
  out.number(static_cast<uint64_t>(follow.names) + (worlds ? kWithWorlds : 0) + (follow.own_upper ? kWithOwnUpper : 0));
  out.number(uint64_t{follow.default_space.value} + 1);
  for (const SpaceId world : follow.worlds) {
    if (worlds) out.number(world.value);
  }
  out.flag(follow.use_time);
  out.number(data.arm.size());
  for (const ArmSource& source : data.arm) write_source(source, out);
}

bool read_arm_sources(ByteReader in, const OpenRequest& options, RecordingData& data) {
  arm::FollowOptions& follow = data.arm_follow;
  const uint64_t names = in.number_to(static_cast<uint64_t>(arm::ContextNames::aux_records) + kWithWorlds + kWithOwnUpper);
  follow.names = static_cast<arm::ContextNames>(names % kWithWorlds);
  follow.own_upper = (names & kWithOwnUpper) != 0;
  follow.default_space = SpaceId{static_cast<uint32_t>(in.number_to(uint64_t{1} << 32) - 1)};
  for (SpaceId& world : follow.worlds) {
    if ((names & kWithWorlds) != 0) world = SpaceId{static_cast<uint32_t>(in.number_to(UINT32_MAX - 1))};
  }
  follow.time = data.decoder.config.time;
  const bool one_clock = in.flag();
  follow.use_time = options.use_time && one_clock;
  for (uint64_t left = in.count(sizeof(ArmSource)); left > 0 && in.ok(); --left) {
    if (!read_source(in, data.arm.emplace_back())) return false;
  }
  return in.done() && data.arm.size() == data.streams.size();
}

}  // namespace ptd
