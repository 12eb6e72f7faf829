// MadeUnit: packets by their patterns in [ETMv4] "Instruction trace packets".
#include "tests/coresight/support/made_unit.h"

#include <algorithm>

namespace ptd::test {
namespace {

constexpr uint64_t low_bits(unsigned count) { return (uint64_t{1} << count) - 1; }
bool is_t32(const Place& place) { return place.mode == ExecMode::t32; }

}  // namespace

void MadeUnit::put(std::initializer_list<unsigned> bytes) {
  flush_atoms();
  for (const unsigned byte : bytes) out_.push_back(static_cast<uint8_t>(byte));
}

/// Seven bits a byte while bit 7 is set.
void MadeUnit::number(uint64_t value) {
  for (; value > 0x7f; value >>= 7) put({static_cast<unsigned>(value & 0x7f) | 0x80});
  put({static_cast<unsigned>(value)});
}

void MadeUnit::p0() {
  if (in_flight_ < config_.max_speculation()) ++in_flight_;
}

void MadeUnit::sync() {
  put({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80});
  const bool speculates = in_flight_ != 0, threshold = config_.has_cycle_count() && below(2) == 0;
  put({0x01, 1U | (speculates ? 4U : 0U) | (threshold ? 8U : 0U), 0x00});
  if (speculates) number(in_flight_);
  if (threshold) number(4 + below(300));
  last_ = {};
  told_mode_ = ExecMode::unknown;
}

void MadeUnit::overflow() {
  put({0x00, 0x05});
  in_flight_ = 0;
  sync();
}

/// Packets of atoms, in any of their formats.
void MadeUnit::flush_atoms() {
  std::vector<bool> atoms;
  atoms.swap(atoms_);
  const auto fits = [&](size_t at, std::initializer_list<int> pattern) {
    if (atoms.size() - at < pattern.size()) return false;
    return std::equal(pattern.begin(), pattern.end(), atoms.begin() + static_cast<std::ptrdiff_t>(at),
                      [](int a, bool b) { return (a != 0) == b; });
  };
  for (size_t at = 0; at < atoms.size();) {
    const auto one = [&](size_t index) { return atoms[at + index] ? 1U : 0U; };
    const size_t left = atoms.size() - at;
    size_t run = 0;
    while (run < left && run < 23 && atoms[at + run]) ++run;
    if (run >= 3 && run < left && !atoms[at + run] && below(2) == 0) {
      out_.push_back(static_cast<uint8_t>(0xe0 + run - 3)), at += run + 1;
    } else if (run >= 4 && below(2) == 0) {
      out_.push_back(static_cast<uint8_t>(0xc0 + run - 4)), at += run;
    } else if (fits(at, {0, 1, 1, 1, 1})) {
      out_.push_back(0xf5), at += 5;
    } else if (fits(at, {0, 0, 0, 0, 0})) {
      out_.push_back(0xd5), at += 5;
    } else if (fits(at, {0, 1, 0, 1, 0})) {
      out_.push_back(0xd6), at += 5;
    } else if (fits(at, {1, 0, 1, 0, 1})) {
      out_.push_back(0xd7), at += 5;
    } else if (fits(at, {0, 1, 1, 1})) {
      out_.push_back(0xdc), at += 4;
    } else if (fits(at, {0, 0, 0, 0})) {
      out_.push_back(0xdd), at += 4;
    } else if (fits(at, {0, 1, 0, 1})) {
      out_.push_back(0xde), at += 4;
    } else if (fits(at, {1, 0, 1, 0})) {
      out_.push_back(0xdf), at += 4;
    } else if (left >= 3 && below(3) != 0) {
      out_.push_back(static_cast<uint8_t>(0xf8 | one(0) | one(1) << 1 | one(2) << 2)), at += 3;
    } else if (left >= 2 && below(3) != 0) {
      out_.push_back(static_cast<uint8_t>(0xd8 | one(0) | one(1) << 1)), at += 2;
    } else {
      out_.push_back(static_cast<uint8_t>(0xf6 | one(0))), at += 1;
    }
  }
}

void MadeUnit::atom(bool executed, MadeProgram& program) {
  const uint32_t most = config_.max_speculation();
  if (most >= 3 && below(4) == 0) return mistake(executed, program);
  atoms_.push_back(executed);
  p0();
  if (below(6) == 0) flush_atoms();
}

/// The atom the other way around, what seemed to follow it, and that it was not so.
void MadeUnit::mistake(bool executed, MadeProgram& program) {
  const uint32_t most = config_.max_speculation();
  const auto wrong_atom = [&] { atoms_.push_back(!executed), p0(); };
  const auto wrong_way = [&](uint32_t elements) {        // each leaves the flow as it is
    in_flight_ = std::min(in_flight_, most - elements);  // commits as many of those before them as do not fit
    for (uint32_t i = 0; i < elements; ++i) {
      atoms_.push_back(below(2) == 0);
      if (atoms_.back() && below(2) == 0) put_address(program.any_of(told_mode_), false);
    }
  };
  switch (below(6)) {
    case 0:  // the atom itself is in the mispredict packet
      put({executed ? 0x33U : 0x31U});
      return p0();
    case 1:
      wrong_atom();
      return put({0x30});
    case 2:  // one element after it
      wrong_atom();
      if (below(2) == 0) {
        in_flight_ = std::min(in_flight_, most - 1);
        return put({0x35});  // in the same packet
      }
      wrong_way(1);
      return put({0x34});
    case 3: {
      const uint32_t elements = std::min(2 + below(4), most - 1);
      wrong_atom();
      wrong_way(elements);
      return put({0x38 | (elements - 2) << 1});
    }
    case 4: {
      const uint32_t elements = below(std::min(most, 20U));
      wrong_atom();
      wrong_way(elements);
      put({0x2f});
      return number(elements);
    }
    default: {  // what follows an atom that was right
      const uint32_t elements = below(std::min(most, 20U));
      atoms_.push_back(executed), p0();
      wrong_way(elements);
      put({0x2e});
      return number(elements);
    }
  }
}

void MadeUnit::remember(const Place& place) {
  last_[2] = last_[1];
  last_[1] = last_[0];
  last_[0] = {true, place};
}

/// Against the last addresses; false: it does not fit, or is not wanted.
bool MadeUnit::put_compressed(const Place& place) {
  const uint64_t address = place.address;
  for (unsigned i = 0; i < 3; ++i) {
    if (last_[i].valid && last_[i].place.address == address && is_t32(last_[i].place) == is_t32(place) && below(4) != 0) {
      put({0x90 + i});
      return true;
    }
  }
  if (!last_[0].valid || below(4) == 0) return false;
  const uint64_t differs = last_[0].place.address ^ address;
  const unsigned shift = is_t32(place) ? 1 : 2, header = is_t32(place) ? 0x96 : 0x95;
  if ((differs & ~low_bits(shift + 7)) == 0 && below(4) != 0) {
    put({header, static_cast<unsigned>(address >> shift & 0x7f)});
    return true;
  }
  if ((differs & ~low_bits(shift + 15)) != 0) return false;
  put({header, static_cast<unsigned>(address >> shift & 0x7f) | 0x80, static_cast<unsigned>(address >> (shift + 7) & 0xff)});
  return true;
}

/// [ETMv4] "Context packet": level, width and non-secure; then the VMID and the context id, if present, in as many bytes as TRCIDR2 has.
void MadeUnit::put_context(bool is64) {
  const bool vmid = below(3) == 0, context_id = below(3) == 0;
  put({0x20U | level_ | (is64 ? 0x10U : 0U) | (vmid ? 0x40U : 0U) | (context_id ? 0x80U : 0U)});
  const unsigned vmid_size = config_.idr2 >> 10 & 0x1f, context_size = config_.idr2 >> 5 & 0x1f;
  for (unsigned i = 0; vmid && i < vmid_size; ++i) put({below(256)});
  for (unsigned i = 0; context_id && i < context_size; ++i) put({below(256)});
  told_mode_ = is64 ? ExecMode::a64 : ExecMode::a32;
}

void MadeUnit::put_address(const Place& place, bool with_context) {
  const uint64_t address = place.address;
  if (with_context || !put_compressed(place)) {
    const bool upper_known = last_[0].valid && last_[0].place.address >> 32 == address >> 32;
    const bool wide =
        place.mode == ExecMode::a64 && told_mode_ == ExecMode::a64 ? !upper_known || below(4) == 0 : place.mode == ExecMode::a64;
    const bool t32 = is_t32(place);
    const unsigned header = with_context ? (wide ? 0x85 : 0x82) : (wide ? 0x9d : 0x9a);
    put({header + (t32 ? 1U : 0U)});
    const unsigned shift = t32 ? 1 : 2;
    put({static_cast<unsigned>(address >> shift & 0x7f), static_cast<unsigned>(t32 ? address >> 8 & 0xff : address >> 9 & 0x7f)});
    for (unsigned at = 2; at < (wide ? 8U : 4U); ++at) put({static_cast<unsigned>(address >> (8 * at) & 0xff)});
    if (with_context) put_context(place.mode == ExecMode::a64);
  }
  remember(place);
}

void MadeUnit::address(const Place& place, bool with_context) { put_address(place, with_context); }

void MadeUnit::exception(uint32_t number, const Place& preferred_return, bool is_target) {
  const unsigned low = (is_target ? 0x40U : 0x01U) | (number & 0x1f) << 1;
  if (number > 0x1f || below(4) == 0) {
    put({0x06, low | 0x80, number >> 5});
  } else {
    put({0x06, low});
  }
  put_address(preferred_return, false);
  p0();
}

void MadeUnit::commit_all() {
  flush_atoms();
  if (in_flight_ == 0) return;
  put({0x2d});
  number(in_flight_);
  committed(in_flight_);
}

void MadeUnit::aside() {
  switch (below(7)) {
    case 6:  // the same context again, or none
      if (below(2) == 0) return put({0x80});
      put({0x81});
      return put_context(told_mode_ == ExecMode::a64);
    case 0: {
      time_ += below(100000);
      put({0x02});
      for (unsigned at = 0; at < 8; ++at) put({static_cast<unsigned>(time_ >> (7 * at) & 0x7f) | 0x80});
      return put({static_cast<unsigned>(time_ >> 56)});
    }
    case 1:
      return put({0x71 + below(15)});
    case 2:
      if (config_.is_ete()) put({0x88});
      return;
    case 3: {
      flush_atoms();
      if (in_flight_ == 0) return;
      const uint32_t count = 1 + below(in_flight_);
      put({0x2d});
      number(count);
      return committed(count);
    }
    default:
      break;
  }
  if (!config_.has_cycle_count() || (config_.configr & 0x10) == 0) return;
  flush_atoms();
  const bool commits = !config_.commit_opt1();
  if (commits && in_flight_ == 0) return;
  const uint32_t count = commits ? 1 + below(in_flight_) : 0;
  switch (below(3)) {
    case 0: {
      const bool unknown = below(3) == 0;
      put({unknown ? 0x0fU : 0x0eU});
      if (commits) number(count);
      if (!unknown) number(below(1 << 12));
      break;
    }
    case 1: {
      const uint32_t greatest = config_.max_speculation();
      if (!commits) {
        put({0x0c, below(16)});
      } else if (count <= 16) {
        put({0x0c, (count - 1) << 4 | below(16)});
      } else if (count + 15 >= greatest) {
        put({0x0d, (count + 15 - greatest) << 4 | below(16)});
      } else {
        return;
      }
      break;
    }
    default:
      if (count > 4) return;
      put({0x10 | (commits ? (count - 1) << 2 : 0) | below(4)});
  }
  if (commits) committed(count);
}

std::vector<uint8_t> MadeUnit::take() {
  commit_all();
  return std::move(out_);
}

}  // namespace ptd::test
