// Reads loaded BPF programs from the kernel: jited code, addresses, names, BTF.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perfio/perf_reader.h"

namespace ptd::live {

/// The program with this id, if it is still there and was jited; needs CAP_SYS_ADMIN. Its code is as the kernel gives it: every function,
/// back to back.
[[nodiscard]] std::optional<perfio::BpfProgInfo> read_bpf_program(uint32_t id);
/// The types (BTF) with this id, as the kernel gives them; empty if they are gone.
[[nodiscard]] std::vector<std::byte> read_bpf_types(uint32_t btf_id);
/// Ids of all programs that are loaded now.
[[nodiscard]] std::vector<uint32_t> list_bpf_programs();
/// The names that KSYMBOL records give to the functions of a program: bpf_prog_TAG_NAME.
[[nodiscard]] std::vector<std::string> bpf_symbol_names(const perfio::BpfProgInfo& program);

}  // namespace ptd::live
