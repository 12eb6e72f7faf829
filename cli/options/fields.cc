// The -F option: see fields.h.
#include "cli/options/fields.h"

#include <fmt/format.h>

#include <array>

#include "cli/options/exit_status.h"

namespace ptd::cli {

namespace {

struct NamedField {
  std::string_view name;
  Field field;
};
constexpr std::array kFieldNames = {
    NamedField{"comm", Field::comm},
    NamedField{"tid", Field::tid},
    NamedField{"pid", Field::pid},
    NamedField{"cpu", Field::cpu},
    NamedField{"time", Field::time},
    NamedField{"event", Field::event},
    NamedField{"period", Field::period},
    NamedField{"ip", Field::ip},
    NamedField{"sym", Field::sym},
    NamedField{"symoff", Field::symoff},
    NamedField{"dso", Field::dso},
    NamedField{"addr", Field::addr},
    NamedField{"flags", Field::flags},
    NamedField{"insn", Field::insn},
    NamedField{"insnlen", Field::insnlen},
    NamedField{"disasm", Field::disasm},
    NamedField{"callindent", Field::callindent},
    NamedField{"mark", Field::mark},
    NamedField{"srcline", Field::srcline},
    NamedField{"tod", Field::tod},
    NamedField{"brstack", Field::brstack},
    NamedField{"machine_pid", Field::machine_pid},
    NamedField{"vcpu", Field::vcpu},
};

struct Elsewhere {
  std::string_view name, nearest;
};
constexpr std::array kElsewhere = {
    Elsewhere{"srccode", "use srcline, or disasm"},
    Elsewhere{"dsoff", "use dso,symoff"},
    Elsewhere{"sym_off", "use sym,symoff"},
    Elsewhere{"ipc", "no cycle counts; use --itrace=i with a period"},
    Elsewhere{"brstacksym", "use --itrace=b -F +sym"},
    Elsewhere{"brstackinsn", "use --insn-trace=disasm"},
    Elsewhere{"brstackinsnlen", "use --itrace=i1i -F +insnlen"},
    Elsewhere{"brstackoff", "use --itrace=b -F +symoff"},
    Elsewhere{"trace", "the payload of other events is part of their lines"},
    Elsewhere{"iregs", "PEBS registers are shown by 'ptdecode packets'"},
    Elsewhere{"uregs", "PEBS registers are shown by 'ptdecode packets'"},
    Elsewhere{"synth", "event payloads are part of event lines"},
    Elsewhere{"misc", "not recorded in a trace"},
    Elsewhere{"phys_addr", "not recorded in a trace"},
    Elsewhere{"data_src", "not recorded in a trace"},
    Elsewhere{"weight", "not recorded in a trace"},
    Elsewhere{"metric", "not recorded in a trace"},
    Elsewhere{"bpf-output", "the payload of other events is part of their lines"},
    Elsewhere{"cgroup", "use pid"},
    Elsewhere{"retire_lat", "not recorded in a trace"},
    Elsewhere{"brcntr", "not recorded in a trace"},
};

Result<Field> field_named(std::string_view name) {
  for (const NamedField& known : kFieldNames) {
    if (known.name == name) return known.field;
  }
  for (const Elsewhere& other : kElsewhere) {
    if (other.name == name) return bad_option(fmt::format("-F: '{}' is not available here: {}", name, other.nearest));
  }
  std::string known;
  for (const NamedField& field : kFieldNames) known += fmt::format("{}{}", known.empty() ? "" : ",", field.name);
  return bad_option(fmt::format("-F: unknown field '{}'; known fields: {}", name, known));
}

/// perf allows "hw:ip,sym" and the like; all lines here are of one kind.
Status drop_type_prefix(std::string_view& text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view type = text.substr(0, colon);
  for (std::string_view known : {"hw", "sw", "trace", "raw", "break", "synth"}) {
    if (type == known) {
      text.remove_prefix(colon + 1);
      return {};
    }
  }
  return bad_option(fmt::format("-F: unknown event type '{}'; omit the prefix", type));
}

}  // namespace

Fields default_fields() {
  Fields fields;
  for (Field field : {Field::comm, Field::tid, Field::cpu, Field::time, Field::event, Field::period, Field::ip, Field::sym, Field::symoff,
                      Field::dso, Field::addr, Field::mark}) {
    fields.add(field);
  }
  return fields;
}

Result<Fields> parse_fields(std::string_view text, Fields start) {
  if (Status status = drop_type_prefix(text); !status) return status.error();
  if (text.empty()) return bad_option("-F: no field given; for example -F ip or -F +insn,-comm");
  const bool changes = text.front() == '+' || text.front() == '-';
  Fields fields = changes ? start : Fields{};
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const char sign = word.empty() ? '\0' : word.front();
    const bool is_signed = sign == '+' || sign == '-';
    if (is_signed != changes) return bad_option("-F: either all names have + or -, or none do");
    if (is_signed) word.remove_prefix(1);
    const Result<Field> field = field_named(word);
    if (!field) return field.error();
    if (sign == '-') {
      fields.remove(*field);
    } else {
      fields.add(*field);
    }
  }
  return fields;
}

}  // namespace ptd::cli
