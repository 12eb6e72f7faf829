// FunctionReach: see function_reach.h.
#include "recording/windows/function_reach.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ptdecode/insn.h"

namespace ptd {
namespace {

constexpr uint64_t kLongestInsn = 15, kTableJumpBytes = 7;  // of the instruction that jumps by a table
constexpr uint64_t kEntryBytes = 4;                         // of a switch's table
constexpr uint64_t kAnyCount = ~uint64_t{0};
constexpr uint8_t kOperandSize = 0x66;  // a prefix

void sort_once(std::vector<uint32_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

uint8_t byte_at(Bytes code, uint64_t at) { return number_at<uint8_t>(code, at); }

// Whether an instruction only fills a gap: NOP, INT3, and in 32-bit code LEA, MOV or XCHG of a register to itself.
bool is_filler(Bytes code, bool is_64bit) {
  constexpr uint8_t kCs = 0x2e, kNop = 0x90, kInt3 = 0xcc, kTwoBytes = 0x0f, kLongNop = 0x1f;
  constexpr uint8_t kXchg = 0x87, kMov = 0x89, kMovFrom = 0x8b, kLea = 0x8d, kHasSib = 4, kNoIndex = 4;
  while (!code.empty() && (byte_at(code, 0) == kOperandSize || byte_at(code, 0) == kCs)) code = code.subspan(1);
  const uint8_t opcode = byte_at(code, 0), modrm = byte_at(code, 1);
  if (opcode == kNop || opcode == kInt3 || (opcode == kTwoBytes && modrm == kLongNop)) return true;
  if (is_64bit || code.size() < 2) return false;
  const uint8_t mode = modrm >> 6, to = modrm >> 3 & 7;
  if (opcode == kXchg || opcode == kMov || opcode == kMovFrom) return mode == 3 && to == (modrm & 7);
  if (opcode != kLea || mode == 3) return false;
  const uint8_t sib = (modrm & 7) == kHasSib ? byte_at(code, 2) : static_cast<uint8_t>(kNoIndex << 3 | (modrm & 7));
  const Bytes displacement = code.subspan((modrm & 7) == kHasSib ? 3 : 2);
  const bool is_zero = std::all_of(displacement.begin(), displacement.end(), [](std::byte each) { return each == std::byte{}; });
  return (sib >> 3 & 7) == kNoIndex && (sib & 7) == to && is_zero;
}

// The immediate operand of CMP or SUB, with which a switch checks its value; none for other instructions.
std::optional<uint64_t> compared_with(Bytes code) {
  const bool is_word = byte_at(code, 0) == kOperandSize;
  const uint8_t opcode = byte_at(code, is_word ? 1 : 0), digit = byte_at(code, is_word ? 2 : 1) >> 3 & 7;
  const bool is_group = opcode == 0x80 || opcode == 0x81 || opcode == 0x83, is_long = opcode == 0x81 || opcode == 0x2d || opcode == 0x3d;
  if (is_group ? digit != 5 && digit != 7 : !is_long && opcode != 0x2c && opcode != 0x3c) return std::nullopt;
  const uint64_t bytes = !is_long ? 1 : is_word ? 2 : 4;
  uint64_t value = 0;
  for (uint64_t i = bytes; i-- > 0;) value = value << 8 | byte_at(code, code.size() - bytes + i);
  return value;
}

// How many values pass a check: where its conditional jump is taken, and where it is not.
struct PassedCounts {
  uint64_t taken = kAnyCount, not_taken = kAnyCount;
};

// Of a conditional jump directly after a comparison with `value`.
PassedCounts passed_counts(Bytes jump, std::optional<uint64_t> value) {
  const uint8_t first = byte_at(jump, 0), opcode = first == 0x0f ? byte_at(jump, 1) - 0x10 : first;
  if (!value) return {};
  switch (opcode) {
    case 0x72:
      return {*value, kAnyCount};  // JB
    case 0x73:
      return {kAnyCount, *value};  // JAE
    case 0x76:
      return {*value + 1, kAnyCount};  // JBE
    case 0x77:
      return {kAnyCount, *value + 1};  // JA
    default:
      return {};
  }
}

}  // namespace

struct FunctionReach::Step {
  InsnClass cls = InsnClass::bad;
  Bytes code;
  uint64_t next = 0;     // address after the instruction
  uint64_t target = 0;   // of a direct branch within the section; 0: none
  bool goes_on = false;  // `next` may be executed after it
};

struct FunctionReach::Place {
  uint64_t at = 0;
  uint64_t most_cases = kAnyCount;  // of a switch whose value was checked on the way here
};

struct FunctionReach::Reached {
  uint64_t start = 0, limit = 0;
  std::vector<bool> bytes;                            // from `start` on
  std::unordered_map<uint64_t, uint64_t> most_cases;  // Place::most_cases of each instruction
  std::vector<uint64_t> switches;                     // ends of indirect jumps
};

FunctionReach::FunctionReach(const PeFile& file, const std::vector<PeSymbol>& symbols, const std::vector<PeFunction>& functions)
    : file_(file), bytes_left_(file.file().bytes().size()), entries_left_(2 * bytes_left_ / kEntryBytes) {
  starts_ = file.entries();
  for (const PeSymbol& symbol : symbols) starts_.push_back(symbol.address);
  for (const PeFunction& function : functions) starts_.push_back(function.first);
  sort_once(starts_);
  find_callees();
  find_tables();
}

// The instruction at an address, which ends within the bytes of its section.
FunctionReach::Step FunctionReach::step_at(uint32_t address) const {
  constexpr std::byte kFastFail{0x29};  // INT 29H: the process ends
  const PeSection* section = file_.code_of(address);
  const uint64_t into = section == nullptr ? 0 : address - section->address;
  if (section == nullptr || into >= section->file_size_bytes) return {};
  const Bytes rest = file_.file().bytes().subspan(section->file_offset_bytes + into, section->file_size_bytes - into);
  const Bytes code = rest.first(std::min<uint64_t>(rest.size(), kLongestInsn));
  const Insn insn = classify(code, file_.is_64bit() ? ExecMode::bits64 : ExecMode::bits32);
  if (insn.cls == InsnClass::bad) return {};
  Step step{insn.cls, code.first(insn.length_bytes), uint64_t{address} + insn.length_bytes, 0, true};
  if (insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jcc || insn.cls == InsnClass::call_direct) {
    const uint64_t target = step.next + static_cast<uint64_t>(insn.displacement);
    if (target - section->address < section->file_size_bytes) step.target = target;
  }
  const bool ends = insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jump_indirect || insn.cls == InsnClass::ret ||
                    insn.cls == InsnClass::far_jump || insn.cls == InsnClass::far_ret || insn.detail == InsnDetail::int3 ||
                    insn.detail == InsnDetail::ud || (insn.detail == InsnDetail::int_n && code[1] == kFastFail);
  step.goes_on = !ends;
  return step;
}

// Adds the targets of CALLs. A CALL of the next instruction only reads the instruction pointer. Sections may share bytes of the file: each
// is read once.
void FunctionReach::find_callees() {
  std::vector<bool> seen(file_.file().bytes().size());  // by offset in the file
  std::vector<uint32_t> open = starts_;
  while (!open.empty()) {
    uint32_t at = open.back();
    open.pop_back();
    const PeSection* section = file_.code_of(at);
    if (section == nullptr) continue;
    for (bool goes_on = true; goes_on && at - section->address < section->file_size_bytes;) {
      const uint64_t offset = uint64_t{section->file_offset_bytes} + (at - section->address);
      if (seen[offset]) break;
      seen[offset] = true;
      const Step step = step_at(at);
      if (step.target != 0 && step.target != step.next) {
        open.push_back(static_cast<uint32_t>(step.target));
        if (step.cls == InsnClass::call_direct) starts_.push_back(static_cast<uint32_t>(step.target));
      }
      goes_on = step.goes_on && step.cls != InsnClass::bad;
      at = static_cast<uint32_t>(step.next);
    }
  }
  sort_once(starts_);
}

// The address of the table of `jmp *table(,%reg,4)` of i386; none for other code.
std::optional<uint32_t> FunctionReach::table_of(Bytes code) const {
  constexpr uint8_t kGroup5 = 0xff, kJumpBySib = 0x24, kScaleAndBase = 0xc7, kFourNoBase = 0x85;
  if (code.size() != kTableJumpBytes || byte_at(code, 0) != kGroup5 || byte_at(code, 1) != kJumpBySib) return std::nullopt;
  if ((byte_at(code, 2) & kScaleAndBase) != kFourNoBase) return std::nullopt;
  return static_cast<uint32_t>(number_at<uint32_t>(code, 3) - file_.image_base());
}

// Finds the tables of all switches of i386 code, including those of functions without a name.
void FunctionReach::find_tables() {
  const Bytes bytes = file_.file().bytes();
  if (file_.is_64bit() || file_.has_symtab()) return;
  for (uint64_t at = 0; at + kTableJumpBytes <= bytes.size(); ++at) {
    if (const auto table = table_of(bytes.subspan(at, kTableJumpBytes))) tables_.push_back(*table);
  }
  sort_once(tables_);
}

// The targets of a switch of i386. Its table ends where the check of the switch's value says, where another table begins, or at the first
// entry outside of the function. Entries are addresses of the linked image.
std::vector<uint64_t> FunctionReach::cases_of(Bytes jump, const Reached& reached, uint64_t most) {
  std::vector<uint64_t> cases;
  const std::optional<uint32_t> table = file_.is_64bit() ? std::nullopt : table_of(jump);
  if (!table) return cases;
  const auto other = std::upper_bound(tables_.begin(), tables_.end(), *table);
  if (other != tables_.end()) most = std::min<uint64_t>(most, (*other - *table) / kEntryBytes);
  for (uint64_t at = *table; cases.size() < most && entries_left_ > 0; at += kEntryBytes, --entries_left_) {
    const Bytes entry = file_.at(at, kEntryBytes);
    const uint64_t target = number_at<uint32_t>(entry, 0) - file_.image_base();
    if (entry.empty() || target <= reached.start || target >= reached.limit) break;
    cases.push_back(target);
  }
  return cases;
}

// Whether only fillers lead from one address to the other; true for none.
bool FunctionReach::is_padding(uint64_t from, uint64_t to) const {
  constexpr uint64_t kMostBytes = 63;
  if (to - from > kMostBytes) return false;
  while (from < to) {
    const Step step = step_at(static_cast<uint32_t>(from));
    if (step.cls == InsnClass::bad || !is_filler(step.code, file_.is_64bit())) return false;
    from = step.next;
  }
  return from == to;
}

// Whether a JMP is the last call of the function: one to what follows it, but for padding. Within a function, the code would go on without
// it, unless it was compiled without optimization. Then the function has a frame, which is left before a last call.
bool FunctionReach::leaves(const Step& jump, Bytes before, uint64_t start) const {
  constexpr uint8_t kPushFrame = 0x55, kPopFrame = 0x5d, kLeave = 0xc9;
  if (jump.cls != InsnClass::jump_direct || jump.target < jump.next || !is_padding(jump.next, jump.target)) return false;
  const bool has_frame = byte_at(file_.at(start, 1), 0) == kPushFrame;
  return jump.target != jump.next || !has_frame || byte_at(before, 0) == kPopFrame || byte_at(before, 0) == kLeave;
}

// Marks the code to which the start leads.
void FunctionReach::follow(Reached& reached) {
  std::vector<Place> open{{reached.start}};
  while (!open.empty()) {
    Place place = open.back();
    open.pop_back();
    Bytes before;  // the instruction before
    while (place.at - reached.start < reached.bytes.size()) {
      if (reached.bytes[place.at - reached.start]) {
        // If a check can be bypassed, it is not the check of the switch that both ways lead to.
        const auto known = reached.most_cases.find(place.at);
        if (known == reached.most_cases.end() || place.most_cases <= known->second) break;
        place.most_cases = kAnyCount;
      }
      reached.most_cases[place.at] = place.most_cases;
      const Step step = step_at(static_cast<uint32_t>(place.at));
      if (step.cls == InsnClass::bad) break;
      std::fill(reached.bytes.begin() + static_cast<std::ptrdiff_t>(place.at - reached.start),
                reached.bytes.begin() + static_cast<std::ptrdiff_t>(std::min(step.next, reached.limit) - reached.start), true);
      PassedCounts passed{place.most_cases, place.most_cases};
      if (step.cls == InsnClass::jcc) passed = passed_counts(step.code, compared_with(before));
      const bool is_followed = step.target != 0 && step.cls != InsnClass::call_direct && !leaves(step, before, reached.start);
      if (is_followed) open.push_back({step.target, passed.taken});
      if (step.cls == InsnClass::jump_indirect) {
        reached.switches.push_back(step.next);
        for (const uint64_t target : cases_of(step.code, reached, place.most_cases)) open.push_back({target});
      }
      if (!step.goes_on) break;
      before = step.code;
      place = {step.next, passed.not_taken};
    }
  }
  std::sort(reached.switches.begin(), reached.switches.end());
}

uint64_t FunctionReach::end_of(uint32_t start, uint64_t limit) {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), start);
  if (next != starts_.end()) limit = std::min<uint64_t>(limit, *next);
  if (file_.has_symtab()) return limit;
  if (const PeSection* section = file_.code_of(start)) limit = std::min(limit, uint64_t{section->address} + section->file_size_bytes);
  if (limit <= start || limit - start > bytes_left_) return start;
  bytes_left_ -= limit - start;
  Reached reached{start, limit, std::vector<bool>(limit - start), {}, {}};
  follow(reached);
  uint64_t end = start;
  for (;;) {
    while (end < limit && reached.bytes[end - start]) ++end;
    uint64_t later = end;
    while (later < limit && !reached.bytes[later - start]) ++later;
    const bool is_switch = std::binary_search(reached.switches.begin(), reached.switches.end(), end);
    if (later >= limit || !(is_switch || is_padding(end, later))) return end;
    end = later;
  }
}

}  // namespace ptd
