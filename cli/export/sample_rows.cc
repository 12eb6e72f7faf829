// SampleRows: see sample_rows.h.
#include "cli/export/sample_rows.h"

#include <algorithm>

#include "cli/export/branch_types.h"
#include "cli/export/plain_rows.h"
#include "cli/options/thread_filters.h"

namespace ptd::cli {

namespace {

// Columns of the sources.
enum : size_t {
  kTimeColumn,
  kCpuColumn,
  kPidColumn,
  kTidColumn,
  kComm,
  kSpace,
  kKind,
  kIp,
  kSymbol,
  kOffset,
  kModule,
  kTo,
  kToSymbol,
  kToOffset,
  kToModule,
  kInstructions,
  kMarks
};
constexpr size_t kPeriod = kTo, kFields = kToSymbol, kEventNumber = kToOffset, kPayloadColumn = kInstructions, kAux = kMarks;
const std::vector<std::string> kBranchColumns = {"time_ns",   "cpu",       "pid",       "tid",          "comm",   "space",
                                                 "flags",     "ip",        "symbol",    "offset",       "module", "to",
                                                 "to_symbol", "to_offset", "to_module", "instructions", "marks"};
const std::vector<std::string> kEventColumns = {"time_ns",   "cpu",       "pid",       "tid",     "comm",   "space",
                                                "event",     "ip",        "symbol",    "offset",  "module", "to",
                                                "to_symbol", "to_offset", "to_module", "payload", "aux"};
const std::vector<std::string> kSampleColumns = {"time_ns", "cpu",    "pid",    "tid",    "comm",   "space",  "event",
                                                 "ip",      "symbol", "offset", "module", "period", "fields", "event_number"};

// Columns that are written.
enum : size_t {
  oId,
  oEvent,
  oThread,
  oComm,
  oFile,
  oSymbol,
  oOffset,
  oIp,
  oTime,
  oCpu,
  oToFile,
  oToSymbol,
  oToOffset,
  oToIp,
  oPeriod,
  oType,
  oInstructions,
  oMarks,
  oFields,
  oNoAddress
};
constexpr const char* kColumns =
    "id,evsel_id,thread_id,comm_id,dso_id,symbol_id,sym_offset,ip,time,cpu,to_dso_id,to_symbol_id,to_sym_offset,to_ip,period,branch_type,"
    "insn_count,marks,fields,no_address";

constexpr const char* kBranches = "branches";

constexpr int64_t kNotHere = -1;  // the event is in ptd_events only
constexpr int64_t kNotMet = -2;

/// The events that perf's export script has a table for, and its columns.
const std::map<std::string, const char*> kSingleEvents = {
    {"ptwrite", "id,payload,exact_ip"}, {"cbr", "id,cbr,percent"}, {"mwait", "id,hints,extensions"},
    {"pwre", "id,cstate,subcstate,hw"}, {"exstop", "id,exact_ip"}, {"pwrx", "id,deepest_cstate,last_cstate,wake_reason"}};

/// Returns the name in selected_events of an event of samples. perf's viewer takes every event for branches whose name up to a colon is
/// `branches`, and ends with an error if there are two.
std::string listed_name(const std::string& sampled) {
  const std::string base = sampled.substr(0, sampled.find(':'));
  return base == kBranches || kSingleEvents.contains(base) ? "samples of " + sampled : sampled;
}

}  // namespace

Result<std::unique_ptr<SampleRows>> SampleRows::create(Database& database, ExportNames& names, CallInput& input) {
  std::unique_ptr<SampleRows> made(new SampleRows(database, names, input));
  auto samples = Inserter::create(database, "samples", kColumns);
  if (!samples) return samples.error();
  made->samples_ = std::move(*samples);
  for (const auto& [table, columns] : kSingleEvents) {
    auto inserter = Inserter::create(database, table, columns);
    if (!inserter) return inserter.error();
    made->events_[table] = std::move(*inserter);
  }
  return made;
}

Status SampleRows::add(std::string_view table, const TableRequest& request) {
  const Source::Kind kind = table == "branches" ? Source::branches : table == "events" ? Source::events : Source::samples;
  TableRequest asked = request;
  asked.columns = kind == Source::branches ? kBranchColumns : kind == Source::events ? kEventColumns : kSampleColumns;
  Result<std::unique_ptr<Table>> opened = open_table(input_.recording(), table, asked);
  if (!opened) return opened.error();
  sources_.push_back(std::make_unique<Source>(kind, RowReader(std::move(*opened))));
  return {};
}

// To the next row that is wanted.
Result<bool> SampleRows::advance(Source& source, const std::function<bool()>& stopped) {
  for (uint64_t count = 1; count % kRowsPerCheck != 0 || !stopped(); ++count) {
    const Result<bool> more = next_row(source.rows);
    if (!more || !more.value()) return more;
    if (!who(source).wanted || kind_of(source) == kNotHere) continue;
    source.time = source.rows.number(kTimeColumn, 0);
    return true;
  }
  return false;
}

const SampleRows::Who& SampleRows::who(Source& source) {
  const RowReader& rows = source.rows;
  const auto pid = static_cast<int32_t>(rows.number(kPidColumn, -1)), tid = static_cast<int32_t>(rows.number(kTidColumn, -1));
  const int32_t comm = rows.name(kComm);
  if (who_of_ == &source && who_.pid == pid && who_.tid == tid && who_.comm == comm) return who_;
  const ScriptOptions& filter = input_.filter();
  const std::string name(rows.text(kComm));
  who_of_ = &source;
  who_ = {pid, tid, comm, false, 0, 0};
  who_.wanted = among(filter.pids, pid) && among(filter.tids, tid) && (filter.comms.empty() || among(filter.comms, name));
  if (!who_.wanted) return who_;
  who_.thread = names_.thread(pid, tid);
  who_.comm_id = names_.comm(name, pid, who_.thread, TimeNs{static_cast<uint64_t>(rows.number(kTimeColumn, 0))});
  return who_;
}

int64_t SampleRows::add_event(std::string name, std::optional<std::string> sampled) {
  events_listed_.push_back({std::move(name), std::move(sampled)});
  return static_cast<int64_t>(events_listed_.size());
}

// Of a branch its type, of anything else its event.
int64_t SampleRows::kind_of(Source& source) {
  const int32_t name_index = source.rows.name(kKind);
  if (name_index < 0) return source.kind == Source::events ? kNotHere : 0;
  const int64_t index = source.kind == Source::samples ? source.rows.number(kEventNumber, 0) : name_index;
  if (static_cast<size_t>(index) >= source.kinds.size()) source.kinds.resize(static_cast<size_t>(index) + 1, kNotMet);
  int64_t& kind = source.kinds[static_cast<size_t>(index)];
  if (kind != kNotMet) return kind;
  const std::string name(source.rows.text(kKind));
  kind = kNotHere;
  if (source.kind == Source::branches) {
    kind = branch_type(name).number;
    branch_flags_.emplace(name, kind);
  } else if (source.kind == Source::samples) {
    kind = add_event(listed_name(name), name);
  } else if (kSingleEvents.contains(name)) {
    kind = add_event(name);
  }
  return kind;
}

// The function at one end of a branch. Returns its address.
int64_t SampleRows::put_place(Source& source, size_t end, size_t first_column) {
  const RowReader& rows = source.rows;
  const size_t from = end == 0 ? kIp : kTo;
  const int64_t ip = rows.number(from, 0), offset = rows.number(from + 2, 0);
  const int32_t symbol = rows.name(from + 1);
  const CodeKey key{symbol, rows.name(from + 3), symbol < 0 ? 0 : static_cast<uint32_t>(rows.number(kSpace, 0)),
                    symbol < 0 ? 0 : ip - offset};
  auto& last = source.last_code[end];
  if (last.key != key) {
    const auto [place, is_new] = source.codes[end].emplace(key, Code());
    if (is_new) {
      const ExportNames::CodeAt at{SpaceId{key.space}, Ip{static_cast<uint64_t>(ip)}, TimeNs{static_cast<uint64_t>(source.time)}};
      place->second = {names_.symbol(rows.text(from + 1), rows.text(from + 3), at), names_.file(rows.text(from + 3))};
    }
    last = {key, place->second};
  }
  samples_->set(first_column, last.code.file);
  samples_->set(first_column + 1, last.code.symbol);
  samples_->set(first_column + 2, offset);
  return ip;
}

Status SampleRows::put(Source& source) {
  const RowReader& rows = source.rows;
  const Who& of = who(source);
  const bool branch = source.kind == Source::branches, sample = source.kind == Source::samples;
  const int64_t kind = kind_of(source);
  samples_->set(oId, ++last_id_);
  if (branch && branches_event_ == 0) branches_event_ = add_event(kBranches);
  samples_->set(oEvent, branch ? branches_event_ : kind);
  samples_->set(oThread, of.thread);
  samples_->set(oComm, of.comm_id);
  samples_->set(oTime, source.time);
  samples_->set(oCpu, rows.number(kCpuColumn, -1));
  samples_->set(oIp, put_place(source, 0, oFile));
  int64_t to = 0;
  if (!sample) {
    to = put_place(source, 1, oToFile);
  } else {
    for (const size_t column : {oToFile, oToSymbol, oToOffset}) samples_->set(column, int64_t{0});
  }
  samples_->set(oToIp, to);
  samples_->set(oPeriod, sample ? rows.number(kPeriod, 0) : 1);
  samples_->set(oType, branch ? kind : 0);
  samples_->set(oInstructions, branch ? rows.number(kInstructions, 0) : 0);
  const auto put_text = [&](size_t column, std::string_view text) {
    if (text.empty()) {
      samples_->set_null(column);
    } else {
      samples_->set(column, text);
    }
  };
  put_text(oMarks, branch ? rows.text(kMarks) : std::string_view());
  put_text(oFields, sample ? rows.text(kFields) : std::string_view());
  samples_->set(oNoAddress, (rows.has(kIp) ? 0 : 1) + (!sample && rows.has(kTo) ? 0 : 2));
  if (const Status status = samples_->insert(); !status) return status;
  branches_ += branch ? 1 : 0;
  return source.kind == Source::events ? put_event(source, std::string(rows.text(kKind))) : Status{};
}

// What perf's export script unpacks of a payload: [linux] tools/perf/scripts/python/export-to-sqlite.py, [SDM] "PWRE Packet", "PWRX
// Packet".
Status SampleRows::put_event(const Source& source, const std::string& event) {
  Inserter& row = *events_.at(event);
  const auto payload = static_cast<uint64_t>(source.rows.number(kPayloadColumn, 0));
  const auto bits = [payload](unsigned first, uint64_t mask) { return static_cast<int64_t>(payload >> first & mask); };
  const int64_t exact = source.rows.has(kIp) ? 1 : 0;
  row.set(0, last_id_);
  if (event == "ptwrite") {
    row.set(1, static_cast<int64_t>(payload));
    row.set(2, exact);
  } else if (event == "cbr") {
    const int64_t nominal = input_.recording().decoder_options().config.max_nonturbo_ratio;
    row.set(1, bits(0, 0xff));
    if (nominal != 0) row.set(2, (bits(0, 0xff) * 1000 / nominal + 5) / 10);
  } else if (event == "mwait") {
    row.set(1, bits(0, 0xff));
    row.set(2, source.rows.number(kAux, 0) & 3);
  } else if (event == "pwre") {
    row.set(1, bits(12, 0xf));
    row.set(2, bits(8, 0xf));
    row.set(3, bits(7, 1));
  } else if (event == "exstop") {
    row.set(1, exact);
  } else {
    row.set(1, bits(0, 0xf));
    row.set(2, bits(4, 0xf));
    row.set(3, bits(8, 0xf));
  }
  return row.insert();
}

Status SampleRows::write(const std::function<bool()>& stopped) {
  for (size_t i = 0; i < sources_.size();) {
    const Result<bool> more = advance(*sources_[i], stopped);
    if (!more) return more.error();
    if (more.value()) {
      ++i;
    } else {
      sources_.erase(sources_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  while (!sources_.empty() && (last_id_ % kRowsPerCheck != 0 || !stopped())) {
    const auto next = std::min_element(sources_.begin(), sources_.end(), [](const auto& a, const auto& b) { return a->time < b->time; });
    if (const Status status = put(**next); !status) return status;
    const Result<bool> more = advance(**next, stopped);
    if (!more) return more.error();
    if (!more.value()) sources_.erase(next);
  }
  return write_lists();
}

std::set<std::string> SampleRows::empty_tables() const {
  std::set<std::string> empty;
  if (samples_->rows() == 0) empty.insert("samples");
  for (const auto& [table, inserter] : events_) {
    if (inserter->rows() == 0) empty.insert(table);
  }
  return empty;
}

Status SampleRows::write_lists() {
  auto events = Inserter::create(database_, "selected_events", "id,name,sampled_name");
  auto types = Inserter::create(database_, "branch_types", "id,name,flags");
  if (!events || !types) return events ? types.error() : events.error();
  Status status =
      database_.run("INSERT INTO selected_events VALUES (0,'unknown','unknown'); INSERT INTO branch_types VALUES (0,'no branch','')");
  for (size_t i = 0; i < events_listed_.size() && status; ++i) {
    const Event& event = events_listed_[i];
    (*events)->set(0, static_cast<int64_t>(i) + 1);
    (*events)->set(1, event.name);
    if (event.sampled) {
      (*events)->set(2, *event.sampled);
    } else {
      (*events)->set_null(2);
    }
    status = (*events)->insert();
  }
  for (const auto& [flags, id] : branch_flags_) {
    if (id == 0 || !status) continue;
    const BranchType type = branch_type(flags);
    (*types)->set(0, id);
    (*types)->set(1, type.name);
    (*types)->set(2, flags);
    status = (*types)->insert();
  }
  return status;
}

}  // namespace ptd::cli
