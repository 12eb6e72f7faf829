// FunctionReach: see function_reach.h.
#include "recording/windows/function_reach.h"

#include <algorithm>

#include "ptdecode/insn.h"

namespace ptd {
namespace {

constexpr uint64_t kLongestInsn = 15, kEntryBytes = 4;  // the latter: of a switch's table

void sort_once(std::vector<uint32_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

struct FunctionReach::Step {
  InsnClass cls = InsnClass::bad;
  uint64_t next = 0;    // address after the instruction
  uint64_t target = 0;  // of a direct branch within the section; 0: none
  bool goes_on = false;  // `next` may be executed after it
};

FunctionReach::FunctionReach(const PeFile& file, const std::vector<PeSymbol>& symbols, const std::vector<PeFunction>& functions)
    : file_(file), bytes_left_(file.file().bytes().size()), entries_left_(bytes_left_ / kEntryBytes) {
  starts_ = file.entries();
  for (const PeSymbol& symbol : symbols) starts_.push_back(symbol.address);
  for (const PeFunction& function : functions) starts_.push_back(function.first);
  sort_once(starts_);
  find_callees();
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
  Step step{insn.cls, uint64_t{address} + insn.length_bytes, 0, true};
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

// Adds the targets of CALLs. A CALL of the next instruction only reads the instruction pointer. Sections may share bytes of the file: each is read once.
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

// The targets of `jmp *table(,%reg,4)` of i386, up to the first entry outside of the function. Entries are addresses of the linked image.
std::vector<uint64_t> FunctionReach::cases_of(const Step& jump, uint64_t start, uint64_t limit) {
  constexpr uint64_t kBytes = 7;
  constexpr uint8_t kGroup5 = 0xff, kJumpBySib = 0x24, kBaseBits = 7, kNoBase = 5;
  std::vector<uint64_t> cases;
  const Bytes code = jump.next - start < kBytes ? Bytes{} : file_.at(jump.next - kBytes, kBytes);
  if (file_.is_64bit() || jump.cls != InsnClass::jump_indirect || code.empty()) return cases;
  if (number_at<uint8_t>(code, 0) != kGroup5 || number_at<uint8_t>(code, 1) != kJumpBySib || (number_at<uint8_t>(code, 2) & kBaseBits) != kNoBase) return cases;
  for (uint64_t table = number_at<uint32_t>(code, 3) - file_.image_base(); entries_left_ > 0; table += kEntryBytes, --entries_left_) {
    const Bytes entry = file_.at(table, kEntryBytes);
    const uint64_t target = number_at<uint32_t>(entry, 0) - file_.image_base();
    if (entry.empty() || target <= start || target >= limit) break;
    cases.push_back(target);
  }
  return cases;
}

// Whether a few instructions without a branch lead from one address to the other; true for none.
bool FunctionReach::is_padding(uint64_t from, uint64_t to) const {
  constexpr uint64_t kMostBytes = 15;
  if (to - from > kMostBytes) return false;
  while (from < to) {
    const Step step = step_at(static_cast<uint32_t>(from));
    if (step.cls != InsnClass::other || !step.goes_on) return false;
    from = step.next;
  }
  return from == to;
}

uint64_t FunctionReach::end_of(uint32_t start, uint64_t limit) {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), start);
  if (next != starts_.end()) limit = std::min<uint64_t>(limit, *next);
  if (file_.has_symtab()) return limit;
  if (const PeSection* section = file_.code_of(start)) limit = std::min(limit, uint64_t{section->address} + section->file_size_bytes);
  if (limit <= start || limit - start > bytes_left_) return start;
  bytes_left_ -= limit - start;
  std::vector<bool> reached(limit - start);
  std::vector<uint64_t> open{start}, switches;  // the latter: ends of indirect jumps
  while (!open.empty()) {
    uint64_t at = open.back();
    open.pop_back();
    while (at - start < reached.size() && !reached[at - start]) {
      const Step step = step_at(static_cast<uint32_t>(at));
      if (step.cls == InsnClass::bad) break;
      std::fill(reached.begin() + static_cast<std::ptrdiff_t>(at - start),
                reached.begin() + static_cast<std::ptrdiff_t>(std::min(step.next, limit) - start), true);
      // A JMP to what follows it, but for padding, is the last call of the function: within one, the code would go on without it.
      const bool leaves = step.cls == InsnClass::jump_direct && step.target >= step.next && is_padding(step.next, step.target);
      if (step.target != 0 && step.cls != InsnClass::call_direct && !leaves) open.push_back(step.target);
      if (step.cls == InsnClass::jump_indirect) {
        switches.push_back(step.next);
        const std::vector<uint64_t> cases = cases_of(step, start, limit);
        open.insert(open.end(), cases.begin(), cases.end());
      }
      if (!step.goes_on) break;
      at = step.next;
    }
  }
  std::sort(switches.begin(), switches.end());
  uint64_t end = start;
  for (;;) {
    while (end < limit && reached[end - start]) ++end;
    uint64_t later = end;
    while (later < limit && !reached[later - start]) ++later;
    const bool is_switch = std::binary_search(switches.begin(), switches.end(), end);
    if (later >= limit || !(is_switch || is_padding(end, later))) return end;
    end = later;
  }
}

}  // namespace ptd
