// Reads loaded BPF programs from the kernel: jited code, addresses, names, BTF.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perfio/perf_reader.h"

namespace ptd::live {

/// Returns the program with this id, if it is still loaded and was jited; needs CAP_SYS_ADMIN. Its code is that of all its functions,
/// contiguous.
[[nodiscard]] std::optional<perfio::BpfProgInfo> read_bpf_program(uint32_t id);
/// Returns the types (BTF) with this id, in the kernel's format; empty if they are no longer loaded.
[[nodiscard]] std::vector<std::byte> read_bpf_types(uint32_t btf_id);
/// Returns the ids of all loaded programs.
[[nodiscard]] std::vector<uint32_t> list_bpf_programs();
/// Returns the names of a program's functions in KSYMBOL records: bpf_prog_TAG_NAME.
[[nodiscard]] std::vector<std::string> bpf_symbol_names(const perfio::BpfProgInfo& program);

}  // namespace ptd::live
