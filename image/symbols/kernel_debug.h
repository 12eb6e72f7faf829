// How copies of the kernel's memory go together with the kernel's own file, which tells names of files and lines only, never bytes.
#pragma once

namespace ptd {

/// The section path under which Symbolizer::add_debug_file() gets vmlinux. No section has it: the kernel's text is a copy of memory, at an
/// address that was drawn at boot. What lies between the two is told by _stext, which both name.
inline constexpr const char* kKernelDebugPath = "[kernel] debug file";
/// The same of a file of the recorded release, where the recording does not tell a build id: the names of functions have to prove it.
inline constexpr const char* kKernelReleasePath = "[kernel] file of its release";

/// The path of sections that are the kernel's own text; those of a module's have its name in brackets.
inline constexpr const char* kKernelTextPath = "[kernel.kallsyms]";

}  // namespace ptd
