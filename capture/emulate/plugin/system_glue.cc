// SystemGlue: see system_glue.h.
#include "capture/emulate/plugin/system_glue.h"

#include <dlfcn.h>

#include <cstring>

namespace ptd::emulate {

bool SystemGlue::attach(std::string& why) {
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

bool SystemGlue::find_registers() {
  constexpr const char* kNames[] = {"rax", "rdx", "rsp", "cr3", "rip", "pc", "ELR_EL1", "ESR_EL1", "VBAR", "CONTEXTIDR_EL1"};
  const GArray* all = qemu_plugin_get_registers();
  if (all == nullptr) return false;
  for (unsigned i = 0; i < all->len; ++i) {
    const auto& descriptor = reinterpret_cast<const qemu_plugin_reg_descriptor*>(all->data)[i];
    for (size_t k = 0; k < registers_.size(); ++k) {
      if (std::strcmp(descriptor.name, kNames[k]) == 0) registers_[k] = descriptor.handle;
    }
  }
  searched_ = true;
  return true;
}

bool SystemGlue::has(GuestRegister which) { return (searched_ || find_registers()) && registers_[static_cast<size_t>(which)] != nullptr; }

uint64_t SystemGlue::read(GuestRegister which) {
  if (!searched_ && !find_registers()) return 0;
  qemu_plugin_register* handle = registers_[static_cast<size_t>(which)];
  if (handle == nullptr) return 0;
  g_byte_array_set_size(buffer_, 0);
  uint64_t value = 0;
  const int size = qemu_plugin_read_register(handle, buffer_);
  if (size == 4 || size >= 8) std::memcpy(&value, buffer_->data, size == 4 ? 4 : 8);
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
