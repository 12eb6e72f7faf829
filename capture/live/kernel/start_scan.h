// State at the start of a recording, as records without time: threads, their code, kernel maps, BPF programs, machine data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perfio/perf_writer.h"

namespace ptd::live {

/// Takes one record that the kernel did not write; the context's attr_index is for the taker to set.
using RecordSink = std::function<Status(const perfio::Payload&, const perfio::RecordContext&)>;

/// Processes, and threads of one, now; sorted. Empty if there is none such.
[[nodiscard]] std::vector<int32_t> list_processes();
[[nodiscard]] std::vector<int32_t> list_threads(int32_t pid);
/// A process and all that descend from it, by /proc/PID/task/TID/children; where the kernel has it not, by each process's parent.
[[nodiscard]] std::vector<int32_t> list_tree(int32_t pid);
/// The process that a thread belongs to; -1 if there is no such thread.
[[nodiscard]] int32_t process_of(int32_t tid);

/// COMM of each thread and MMAP2 of each mapping that is code. A process that is gone gives nothing.
Status scan_process(int32_t pid, const RecordSink& sink);
/// MMAP-like records of the kernel's text and its modules, by the text of /proc/kallsyms. Errors: usage if addresses are hidden.
Status scan_kernel_maps(const std::string& kallsyms, const std::function<Status(const perfio::MmapRecord&)>& sink);
/// KSYMBOL and BPF_EVENT of a program that is loaded.
Status tell_program(const perfio::BpfProgInfo& program, const RecordSink& sink);

/// Host, system, processor, as feature sections.
[[nodiscard]] perfio::Features machine_features();
[[nodiscard]] std::vector<int32_t> online_cpus();
/// "0-3,6" as sysfs writes it; empty if it is not that.
[[nodiscard]] std::vector<int32_t> parse_cpu_list(const std::string& text);

}  // namespace ptd::live
