// BPF programs, instruction by instruction: on raw tracepoints, with sub-programs, on fentry trampolines.
#include "capture/emulate/guest/bpf_programs.h"

#include <linux/bpf.h>
#include <linux/btf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "capture/emulate/guest/guest_files.h"

namespace ptd::emulate::guest {
namespace {

long call_bpf(int command, bpf_attr& attr) { return syscall(SYS_bpf, command, &attr, sizeof(attr)); }

bpf_insn insn(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm) {
  bpf_insn out{};
  out.code = code;
  out.dst_reg = dst & 15U;
  out.src_reg = src & 15U;
  out.off = off;
  out.imm = imm;
  return out;
}
bpf_insn mov(uint8_t dst, int32_t imm) { return insn(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm); }
bpf_insn copy(uint8_t dst, uint8_t src) { return insn(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0); }
bpf_insn alu(uint8_t op, uint8_t dst, int32_t imm) { return insn(static_cast<uint8_t>(BPF_ALU64 | op | BPF_K), dst, 0, 0, imm); }
bpf_insn helper(int32_t id) { return insn(BPF_JMP | BPF_CALL, 0, 0, 0, id); }
bpf_insn call_to(int32_t distance) { return insn(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, distance); }
bpf_insn end() { return insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

/// Branches on the time and the shape, so that the trace has branches.
std::vector<bpf_insn> body(uint32_t shape) {
  std::vector<bpf_insn> code = {helper(BPF_FUNC_ktime_get_ns), copy(BPF_REG_6, BPF_REG_0), mov(BPF_REG_0, 0)};
  for (uint32_t i = 0; i < 3 + shape % 5; ++i) {
    code.push_back(copy(BPF_REG_7, BPF_REG_6));
    code.push_back(alu(BPF_AND, BPF_REG_7, static_cast<int32_t>(8U << (i + shape % 3))));
    code.push_back(insn(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_7, 0, static_cast<int16_t>(1 + shape % 2), 0));
    code.push_back(alu(BPF_ADD, BPF_REG_0, static_cast<int32_t>(shape)));
    if (shape % 2 == 1) code.push_back(alu(BPF_XOR, BPF_REG_0, static_cast<int32_t>(i)));
  }
  code.push_back(mov(BPF_REG_0, 0));
  code.push_back(end());
  return code;
}

std::vector<bpf_insn> body_with_subprograms(uint32_t shape) {
  // main: two calls; each sub-program saves and uses R6, R7.
  std::vector<bpf_insn> code = {mov(BPF_REG_1, 1), call_to(0), mov(BPF_REG_1, 2), call_to(0), mov(BPF_REG_0, 0), end()};
  const size_t first_call = 1, second_call = 3;
  for (const size_t call : {first_call, second_call}) {
    code[call].imm = static_cast<int32_t>(code.size() - call - 1);
    const std::vector<bpf_insn> sub = body(shape + static_cast<uint32_t>(call));
    code.insert(code.end(), sub.begin(), sub.end());
  }
  return code;
}

int load(uint32_t type, const std::vector<bpf_insn>& code, uint32_t btf_id) {
  static char log[1 << 16];
  bpf_attr attr{};
  attr.prog_type = type;
  attr.insns = reinterpret_cast<uint64_t>(code.data());
  attr.insn_cnt = static_cast<uint32_t>(code.size());
  attr.license = reinterpret_cast<uint64_t>("GPL");
  std::strcpy(attr.prog_name, "ptdecode");
  if (btf_id != 0) {
    attr.expected_attach_type = BPF_TRACE_FENTRY;
    attr.attach_btf_id = btf_id;
  }
  attr.log_buf = reinterpret_cast<uint64_t>(log);
  attr.log_size = sizeof(log);
  attr.log_level = 1;
  const long fd = call_bpf(BPF_PROG_LOAD, attr);
  if (fd < 0) say("bpf: load: %s: %.300s", std::strerror(errno), log);
  return static_cast<int>(fd);
}

int open_tracepoint(const char* name, int program) {
  bpf_attr attr{};
  attr.raw_tracepoint.name = reinterpret_cast<uint64_t>(name);
  attr.raw_tracepoint.prog_fd = static_cast<uint32_t>(program);
  const long fd = call_bpf(BPF_RAW_TRACEPOINT_OPEN, attr);
  if (fd < 0) say("bpf: attach %s: %s", name == nullptr ? "fentry" : name, std::strerror(errno));
  return static_cast<int>(fd);
}

size_t bytes_behind(uint32_t kind, uint32_t vlen) {
  switch (kind) {
    case BTF_KIND_INT:
      return 4;
    case BTF_KIND_ARRAY:
      return sizeof(btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION:
      return vlen * sizeof(btf_member);
    case BTF_KIND_ENUM:
      return vlen * sizeof(btf_enum);
    case BTF_KIND_FUNC_PROTO:
      return vlen * sizeof(btf_param);
    case BTF_KIND_VAR:
      return 4;
    case BTF_KIND_DATASEC:
      return vlen * sizeof(btf_var_secinfo);
    case BTF_KIND_DECL_TAG:
      return 4;
    case 19:
      return vlen * 12;  // BTF_KIND_ENUM64
    default:
      return 0;
  }
}

/// Returns the number of the function's type in the kernel's BTF; 0 if there is none.
uint32_t find_function(const std::string& name) {
  static const std::string btf = read_file("/sys/kernel/btf/vmlinux");
  if (btf.size() < sizeof(btf_header)) return 0;
  btf_header header{};
  std::memcpy(&header, btf.data(), sizeof(header));
  const char* types = btf.data() + header.hdr_len + header.type_off;
  const char* strings = btf.data() + header.hdr_len + header.str_off;
  uint32_t id = 1;
  for (size_t at = 0; at + sizeof(btf_type) <= header.type_len; ++id) {
    btf_type type{};
    std::memcpy(&type, types + at, sizeof(type));
    const uint32_t kind = BTF_INFO_KIND(type.info), vlen = type.info & 0xffff;
    if (kind == BTF_KIND_FUNC && name == strings + type.name_off) return id;
    at += sizeof(type) + bytes_behind(kind, vlen);
  }
  return 0;
}

}  // namespace

bool BpfPrograms::attach_tracepoint(const char* tracepoint, uint32_t shape) {
  const int program = load(BPF_PROG_TYPE_RAW_TRACEPOINT, body(shape), 0);
  if (program < 0) return false;
  fds_.push_back(program);
  fds_.push_back(open_tracepoint(tracepoint, program));
  return fds_.back() >= 0;
}

bool BpfPrograms::attach_with_subprograms(const char* tracepoint, uint32_t shape) {
  const int program = load(BPF_PROG_TYPE_RAW_TRACEPOINT, body_with_subprograms(shape), 0);
  if (program < 0) return false;
  fds_.push_back(program);
  fds_.push_back(open_tracepoint(tracepoint, program));
  return fds_.back() >= 0;
}

bool BpfPrograms::attach_fentry(const char* function, uint32_t shape) {
  const uint32_t id = find_function(function);
  if (id == 0) {
    say("bpf: no BTF of %s", function);
    return false;
  }
  const int program = load(BPF_PROG_TYPE_TRACING, body(shape), id);
  if (program < 0) return false;
  fds_.push_back(program);
  fds_.push_back(open_tracepoint(nullptr, program));
  return fds_.back() >= 0;
}

void BpfPrograms::detach_all() {
  for (auto fd = fds_.rbegin(); fd != fds_.rend(); ++fd) {
    if (*fd >= 0) close(*fd);
  }
  fds_.clear();
}

}  // namespace ptd::emulate::guest
