// SystemGlue: see system_glue.h.
#include "capture/emulate/plugin/system_glue.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace ptd::emulate {
namespace {

constexpr std::array kNames = {"rax", "rdx", "rsp", "cr3", "rip", "pc", "ELR_EL1", "ESR_EL1", "VBAR", "CONTEXTIDR_EL1", "cs"};

const char* name_of(GuestRegister which) { return kNames[static_cast<size_t>(which)]; }

}  // namespace

void stop_emulator(const std::string& why) {
  (void)std::fprintf(stderr, "ptdecode system plugin: %s\n", why.c_str());
  _exit(1);
}

bool SystemGlue::attach(std::initializer_list<GuestRegister> registers, std::string& why) {
  needed_ = registers;
  const auto find = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
  get_cpu_ = reinterpret_cast<void* (*)(int)>(find("qemu_get_cpu"));
  icount_get_ = reinterpret_cast<int64_t (*)()>(find("icount_get"));
  if (get_cpu_ == nullptr || icount_get_ == nullptr || find("current_cpu") == nullptr) {
    why = "this QEMU does not export qemu_get_cpu, icount_get and current_cpu (Debian's 10.0 does)";
    return false;
  }
  buffer_ = g_byte_array_new();
  return true;
}

unsigned SystemGlue::current_vcpu(unsigned told) {
  if (current_cpu_ == nullptr) current_cpu_ = static_cast<void**>(dlsym(RTLD_DEFAULT, "current_cpu"));  // this thread's
  void* cpu = *current_cpu_;
  if (cpu == last_cpu_) return last_index_;
  for (unsigned i = 0; i < kMaxVcpus; ++i) {
    if (get_cpu_(static_cast<int>(i)) != cpu) continue;
    last_cpu_ = cpu;
    last_index_ = i;
    return i;
  }
  return told;
}

uint64_t SystemGlue::settled_time() {
  // With a current cpu QEMU would update the time now, which is not allowed inside a block.
  void* cpu = *current_cpu_;
  *current_cpu_ = nullptr;
  const int64_t now = icount_get_();
  *current_cpu_ = cpu;
  return static_cast<uint64_t>(now);
}

void SystemGlue::find_registers() {
  const GArray* all = qemu_plugin_get_registers();
  for (unsigned i = 0; all != nullptr && i < all->len; ++i) {
    const auto& descriptor = reinterpret_cast<const qemu_plugin_reg_descriptor*>(all->data)[i];
    for (size_t k = 0; k < registers_.size(); ++k) {
      if (std::strcmp(descriptor.name, kNames[k]) == 0) registers_[k] = descriptor.handle;
    }
  }
  std::string missing;
  for (const GuestRegister which : needed_) {
    if (registers_[static_cast<size_t>(which)] == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name_of(which);
  }
  if (!missing.empty()) stop_emulator("this QEMU does not expose registers that the trace needs: " + missing);
  needed_.clear();
}

uint64_t SystemGlue::read(GuestRegister which) {
  if (!needed_.empty()) find_registers();
  g_byte_array_set_size(buffer_, 0);
  uint64_t value = 0;
  const int size = qemu_plugin_read_register(registers_[static_cast<size_t>(which)], buffer_);
  if (size != 4 && size < 8) stop_emulator(std::string("this QEMU does not read the register ") + name_of(which));
  std::memcpy(&value, buffer_->data, size == 4 ? 4 : 8);
  return value;
}

std::optional<uint64_t> SystemGlue::peek(uint64_t address) {
  g_byte_array_set_size(buffer_, 0);
  uint64_t value = 0;
  if (!qemu_plugin_read_memory_vaddr(address, buffer_, sizeof(value)) || buffer_->len < sizeof(value)) return std::nullopt;
  std::memcpy(&value, buffer_->data, sizeof(value));
  return value;
}

}  // namespace ptd::emulate
