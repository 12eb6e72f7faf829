// SystemMachine: see system_machine.h.
#include "capture/emulate/plugin/system_machine.h"

#include <algorithm>

namespace ptd::emulate {

const std::vector<SeenInsn>& TranslatedBlock::insns_of(const Block& block) {
  static std::vector<SeenInsn> insns;
  insns.clear();
  size_t at = 0;
  for (unsigned i = 0; i < block.insns; at += block.lengths[i++]) insns.push_back({block.bytes + at, block.lengths[i]});
  return insns;
}

uint64_t VirtualClock::settle(uint64_t settled, bool halted) {
  const uint64_t counted = now();
  if (settled == settled_) return counted;
  if (!halted) {
    ++times_;
    if (settled != counted) ++wrong_;
  }
  settled_ = settled;
  since_ = 0;
  return std::min(settled, counted);
}

void SummaryFile::line(const std::string& name, uint64_t value) {
  if (file_ != nullptr) (void)std::fprintf(file_, "%s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
}

void SummaryFile::lines(const VirtualClock& clock) {
  line("settled", clock.times_settled());
  line("settled_wrong", clock.times_wrong());
  line("end_time", clock.now());
}

void SummaryFile::lines(unsigned vcpu, const VcpuCounts& counts) {
  const std::string name = "cpu" + std::to_string(vcpu) + "_";
  line(name + "insns", counts.insns);
  line(name + "kernel_insns", counts.kernel_insns);
  line(name + "events", counts.events);
  line(name + "irregular", counts.irregular);
  line(name + "stops_inside", counts.stops_inside);
}

std::string start_plugin(const qemu_info_t& info, const char* target, std::span<char* const> arguments,
                         const std::function<bool(const std::string&, const std::string&)>& take) {
  std::string why;
  if (info.version.min > kPluginVersion || info.version.cur < kPluginVersion) why = "the version of the plugin interface is not 4";
  if (std::string(target) != info.target_name || !info.system_emulation) why = std::string("not a machine of qemu-system-") + target;
  for (const std::string argument : arguments) {
    const size_t equal = argument.find('=');
    if (!take(argument.substr(0, equal), equal == std::string::npos ? "" : argument.substr(equal + 1)))
      why = "unknown argument " + argument;
  }
  return why;
}

int refuse_plugin(const std::string& why) {
  (void)std::fprintf(stderr, "ptdecode system plugin: %s\n", why.c_str());
  return 1;
}

}  // namespace ptd::emulate
