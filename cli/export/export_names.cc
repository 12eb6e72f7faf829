// ExportNames: see export_names.h.
#include "cli/export/export_names.h"

#include <algorithm>

#include "analysis/table/column.h"
#include "image/likeliest_section.h"
#include "image/placed_name.h"
#include "ptdecode/guest.h"

namespace ptd::cli {

namespace {

constexpr int64_t kHost = 1;  // perf's number of this machine

uint64_t key_of(int32_t pid, int32_t tid) { return static_cast<uint64_t>(static_cast<uint32_t>(pid)) << 32 | static_cast<uint32_t>(tid); }

}  // namespace

int64_t ExportNames::thread(int32_t pid, int32_t tid) {
  const auto [place, is_new] = thread_ids_.emplace(key_of(pid, tid), threads_.size() + 1);
  if (is_new) threads_.push_back({pid, tid});
  return place->second;
}

int64_t ExportNames::comm(std::string_view comm, int32_t pid, int64_t thread, TimeNs when) {
  const std::string text = valid_utf8(comm);  // as the tables of columns have it
  const auto [place, is_new] = comm_ids_.emplace(std::to_string(pid) + ' ' + text, comms_.size() + 1);
  if (is_new) comms_.push_back({text, pid, thread, when, false, {}});
  Comm& known = comms_[static_cast<size_t>(place->second) - 1];
  known.first = std::min(known.first, when);
  if (comm_threads_.insert(static_cast<uint64_t>(place->second) << 32 | static_cast<uint32_t>(thread)).second)
    known.threads.push_back(thread);
  return place->second;
}

int64_t ExportNames::file(std::string_view module) {
  if (module.empty()) return 0;
  const std::string name = valid_utf8(module);
  const auto [place, is_new] = file_ids_.emplace(name, files_.size() + 1);
  if (!is_new) return place->second;
  File made{name, name, {}};
  const Timeline& timeline = recording_.timeline();
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (section.path.str().find('/') == std::string::npos || valid_utf8(recording_.symbolizer().module_of(section)) != name) continue;
    made.path = valid_utf8(section.path);
    made.build_id = section.build_id;
    break;
  }
  files_.push_back(std::move(made));
  return place->second;
}

int64_t ExportNames::symbol(std::string_view name, std::string_view module) {
  if (name.empty()) return 0;
  const int64_t file_id = file(module);
  const auto [place, is_new] = symbol_ids_.emplace(std::to_string(file_id) + ' ' + valid_utf8(name), symbols_.size() + 1);
  if (is_new) symbols_.push_back({valid_utf8(name), file_id});
  return place->second;
}

int64_t ExportNames::symbol(std::string_view name, std::string_view module, const CodeAt& at) {
  if (name.empty()) return 0;
  const std::optional<Symbol> found = recording_.symbolizer().find(space_at(at.space, at.ip), at.ip, at.when);
  if (!found) return symbol(name, module);
  const std::string full = found->place.empty() ? std::string(name) : placed_name(found->place, name);
  const uint64_t start = start_of(*found, at);
  const auto [known, is_new] = start_ids_.emplace(std::to_string(file(module)) + ' ' + std::to_string(start) + ' ' + full, 0);
  if (!is_new) return known->second;
  known->second = symbol(full, module);
  if (symbols_[static_cast<size_t>(known->second) - 1].has_start) {
    symbols_.push_back({full, file(module)});
    known->second = static_cast<int64_t>(symbols_.size());
  }
  SymbolRow& row = symbols_[static_cast<size_t>(known->second) - 1];
  row.start = start;
  row.size_bytes = found->size_bytes;
  row.has_start = true;
  return known->second;
}

uint64_t ExportNames::start_of(const Symbol& symbol, const CodeAt& at) const {
  if (is_kernel_half(symbol.start)) return symbol.start.value;
  const std::optional<FilePlace> place = recording_.symbolizer().file_place(at.space, symbol.start, at.when);
  if (place) return place->file_offset_bytes;
  // A bundle has no ELF files, but the mappings of the files that its symbols are from.
  const SectionId id = likeliest_section(recording_.timeline(), at.space, symbol.start, at.when).id;
  if (id == kNoSection) return symbol.start.value;
  const Section& section = recording_.timeline().section(id);
  const bool from_file = !section.path.starts_with("[") || section.path == "[vdso]";
  if (!from_file || recording_.symbolizer().module_of(section) != symbol.module) return symbol.start.value;
  return (symbol.start - section.ip) + section.file_offset_bytes;
}

Status ExportNames::write(Database& database) const {
  if (const Status status = database.run("INSERT INTO machines VALUES (0,0,'unknown'),(1,-1,'')"); !status) return status;
  if (const Status status = write_threads(database); !status) return status;
  return write_symbols(database);
}

Status ExportNames::write_threads(Database& database) const {
  auto threads = Inserter::create(database, "threads", "id,machine_id,process_id,pid,tid");
  if (!threads) return threads.error();
  const auto put = [&](int64_t id, int64_t machine, int64_t process, int32_t pid, int32_t tid) {
    const int64_t values[] = {id, machine, process, pid, tid};
    for (size_t i = 0; i < 5; ++i) (*threads)->set(i, values[i]);
    return (*threads)->insert();
  };
  Status status = put(0, 0, 0, -1, -1);
  for (size_t i = 0; i < threads_.size() && status; ++i) {
    const Thread& thread = threads_[i];
    const auto leader = thread_ids_.find(key_of(thread.pid, thread.pid));
    const auto id = static_cast<int64_t>(i) + 1;
    status = put(id, kHost, leader == thread_ids_.end() ? id : leader->second, thread.pid, thread.tid);
  }
  if (!status) return status;
  auto comms = Inserter::create(database, "comms", "id,comm,c_thread_id,c_time,exec_flag,has_calls");
  auto pairs = Inserter::create(database, "comm_threads", "comm_id,thread_id");
  if (!comms || !pairs) return comms ? pairs.error() : comms.error();
  status = database.run("INSERT INTO comms VALUES (0,'unknown',0,0,0,NULL)");
  for (size_t i = 0; i < comms_.size() && status; ++i) {
    const Comm& comm = comms_[i];
    const auto id = static_cast<int64_t>(i) + 1;
    (*comms)->set(0, id);
    (*comms)->set(1, comm.comm);
    (*comms)->set(2, comm.thread);
    (*comms)->set(3, comm.first.value);
    (*comms)->set(4, int64_t{0});
    if (comm.has_calls) {
      (*comms)->set(5, int64_t{1});
    } else {
      (*comms)->set_null(5);
    }
    status = (*comms)->insert();
    for (size_t j = 0; j < comm.threads.size() && status; ++j) {
      (*pairs)->set(0, id);
      (*pairs)->set(1, comm.threads[j]);
      status = (*pairs)->insert();
    }
  }
  return status;
}

Status ExportNames::write_symbols(Database& database) const {
  auto files = Inserter::create(database, "dsos", "id,machine_id,short_name,long_name,build_id");
  auto symbols = Inserter::create(database, "symbols", "id,dso_id,sym_start,sym_end,name");
  if (!files || !symbols) return files ? symbols.error() : files.error();
  Status status = database.run("INSERT INTO dsos VALUES (0,0,'unknown','unknown',''); INSERT INTO symbols VALUES (0,0,0,0,0,'unknown')");
  for (size_t i = 0; i < files_.size() && status; ++i) {
    (*files)->set(0, static_cast<int64_t>(i) + 1);
    (*files)->set(1, kHost);
    (*files)->set(2, files_[i].name);
    (*files)->set(3, files_[i].path);
    (*files)->set(4, files_[i].build_id);
    status = (*files)->insert();
  }
  for (size_t i = 0; i < symbols_.size() && status; ++i) {
    const SymbolRow& row = symbols_[i];
    (*symbols)->set(0, static_cast<int64_t>(i) + 1);
    (*symbols)->set(1, row.file);
    (*symbols)->set(2, static_cast<int64_t>(row.start));
    (*symbols)->set(3, static_cast<int64_t>(row.start + row.size_bytes));
    (*symbols)->set(4, row.name);
    status = (*symbols)->insert();
  }
  return status;
}

}  // namespace ptd::cli
