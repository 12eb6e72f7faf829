// TriggerChoice: see trigger_event.h.
#include "capture/live/events/trigger_event.h"

#include <optional>

#include "capture/live/events/pmu_terms.h"
#include "capture/live/events/symbol_places.h"

namespace ptd::live {
namespace {

Error wrong(const std::string& what) { return {ErrorCode::bad_option, "record: --trigger: " + what, 0}; }

Result<uint64_t> offset_of(const ElfFile& file, const std::string& function) {
  const std::optional<uint64_t> address = function.starts_with("0x") ? parse_integer(function, 0) : std::nullopt;
  if (address) {
    const std::optional<uint64_t> offset = code_offset(file, *address);
    return offset ? Result<uint64_t>(*offset) : wrong(function + " is not in an executable segment of " + file.path());
  }
  const SymbolPlaces places = SymbolPlaces::of_file(file);
  const Result<SymbolPlace> found = places.find(function);
  if (found) return found->place;
  if (found.error().code != ErrorCode::no_such_function) return wrong(file.path() + ": " + found.error().message);
  return wrong(file.path() + " has no function " + function + "; if the file is stripped, give the function's address (0x...)");
}

}  // namespace

Result<TriggerChoice> find_trigger(const std::string& place, uint64_t duration_ns, const std::string& sysfs) {
  constexpr std::string_view kKind = "uprobe:";
  const size_t colon = place.rfind(':');
  if (!place.starts_with(kKind) || colon <= kKind.size() || colon + 1 == place.size() || place.find(',') != std::string::npos)
    return wrong("'" + place + "' is not uprobe:FILE:FUNCTION or uprobe:FILE:FUNCTION,duration>5ms");
  TriggerChoice choice;
  choice.text = place;
  choice.duration_ns = duration_ns;
  choice.path = place.substr(kKind.size(), colon - kKind.size());
  const auto file = ElfFile::open(choice.path);
  if (!file) return file.error();
  const Result<uint64_t> offset = offset_of(**file, place.substr(colon + 1));
  if (!offset) return offset.error();
  choice.offset_bytes = *offset;
  const Result<Pmu> pmu = read_pmu("uprobe", sysfs);
  if (!pmu)
    return Error{ErrorCode::no_hardware, "record: --trigger: this kernel has no uprobe events (CONFIG_UPROBE_EVENTS, Linux 4.17)", 0};
  choice.type = pmu->type;
  choice.return_bit = pmu->mask_of("retprobe");
  if (choice.on_return() && choice.return_bit == 0)
    return Error{ErrorCode::no_hardware, "record: --trigger: this kernel has no return probes (uretprobes), which duration> needs", 0};
  return choice;
}

}  // namespace ptd::live
