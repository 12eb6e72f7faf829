// Names of kernel debug files, which provide file names and line numbers only, never code bytes.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace ptd {

/// The section path under which Symbolizer::add_debug_file() gets vmlinux. No section has it: the kernel's text is a copy of memory, at an
/// address that was drawn at boot. What lies between the two is told by _stext, which both name.
inline constexpr const char* kKernelDebugPath = "[kernel] debug file";
/// The same of files of the recorded release, by number and best first, where the recording does not tell a build id: the names of
/// functions have to prove one.
inline std::string kernel_release_path(size_t number) { return "[kernel] file of its release, " + std::to_string(number); }
inline constexpr size_t kMostKernelFiles = 16;

/// The path of sections that are the kernel's own text; those of a module's have its name in brackets.
inline constexpr const char* kKernelTextPath = "[kernel.kallsyms]";

/// The build id of a section whose recording tells several of it: no file has it.
inline constexpr const char* kSeveralBuildIds = "several";

/// "[virtio_ring]" of ".../virtio-ring.ko.xz", of ".../virtio-ring.ko" and of "[virtio_ring]": the section path of that module. Empty if
/// the path is no module's.
inline std::string module_section_path(std::string_view path) {
  if (path.starts_with('[') && path.ends_with(']')) return std::string(path);
  path.remove_prefix(path.rfind('/') + 1);
  const size_t suffix = path.rfind(".ko");
  const std::string_view rest = suffix == std::string_view::npos ? std::string_view{} : path.substr(suffix + 3);
  if (suffix == std::string_view::npos || suffix == 0 || (!rest.empty() && rest.front() != '.')) return {};
  std::string name(path.substr(0, suffix));
  std::replace(name.begin(), name.end(), '-', '_');
  return "[" + name + "]";
}

}  // namespace ptd
