// Loaded BPF programs: see bpf_programs.h.
#include "capture/live/kernel/bpf_programs.h"

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace ptd::live {
namespace {

long call_bpf(int command, bpf_attr& attr) { return syscall(SYS_bpf, command, &attr, sizeof(attr)); }

bool get_info(int fd, bpf_prog_info& info) {
  bpf_attr attr{};
  attr.info.bpf_fd = static_cast<uint32_t>(fd);
  attr.info.info_len = sizeof(info);
  attr.info.info = reinterpret_cast<uint64_t>(&info);
  return call_bpf(BPF_OBJ_GET_INFO_BY_FD, attr) == 0;
}

std::optional<perfio::BpfProgInfo> read_by_fd(int fd) {
  bpf_prog_info sizes{};
  constexpr uint32_t kMaxFunctions = 1024, kMaxCode = 64U << 20;
  if (!get_info(fd, sizes) || sizes.jited_prog_len == 0 || sizes.jited_prog_len > kMaxCode) return std::nullopt;
  if (sizes.nr_jited_ksyms == 0 || sizes.nr_jited_ksyms > kMaxFunctions) return std::nullopt;
  perfio::BpfProgInfo program;
  program.jited_insns.resize(sizes.jited_prog_len);
  program.jited_ksyms.resize(sizes.nr_jited_ksyms);
  program.jited_func_lens.resize(sizes.nr_jited_ksyms);
  program.tags.resize(size_t{sizes.nr_jited_ksyms} * BPF_TAG_SIZE);
  bpf_prog_info info{};
  info.jited_prog_len = sizes.jited_prog_len;
  info.jited_prog_insns = reinterpret_cast<uint64_t>(program.jited_insns.data());
  info.nr_jited_ksyms = info.nr_jited_func_lens = info.nr_prog_tags = sizes.nr_jited_ksyms;
  info.jited_ksyms = reinterpret_cast<uint64_t>(program.jited_ksyms.data());
  info.jited_func_lens = reinterpret_cast<uint64_t>(program.jited_func_lens.data());
  info.prog_tags = reinterpret_cast<uint64_t>(program.tags.data());
  if (!get_info(fd, info)) return std::nullopt;
  program.id = info.id;
  program.type = info.type;
  program.name = std::string(info.name, strnlen(info.name, sizeof(info.name)));
  program.load_time_ns = info.load_time;
  program.btf_id = info.btf_id;
  return program;
}

}  // namespace

std::optional<perfio::BpfProgInfo> read_bpf_program(uint32_t id) {
  bpf_attr attr{};
  attr.prog_id = id;
  const long fd = call_bpf(BPF_PROG_GET_FD_BY_ID, attr);
  if (fd < 0) return std::nullopt;
  std::optional<perfio::BpfProgInfo> program = read_by_fd(static_cast<int>(fd));
  close(static_cast<int>(fd));
  return program;
}

std::vector<std::byte> read_bpf_types(uint32_t btf_id) {
  constexpr uint32_t kMaxBytes = 64U << 20;
  bpf_attr attr{};
  attr.btf_id = btf_id;
  const int fd = static_cast<int>(call_bpf(BPF_BTF_GET_FD_BY_ID, attr));
  if (fd < 0) return {};
  std::vector<std::byte> types;
  for (int round = 0; round < 2; ++round) {  // first the size, then the content
    bpf_btf_info info{};
    info.btf = reinterpret_cast<uint64_t>(types.data());
    info.btf_size = static_cast<uint32_t>(types.size());
    bpf_attr ask{};
    ask.info.bpf_fd = static_cast<uint32_t>(fd);
    ask.info.info_len = sizeof(info);
    ask.info.info = reinterpret_cast<uint64_t>(&info);
    if (call_bpf(BPF_OBJ_GET_INFO_BY_FD, ask) != 0 || info.btf_size > kMaxBytes) {
      types.clear();
      break;
    }
    types.resize(info.btf_size);
  }
  close(fd);
  return types;
}

std::vector<uint32_t> list_bpf_programs() {
  std::vector<uint32_t> ids;
  constexpr size_t kMaxPrograms = 1U << 16;
  for (uint32_t last = 0; ids.size() < kMaxPrograms; last = ids.back()) {
    bpf_attr attr{};
    attr.start_id = last;
    if (call_bpf(BPF_PROG_GET_NEXT_ID, attr) != 0) break;
    ids.push_back(attr.next_id);
  }
  return ids;
}

std::vector<std::string> bpf_symbol_names(const perfio::BpfProgInfo& program) {
  std::vector<std::string> names;
  for (size_t i = 0; i < program.jited_ksyms.size(); ++i) {
    std::string name = "bpf_prog_";
    for (size_t k = 0; k < BPF_TAG_SIZE && i * BPF_TAG_SIZE + k < program.tags.size(); ++k) {
      constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned>(program.tags[i * BPF_TAG_SIZE + k]);
      name += kHex[byte >> 4];
      name += kHex[byte & 15];
    }
    if (!program.name.empty()) name += "_" + program.name;
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace ptd::live
