// Facts: reads a machine's files.
#include "capture/doctor/facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

namespace ptd::doctor {
namespace {

/// The value of "KEY: value" or "KEY\t: value" in a text of such lines.
std::string field(const std::string& text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") != std::string_view::npos)
      continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string_view::npos ? std::string() : std::string(line.substr(begin));
  }
  return {};
}

std::optional<uint64_t> locked_memory(const std::string& limits) {
  constexpr std::string_view kName = "Max locked memory";
  const size_t at = limits.find(kName);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = limits.find_first_not_of(' ', at + kName.size());
  const std::string word = begin == std::string::npos ? "" : limits.substr(begin, limits.find(' ', begin) - begin);
  if (word == "unlimited") return ~uint64_t{0};
  const auto bytes = number_of(word);
  return bytes ? std::optional<uint64_t>(*bytes) : std::nullopt;
}

}  // namespace

std::string read_some(const std::string& path, int* number, size_t most_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number != nullptr) *number = fd < 0 ? errno : 0;
  if (fd < 0) return {};
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while (text.size() < most_bytes && (got = ::read(fd, buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), static_cast<size_t>(got));
  if (number != nullptr && got < 0) *number = errno;
  ::close(fd);
  return text;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || (end != text.data() + text.size() && *end != '\n')) return std::nullopt;
  return number;
}

Facts::Facts(const Machine& m) : machine(m) {
  const std::string status = read_some(machine.proc + "/self/status");
  const std::string effective = field(status, "CapEff");
  (void)std::from_chars(effective.data(), effective.data() + effective.size(), capabilities, 16);
  paranoid = number_of(proc("sys/kernel/perf_event_paranoid"));
  mlock_kb = number_of(proc("sys/kernel/perf_event_mlock_kb"));
  kptr_restrict = number_of(proc("sys/kernel/kptr_restrict"));
  locked_memory_bytes = locked_memory(read_some(machine.proc + "/self/limits"));
  release = proc("sys/kernel/osrelease");
  const std::string cpu = read_some(machine.proc + "/cpuinfo");
  vendor = field(cpu, "vendor_id");
  model = field(cpu, "model name");
  flags = " " + field(cpu, "flags") + " ";
  lockdown = sys("kernel/security/lockdown");
  if (has_flag("hypervisor")) {
    const std::string maker = sys("class/dmi/id/sys_vendor"), product = sys("class/dmi/id/product_name");
    virtual_machine = maker.empty() && product.empty() ? "a hypervisor" : maker + (maker.empty() || product.empty() ? "" : " ") + product;
  }
  container = !read_some(machine.proc + "/self/cgroup").empty() && (::access((machine.proc + "/../.dockerenv").c_str(), F_OK) == 0 ||
                                                                    ::access((machine.proc + "/../run/.containerenv").c_str(), F_OK) == 0);
}

bool Facts::has_flag(std::string_view flag) const { return flags.find(" " + std::string(flag) + " ") != std::string::npos; }

std::string Facts::proc(const std::string& name) const {
  std::string text = read_some(machine.proc + "/" + name);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string Facts::sys(const std::string& name) const {
  std::string text = read_some(machine.sys + "/" + name);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

bool Facts::has_sys(const std::string& name) const { return ::access((machine.sys + "/" + name).c_str(), F_OK) == 0; }

}  // namespace ptd::doctor
