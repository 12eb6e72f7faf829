// Names of kernel debug files, which provide file names and line numbers only, never code bytes.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace ptd {

/// The section path under which vmlinux is passed to Symbolizer::add_debug_file(). No section has this path: the kernel's text is a copy of
/// memory at an address chosen at boot. The offset between the two is the difference of _stext, which both contain.
inline constexpr const char* kKernelDebugPath = "[kernel] debug file";
/// Same for files of the recorded release, by number and best first, if the recording has no build id. Then the names of functions must
/// prove that the file is the right one.
inline std::string kernel_release_path(size_t number) { return "[kernel] file of its release, " + std::to_string(number); }
inline constexpr size_t kMostKernelFiles = 16;

/// The path of sections with the kernel's own text; those of a module have its name in brackets.
inline constexpr const char* kKernelTextPath = "[kernel.kallsyms]";

/// The build id of a section for which the recording has several. No file matches it.
inline constexpr const char* kSeveralBuildIds = "several";

/// Returns the section path of a module: "[virtio_ring]" for ".../virtio-ring.ko.xz", ".../virtio-ring.ko" and "[virtio_ring]". Empty if
/// the path is not a module's.
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
