// Records that are longer than their content and trailer: damaged ones, and those that the kernel writes so.
#pragma once

#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/wire.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

/// Returns the bytes of a record up to its trailer, header included, by its content; 0 if the content does not tell. Samples depend on
/// their event.
[[nodiscard]] uint64_t content_bytes(Bytes record);
/// Returns whether the kernel writes records of this type too long if several events request them.
[[nodiscard]] constexpr bool is_written_too_long(uint32_t type) {
  return type == kRecordKsymbol || type == kRecordBpfEvent || type == kRecordTextPoke;
}

/// Each event that gets such a record adds the length of its trailer to the header that all of them share ([Linux] kernel/events/core.c,
/// perf_event_ksymbol_output(), perf_event_bpf_output(), perf_event_text_poke_output(), which do not restore header.size as
/// perf_event_mmap_output() does; observed with 6.18). So if two recorders run, one gets records whose trailer follows the content, with
/// uninitialised bytes after it; parsed from the end, they have no time. Returns the record with the length of its content, in `scratch`
/// if it differs. Any other record is returned unchanged, also if there is no id of `attr` at that position.
[[nodiscard]] Bytes without_excess(Bytes record, const EventAttr& attr, std::vector<std::byte>& scratch);

}  // namespace ptd::perfio
