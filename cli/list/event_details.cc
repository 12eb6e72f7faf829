// The payload of an event in words, declared in line_writer.h.
#include "cli/list/line_writer.h"

namespace ptd::cli {

namespace {

void field(TextBuffer& out, std::string_view name, uint64_t value, bool hex = true) {
  out.text(name);
  out.text(hex ? " 0x" : " ");
  if (hex) {
    out.hex(value);
  } else {
    out.dec(value);
  }
}

const char* mode_name(uint64_t mode) {
  switch (static_cast<ExecMode>(mode)) {
    case ExecMode::bits16:
      return "16-bit";
    case ExecMode::bits32:
      return "32-bit";
    case ExecMode::bits64:
      return "64-bit";
    default:
      return "unknown mode";
  }
}

}  // namespace

void append_event_details(TextBuffer& out, const Event& event) {
  switch (event.kind) {
    case EventKind::exec_mode:
      out.text(mode_name(event.payload));
      break;
    case EventKind::paging:
      field(out, "cr3", event.payload);
      break;
    case EventKind::context:
      field(out, "id", event.payload);
      field(out, " vmid", event.aux & 0xffffffff);
      field(out, " level", event.aux >> 32 & 3, false);
      out.text((event.aux >> 34 & 1) != 0 ? " non-secure" : " secure");
      break;
    case EventKind::instrumentation:
    case EventKind::trace_event:
      field(out, "value", event.payload);
      break;
    case EventKind::skipped:
      if (event.payload == 0) {
        out.text("count unknown");
        break;
      }
      [[fallthrough]];
    case EventKind::ignored_packets:
      field(out, "count", event.payload, false);
      break;
    case EventKind::vmcs:
      field(out, "vmcs", event.payload);
      break;
    case EventKind::cbr:
      field(out, "ratio", event.payload, false);
      break;
    case EventKind::cfe:
      field(out, "type", event.payload & 0xff);
      field(out, " vector", event.payload >> 8, false);
      break;
    case EventKind::evd:
      field(out, "type", event.aux);
      field(out, " payload", event.payload);
      break;
    case EventKind::mwait:
      field(out, "hints", event.payload);
      field(out, " extensions", event.aux);
      break;
    case EventKind::trig:
      field(out, "triggers", event.payload);
      if (event.aux != 0) out.text(" and others");
      break;
    case EventKind::interrupt_flag:
      out.text(event.payload != 0 ? "interrupts enabled" : "interrupts disabled");
      break;
    case EventKind::ptwrite:
    case EventKind::mnt:
    case EventKind::pwre:
    case EventKind::pwrx:
    case EventKind::pebs_begin:
    case EventKind::pebs_end:
      field(out, "payload", event.payload);
      break;
    case EventKind::pebs_item:
      field(out, "item", event.aux);
      field(out, " value", event.payload);
      break;
    default:
      break;
  }
  if ((event.flags & kEventNonRoot) != 0) out.text(" (VMX non-root)");
}

}  // namespace ptd::cli
