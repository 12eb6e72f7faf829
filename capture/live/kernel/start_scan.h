// State at the start of a recording, as records without time: threads, their code, kernel maps, BPF programs, machine data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perfio/perf_writer.h"

namespace ptd::live {

/// Receives one record that the kernel did not write; the receiver sets the context's attr_index.
using RecordSink = std::function<Status(const perfio::Payload&, const perfio::RecordContext&)>;

/// Returns the current processes, and the threads of one process; sorted. Empty if there are none.
[[nodiscard]] std::vector<int32_t> list_processes();
[[nodiscard]] std::vector<int32_t> list_threads(int32_t pid);
/// Returns a process and its descendants, from the parent of each process.
[[nodiscard]] std::vector<int32_t> list_tree(int32_t pid);
/// Returns the process of a thread; -1 if there is no such thread.
[[nodiscard]] int32_t process_of(int32_t tid);

/// Emits COMM for each thread and MMAP2 for each mapping of code. A process that has ended gives no records.
Status scan_process(int32_t pid, const RecordSink& sink);
/// Emits MMAP records of the kernel's text and its modules, from the text of /proc/kallsyms. Errors: usage if addresses are hidden.
Status scan_kernel_maps(const std::string& kallsyms, const std::function<Status(const perfio::MmapRecord&)>& sink);
/// Emits KSYMBOL and BPF_EVENT for a loaded program.
Status tell_program(const perfio::BpfProgInfo& program, const RecordSink& sink);

/// Returns host, system and processor as feature sections.
[[nodiscard]] perfio::Features machine_features();
[[nodiscard]] std::vector<int32_t> online_cpus();
/// Parses "0-3,6", sysfs' format; empty if it is malformed.
[[nodiscard]] std::vector<int32_t> parse_cpu_list(const std::string& text);

}  // namespace ptd::live
