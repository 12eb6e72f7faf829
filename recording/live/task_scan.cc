// SidebandRecorder: what is there when it starts, as records without a time: tasks, their code, BPF programs.
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "perfio/wire.h"
#include "recording/live/bpf_programs.h"
#include "recording/live/sideband_recorder.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr uint32_t kDummyAttr = 1;

RecordContext at_start(uint16_t misc, int32_t pid, int32_t tid) {
  RecordContext context;
  context.attr_index = kDummyAttr;
  context.misc = misc;
  context.sample_id.pid = pid;
  context.sample_id.tid = tid;
  context.sample_id.cpu = 0;
  return context;
}

std::vector<int32_t> numbers_in(const std::string& dir) {
  std::vector<int32_t> numbers;
  DIR* open = opendir(dir.c_str());
  if (open == nullptr) return numbers;
  while (const dirent* entry = readdir(open)) {
    const int32_t number = std::atoi(entry->d_name);
    if (number > 0) numbers.push_back(number);
  }
  closedir(open);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// A line of /proc/PID/maps; false if it is not code.
bool parse_code_map(const std::string& line, MmapRecord& map) {
  unsigned long long first = 0, last = 0, offset = 0, inode = 0;
  unsigned maj = 0, min = 0;
  char prot[8] = "";
  int path_at = -1;
  if (std::sscanf(line.c_str(), "%llx-%llx %7s %llx %x:%x %llu %n", &first, &last, prot, &offset, &maj, &min, &inode, &path_at) < 7)
    return false;
  if (prot[2] != 'x' || last <= first || (first >> 63) != 0) return false;
  map.addr = first;
  map.size_bytes = last - first;
  map.file_offset_bytes = offset;
  map.maj = maj;
  map.min = min;
  map.inode = inode;
  map.prot = 5;   // PROT_READ | PROT_EXEC
  map.flags = 2;  // MAP_PRIVATE
  map.path = path_at >= 0 && static_cast<size_t>(path_at) < line.size() ? line.substr(static_cast<size_t>(path_at)) : "//anon";
  return true;
}

std::string trimmed(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Status SidebandRecorder::write_task(int32_t pid) {
  const std::string dir = "/proc/" + std::to_string(pid);
  for (const int32_t tid : numbers_in(dir + "/task")) {
    const Result<std::string> name = read_text_file(dir + "/task/" + std::to_string(tid) + "/comm");
    if (!name) continue;  // it ended meanwhile
    CommRecord comm;
    comm.pid = pid;
    comm.tid = tid;
    comm.comm = trimmed(*name);
    if (Status status = writer_->add_comm(comm, at_start(0, pid, tid)); !status) return status;
  }
  const Result<std::string> maps = read_text_file(dir + "/maps");
  if (!maps) return {};
  std::istringstream lines(*maps);
  std::string line;
  while (std::getline(lines, line)) {
    MmapRecord map;
    map.pid = map.tid = pid;
    if (!parse_code_map(line, map)) continue;
    if (Status status = writer_->add_mmap2(map, at_start(kMiscUser, pid, pid)); !status) return status;
  }
  return {};
}

Status SidebandRecorder::write_tasks() {
  for (const int32_t pid : numbers_in("/proc")) {
    if (Status status = write_task(pid); !status) return status;
  }
  return {};
}

Status SidebandRecorder::write_bpf_at_start() {
  for (const uint32_t id : list_bpf_programs()) {
    const std::optional<BpfProgInfo> program = read_bpf_program(id);
    if (!program || !program_ids_.insert(id).second) continue;
    const std::vector<std::string> names = bpf_symbol_names(*program);
    for (size_t i = 0; i < names.size(); ++i) {
      KsymbolRecord symbol;
      symbol.addr = program->jited_ksyms[i];
      symbol.size_bytes = program->jited_func_lens[i];
      symbol.type = 1;
      symbol.name = names[i];
      if (Status status = writer_->add_ksymbol(symbol, at_start(kMiscKernel, 0, 0)); !status) return status;
    }
    BpfRecord load;
    load.type = 1;
    load.id = id;
    load.tag.assign(program->tags.begin(), program->tags.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(8, program->tags.size())));
    load.tag.resize(8);
    if (Status status = writer_->add_bpf(load, at_start(kMiscKernel, 0, 0)); !status) return status;
    programs_.push_back(*program);
  }
  return {};
}

}  // namespace ptd::live
