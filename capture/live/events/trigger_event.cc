// TriggerChoice: see trigger_event.h.
#include "capture/live/events/trigger_event.h"

#include <array>
#include <charconv>
#include <optional>

#include "capture/live/events/pmu_terms.h"
#include "image/source/elf_file.h"

namespace ptd::live {
namespace {

Error wrong(const std::string& what) { return {ErrorCode::bad_option, "record: --trigger: " + what, 0}; }

std::optional<uint64_t> duration_of(const std::string& text) {
  struct Unit {
    const char* name;
    uint64_t ns;
  };
  constexpr std::array<Unit, 4> kUnits = {{{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number == 0) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (std::string(end, text.data() + text.size()) == unit.name && number <= ~uint64_t{0} / unit.ns) return number * unit.ns;
  }
  return std::nullopt;
}

// The offset in the file of an address in one of its segments.
std::optional<uint64_t> offset_of(const ElfFile& file, uint64_t address) {
  for (const ElfSegment& segment : file.segments()) {
    if (segment.executable && address >= segment.address && address - segment.address < segment.file_size_bytes)
      return segment.file_offset_bytes + (address - segment.address);
  }
  return std::nullopt;
}

std::optional<uint64_t> address_of(const ElfFile& file, const std::string& function) {
  if (function.starts_with("0x")) {
    uint64_t address = 0;
    const auto [end, error] = std::from_chars(function.data() + 2, function.data() + function.size(), address, 16);
    return error == std::errc() && end == function.data() + function.size() ? std::optional(address) : std::nullopt;
  }
  std::optional<uint64_t> found;
  for (const ElfSymbol& symbol : file.read_symbols()) {
    const bool named = symbol.name == function || (symbol.name.starts_with(function) && symbol.name[function.size()] == '@');
    if (!named || !symbol.function) continue;
    if (symbol.global) return symbol.address;
    if (!found) found = symbol.address;
  }
  return found;
}

}  // namespace

Result<TriggerChoice> parse_trigger(const std::string& text, const std::string& sysfs) {
  constexpr std::string_view kKind = "uprobe:", kCondition = ",duration>";
  const std::string form = "'" + text + "' is not uprobe:FILE:FUNCTION or uprobe:FILE:FUNCTION,duration>5ms";
  if (!text.starts_with(kKind)) return wrong(form);
  TriggerChoice choice;
  choice.text = text;
  std::string place = text.substr(kKind.size());
  if (const size_t condition = place.rfind(kCondition); condition != std::string::npos) {
    const std::optional<uint64_t> ns = duration_of(place.substr(condition + kCondition.size()));
    if (!ns) return wrong("'" + place.substr(condition + 1) + "' is not a duration such as duration>5ms (ns, us, ms, s)");
    choice.duration_ns = *ns;
    place.resize(condition);
  }
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == place.size() || place.find(',') != std::string::npos) return wrong(form);
  choice.path = place.substr(0, colon);
  choice.function = place.substr(colon + 1);
  const auto file = ElfFile::open(choice.path);
  if (!file) return file.error();
  const std::optional<uint64_t> address = address_of(**file, choice.function);
  if (!address) return wrong(choice.path + " has no function " + choice.function + "; if the file is stripped, give the function's address (0x...)");
  const std::optional<uint64_t> offset = offset_of(**file, *address);
  if (!offset) return wrong(choice.function + " is not in an executable segment of " + choice.path);
  choice.offset_bytes = *offset;
  const Result<Pmu> pmu = read_pmu("uprobe", sysfs);
  if (!pmu) return Error{ErrorCode::no_hardware, "record: --trigger: this kernel has no uprobe events (CONFIG_UPROBE_EVENTS, Linux 4.17)", 0};
  choice.type = pmu->type;
  choice.return_bit = pmu->mask_of("retprobe");
  if (choice.on_return() && choice.return_bit == 0) return Error{ErrorCode::no_hardware, "record: --trigger: this kernel has no return probes (uretprobes), which duration> needs", 0};
  return choice;
}

}  // namespace ptd::live
