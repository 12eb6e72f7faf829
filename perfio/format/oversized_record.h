// Records that the kernel writes too long: KSYMBOL, BPF_EVENT and TEXT_POKE if several events request them.
#pragma once

#include <vector>

#include "perfio/format/event_attr.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

/// Each event that gets such a record adds the length of its trailer to the header that all of them share ([Linux] kernel/events/core.c,
/// perf_event_ksymbol_output(), perf_event_bpf_output(), perf_event_text_poke_output(), which do not put header.size back as
/// perf_event_mmap_output() does; seen with 6.18). So with a second recorder on the machine one of them has records whose trailer stands
/// where the content ends, and behind it bytes that nobody wrote; read from the end they have no time. Gives the record as long as its
/// content says, in `scratch` if that differs; anything else as it is, also where no id of `attr` stands in that place.
[[nodiscard]] Bytes without_excess(Bytes record, const EventAttr& attr, std::vector<std::byte>& scratch);

}  // namespace ptd::perfio
