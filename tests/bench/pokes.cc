// Pokes of generated programs: edits beside the code, after it, or in it.
#include "tests/bench/pokes.h"

#include <algorithm>
#include <array>

#include "ptdecode/timeline_builder.h"

namespace ptd::bench {
namespace {

constexpr std::array<std::byte, 4> kNumber = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};  // as synthetic.cc writes it
constexpr std::array<std::byte, 4> kOther = {std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
constexpr std::byte kMovEax{0xb8};
constexpr uint64_t kColdAt = 0x10000000, kColdSites = 1U << 16, kSiteBytes = 16;

std::vector<uint64_t> sites_of(uint64_t address, const std::vector<std::byte>& code) {
  std::vector<uint64_t> sites;
  for (size_t i = 0; i + 5 <= code.size(); ++i) {
    if (code[i] == kMovEax && std::equal(kNumber.begin(), kNumber.end(), code.begin() + static_cast<std::ptrdiff_t>(i) + 1))
      sites.push_back(address + i + 1);
  }
  return sites;
}

/// `sites` numbers in a row, each followed by zeroes.
std::vector<std::byte> numbers(uint64_t sites) {
  std::vector<std::byte> bytes(sites * kSiteBytes);
  for (uint64_t i = 0; i < sites; ++i)
    std::copy(kNumber.begin(), kNumber.end(), bytes.begin() + static_cast<std::ptrdiff_t>(i * kSiteBytes));
  return bytes;
}

void add_code(TimelineBuilder& builder, SpaceId space, uint64_t address, const std::vector<std::byte>& bytes) {
  Section section;
  section.space = space;
  section.ip = Ip{address};
  section.size_bytes = bytes.size();
  auto owner = std::make_shared<std::vector<std::byte>>(bytes);
  section.code = {owner, Bytes(*owner)};
  section.path = "memory";
  builder.add_section(std::move(section));
}

}  // namespace

test::Machine make_poked_machine(const test::SparseMemory& memory, PokePlace place, uint64_t count, Interval time) {
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  std::vector<uint64_t> sites;
  for (const auto& [address, piece] : memory.pieces()) {
    std::vector<std::byte> code = piece;
    const std::vector<uint64_t> here = sites_of(address, code);
    if (place == PokePlace::hot) sites.insert(sites.end(), here.begin(), here.end());
    if (place == PokePlace::near) {
      const std::vector<std::byte> more = numbers(kColdSites);
      for (uint64_t i = 0; i < kColdSites; ++i) sites.push_back(address + code.size() + i * kSiteBytes);
      code.insert(code.end(), more.begin(), more.end());
    }
    add_code(builder, user, address, code);
  }
  if (place == PokePlace::cold) {
    add_code(builder, user, kColdAt, numbers(kColdSites));
    for (uint64_t i = 0; i < kColdSites; ++i) sites.push_back(kColdAt + i * kSiteBytes);
  }
  const uint64_t step = std::max<uint64_t>((time.last.value - time.first.value) / (count + 1), 1);
  for (uint64_t i = 0; i < count && !sites.empty(); ++i) {
    const bool back = (i / sites.size()) % 2 != 0;
    Edit edit;
    edit.space = user;
    edit.ip = Ip{sites[i % sites.size()]};
    const auto& from = back ? kOther : kNumber;
    const auto& to = back ? kNumber : kOther;
    edit.old_bytes.assign(from.begin(), from.end());
    edit.new_bytes.assign(to.begin(), to.end());
    edit.time.first = edit.time.last = TimeNs{time.first.value + i * step};
    builder.add_edit(std::move(edit));
  }
  test::Machine machine;
  machine.timeline = builder.build();
  machine.contexts.add_switch(0, kTimeMin, {1, 1, user});
  machine.contexts.sort();
  return machine;
}

Interval time_of(const std::vector<AuxSegment>& segments, const test::Machine& machine, const pt::DecoderOptions& options) {
  Interval time{kTimeMax, kTimeMin};
  pt::Decoder decoder(machine.timeline, machine.contexts, options);
  Batch batch;
  for (const AuxSegment& segment : segments) {
    decoder.begin(segment);
    for (bool more = true; more;) {
      more = decoder.next(batch);
      for (const Mark& mark : batch.marks) {
        if (mark.time_known) time = hull(time, mark.time);
      }
    }
  }
  return time;
}

}  // namespace ptd::bench
