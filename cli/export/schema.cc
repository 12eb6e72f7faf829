// The schema of an exported database: see schema.h.
#include "cli/export/schema.h"

#include <iterator>
#include <string_view>

namespace ptd::cli {

namespace {

// [linux] tools/perf/scripts/python/export-to-sqlite.py names these tables and columns; its viewer (exported-sql-viewer.py) reads them.
// Ours are the columns after perf's last one: their names must not be those of columns in other tables, because perf's queries do not
// qualify names. Every table and view has a column `id`: the viewer reads a table in the order of it.
constexpr const char* kTables = R"sql(
CREATE TABLE ptd_info (id INTEGER NOT NULL PRIMARY KEY, key TEXT, value TEXT);
CREATE TABLE selected_events (id INTEGER NOT NULL PRIMARY KEY, name TEXT, sampled_name TEXT);
CREATE TABLE machines (id INTEGER NOT NULL PRIMARY KEY, pid INTEGER, root_dir TEXT);
CREATE TABLE threads (id INTEGER NOT NULL PRIMARY KEY, machine_id INTEGER, process_id INTEGER, pid INTEGER, tid INTEGER);
CREATE TABLE comms (id INTEGER NOT NULL PRIMARY KEY, comm TEXT, c_thread_id INTEGER, c_time INTEGER, exec_flag INTEGER, has_calls INTEGER);
CREATE TABLE comm_threads (id INTEGER NOT NULL PRIMARY KEY, comm_id INTEGER, thread_id INTEGER);
CREATE TABLE dsos (id INTEGER NOT NULL PRIMARY KEY, machine_id INTEGER, short_name TEXT, long_name TEXT, build_id TEXT);
CREATE TABLE symbols (id INTEGER NOT NULL PRIMARY KEY, dso_id INTEGER, sym_start INTEGER, sym_end INTEGER, binding INTEGER DEFAULT 1, name TEXT);
CREATE TABLE branch_types (id INTEGER NOT NULL PRIMARY KEY, name TEXT, flags TEXT);
CREATE TABLE samples (id INTEGER NOT NULL PRIMARY KEY, evsel_id INTEGER, machine_id INTEGER DEFAULT 1, thread_id INTEGER, comm_id INTEGER,
  dso_id INTEGER, symbol_id INTEGER, sym_offset INTEGER, ip INTEGER, time INTEGER, cpu INTEGER, to_dso_id INTEGER, to_symbol_id INTEGER,
  to_sym_offset INTEGER, to_ip INTEGER, period INTEGER, weight INTEGER DEFAULT 0, transaction_ INTEGER DEFAULT 0, data_src INTEGER DEFAULT 0,
  branch_type INTEGER, in_tx INTEGER DEFAULT 0, call_path_id INTEGER DEFAULT 0, insn_count INTEGER, cyc_count INTEGER DEFAULT 0,
  flags INTEGER DEFAULT 0, marks TEXT, fields TEXT, no_address INTEGER);
CREATE TABLE call_paths (id INTEGER NOT NULL PRIMARY KEY, parent_id INTEGER, symbol_id INTEGER, ip INTEGER);
CREATE TABLE calls (id INTEGER NOT NULL PRIMARY KEY, thread_id INTEGER, comm_id INTEGER, call_path_id INTEGER, call_time INTEGER,
  return_time INTEGER, branch_count INTEGER DEFAULT 0, call_id INTEGER DEFAULT 0, return_id INTEGER DEFAULT 0, parent_call_path_id INTEGER,
  flags INTEGER, parent_id INTEGER, insn_count INTEGER, cyc_count INTEGER, call_symbol_id INTEGER, call_cpu INTEGER, kind INTEGER, depth INTEGER,
  self_ns INTEGER, off_cpu_ns INTEGER, untraced_ns INTEGER, lost_ns INTEGER, self_instructions INTEGER, self_cycles INTEGER, start_seen INTEGER,
  end_seen INTEGER, estimated INTEGER);
CREATE TABLE ptwrite (id INTEGER NOT NULL PRIMARY KEY, payload INTEGER, exact_ip INTEGER);
CREATE TABLE cbr (id INTEGER NOT NULL PRIMARY KEY, cbr INTEGER, mhz INTEGER, percent INTEGER);
CREATE TABLE mwait (id INTEGER NOT NULL PRIMARY KEY, hints INTEGER, extensions INTEGER);
CREATE TABLE pwre (id INTEGER NOT NULL PRIMARY KEY, cstate INTEGER, subcstate INTEGER, hw INTEGER);
CREATE TABLE exstop (id INTEGER NOT NULL PRIMARY KEY, exact_ip INTEGER);
CREATE TABLE pwrx (id INTEGER NOT NULL PRIMARY KEY, deepest_cstate INTEGER, last_cstate INTEGER, wake_reason INTEGER);
CREATE TABLE context_switches (id INTEGER NOT NULL PRIMARY KEY, machine_id INTEGER DEFAULT 1, time INTEGER, cpu INTEGER, thread_out_id INTEGER,
  comm_out_id INTEGER, thread_in_id INTEGER, comm_in_id INTEGER, flags INTEGER);
CREATE TABLE ptd_functions (id INTEGER NOT NULL PRIMARY KEY, function TEXT, module TEXT, calls INTEGER, partial INTEGER, self_instructions INTEGER, total_instructions INTEGER,
  self_ns INTEGER, total_ns INTEGER, off_cpu_ns INTEGER, untraced_ns INTEGER, lost_ns INTEGER, self_cycles INTEGER, total_cycles INTEGER,
  p50_ns INTEGER, p99_ns INTEGER, max_ns INTEGER, no_start INTEGER, no_end INTEGER, estimated INTEGER);
CREATE TABLE ptd_threads (id INTEGER NOT NULL PRIMARY KEY, pid INTEGER, tid INTEGER, comm TEXT, first_ns INTEGER, last_ns INTEGER, running_ns INTEGER, off_cpu_ns INTEGER,
  untraced_ns INTEGER, lost_ns INTEGER, instructions INTEGER, cycles INTEGER, gaps INTEGER, calls_too_deep INTEGER, guessed_longjmps INTEGER);
)sql";

constexpr const char* kListIndexes[] = {"CREATE INDEX symbol_names ON symbols (name)"};
constexpr const char* kCallIndexes[] = {
    "CREATE INDEX calls_by_parent_path ON calls (parent_call_path_id)", "CREATE INDEX calls_by_parent ON calls (parent_id)",
    "CREATE INDEX calls_by_caller ON calls (NULLIF(parent_id, 0))",  // of ptd_calls
    "CREATE INDEX calls_by_function ON calls (call_symbol_id)", "CREATE INDEX calls_by_time ON calls (call_time)"};
constexpr const char* kSampleIndexes[] = {"CREATE INDEX samples_by_time ON samples (time)"};

// Views of lists: few rows each.
constexpr const char* kListViews = R"sql(
CREATE VIEW machines_view AS SELECT id, pid, root_dir,
  CASE WHEN id=0 THEN 'unknown' WHEN pid=-1 THEN 'host' ELSE 'guest' END AS host_or_guest FROM machines;
CREATE VIEW dsos_view AS SELECT id, machine_id, (SELECT host_or_guest FROM machines_view WHERE id = machine_id) AS host_or_guest,
  short_name, long_name, build_id FROM dsos;
CREATE VIEW symbols_view AS SELECT id, name, (SELECT short_name FROM dsos WHERE id=dso_id) AS dso, dso_id, sym_start, sym_end,
  CASE WHEN binding=0 THEN 'local' WHEN binding=1 THEN 'global' ELSE 'weak' END AS binding FROM symbols;
CREATE VIEW threads_view AS SELECT id, machine_id, (SELECT host_or_guest FROM machines_view WHERE id = machine_id) AS host_or_guest,
  process_id, pid, tid FROM threads;
CREATE VIEW comm_threads_view AS SELECT comm_id, (SELECT comm FROM comms WHERE id = comm_id) AS command, thread_id,
  (SELECT pid FROM threads WHERE id = thread_id) AS pid, (SELECT tid FROM threads WHERE id = thread_id) AS tid FROM comm_threads;
)sql";

constexpr const char* kCallViews = R"sql(
CREATE VIEW call_paths_view AS SELECT c.id, printf('%x', c.ip) AS ip, c.symbol_id, (SELECT name FROM symbols WHERE id = c.symbol_id) AS symbol,
  (SELECT dso_id FROM symbols WHERE id = c.symbol_id) AS dso_id, (SELECT dso FROM symbols_view WHERE id = c.symbol_id) AS dso_short_name,
  c.parent_id, printf('%x', p.ip) AS parent_ip, p.symbol_id AS parent_symbol_id,
  (SELECT name FROM symbols WHERE id = p.symbol_id) AS parent_symbol, (SELECT dso_id FROM symbols WHERE id = p.symbol_id) AS parent_dso_id,
  (SELECT dso FROM symbols_view WHERE id = p.symbol_id) AS parent_dso_short_name
  FROM call_paths c INNER JOIN call_paths p ON p.id = c.parent_id;
CREATE VIEW calls_view AS SELECT calls.id, thread_id, (SELECT pid FROM threads WHERE id = thread_id) AS pid,
  (SELECT tid FROM threads WHERE id = thread_id) AS tid, (SELECT comm FROM comms WHERE id = comm_id) AS command, call_path_id,
  printf('%x', ip) AS ip, symbol_id, (SELECT name FROM symbols WHERE id = symbol_id) AS symbol, call_time, return_time,
  CASE WHEN call_time != 0 THEN return_time - call_time END AS elapsed_time, branch_count, insn_count, cyc_count,
  CASE WHEN cyc_count=0 THEN CAST(0 AS FLOAT) ELSE ROUND(CAST(insn_count AS FLOAT) / cyc_count, 2) END AS IPC, call_id, return_id,
  CASE WHEN flags=0 THEN '' WHEN flags=1 THEN 'no call' WHEN flags=2 THEN 'no return' WHEN flags=3 THEN 'no call/return'
    WHEN flags=6 THEN 'jump' ELSE flags END AS flags, parent_call_path_id, calls.parent_id
  FROM calls INNER JOIN call_paths ON call_paths.id = call_path_id;
CREATE VIEW ptd_calls AS SELECT (SELECT NULLIF(pid, -1) FROM threads WHERE id = thread_id) AS pid,
  (SELECT NULLIF(tid, -1) FROM threads WHERE id = thread_id) AS tid, (SELECT comm FROM comms WHERE id = comm_id) AS comm,
  NULLIF(call_cpu, -1) AS cpu, (SELECT name FROM symbols WHERE id = call_symbol_id) AS call,
  COALESCE((SELECT short_name FROM dsos WHERE id = (SELECT NULLIF(dso_id, 0) FROM symbols WHERE id = call_symbol_id)), '') AS module,
  CASE kind WHEN 0 THEN 'call' WHEN 1 THEN 'tail' WHEN 2 THEN 'interrupt' WHEN 3 THEN 'syscall' ELSE 'root' END AS kind, depth,
  NULLIF(call_time, 0) AS start_ns, NULLIF(return_time, 0) AS end_ns, self_ns, off_cpu_ns, untraced_ns, lost_ns, insn_count AS instructions, self_instructions,
  cyc_count AS cycles, self_cycles, start_seen, end_seen, estimated, id, NULLIF(parent_id, 0) AS parent_id FROM calls;
)sql";

constexpr const char* kSampleViews = R"sql(
CREATE VIEW samples_view AS SELECT id, time, cpu, (SELECT pid FROM threads WHERE id = thread_id) AS pid,
  (SELECT tid FROM threads WHERE id = thread_id) AS tid, (SELECT comm FROM comms WHERE id = comm_id) AS command,
  (SELECT name FROM selected_events WHERE id = evsel_id) AS event, printf('%x', ip) AS ip_hex,
  (SELECT name FROM symbols WHERE id = symbol_id) AS symbol, sym_offset, (SELECT short_name FROM dsos WHERE id = dso_id) AS dso_short_name,
  printf('%x', to_ip) AS to_ip_hex, (SELECT name FROM symbols WHERE id = to_symbol_id) AS to_symbol, to_sym_offset,
  (SELECT short_name FROM dsos WHERE id = to_dso_id) AS to_dso_short_name, (SELECT name FROM branch_types WHERE id = branch_type) AS branch_type_name,
  in_tx, insn_count, cyc_count, CASE WHEN cyc_count=0 THEN CAST(0 AS FLOAT) ELSE ROUND(CAST(insn_count AS FLOAT) / cyc_count, 2) END AS IPC, flags
  FROM samples;
)sql";

constexpr const char* kBranchViews = R"sql(
CREATE VIEW ptd_branches AS SELECT NULLIF(time, 0) AS time_ns, NULLIF(cpu, -1) AS cpu,
  (SELECT NULLIF(pid, -1) FROM threads WHERE id = thread_id) AS pid, (SELECT NULLIF(tid, -1) FROM threads WHERE id = thread_id) AS tid,
  (SELECT b.flags FROM branch_types b WHERE b.id = branch_type) AS flags,
  CASE WHEN no_address & 1 = 0 THEN ip END AS ip,
  (SELECT name FROM symbols WHERE id = NULLIF(symbol_id, 0)) AS symbol, CASE WHEN no_address & 2 = 0 THEN to_ip END AS "to",
  (SELECT name FROM symbols WHERE id = NULLIF(to_symbol_id, 0)) AS to_symbol, insn_count AS instructions, marks,
  (SELECT comm FROM comms WHERE id = comm_id) AS comm, CASE WHEN symbol_id != 0 THEN sym_offset END AS "offset", (SELECT short_name FROM dsos WHERE id = NULLIF(dso_id, 0)) AS module,
  CASE WHEN to_symbol_id != 0 THEN to_sym_offset END AS to_offset, (SELECT short_name FROM dsos WHERE id = NULLIF(to_dso_id, 0)) AS to_module, id
  FROM samples WHERE evsel_id = (SELECT id FROM selected_events WHERE name = 'branches');
CREATE VIEW ptd_edges AS SELECT COUNT(*) AS count, flags, pid, ip, symbol, "to", to_symbol, MIN(time_ns) AS first_ns, MIN(id) AS id
  FROM ptd_branches WHERE ip IS NOT NULL AND "to" IS NOT NULL GROUP BY flags, pid, ip, "to" ORDER BY COUNT(*) DESC;
)sql";

constexpr const char* kOtherSampleViews = R"sql(
CREATE VIEW ptd_samples AS SELECT NULLIF(time, 0) AS time_ns, NULLIF(cpu, -1) AS cpu,
  (SELECT NULLIF(pid, -1) FROM threads WHERE id = thread_id) AS pid, (SELECT NULLIF(tid, -1) FROM threads WHERE id = thread_id) AS tid,
  (SELECT sampled_name FROM selected_events WHERE id = evsel_id) AS event, period,
  CASE WHEN no_address & 1 = 0 THEN ip END AS ip,
  (SELECT name FROM symbols WHERE id = NULLIF(symbol_id, 0)) AS symbol, fields, (SELECT comm FROM comms WHERE id = comm_id) AS comm,
  CASE WHEN symbol_id != 0 THEN sym_offset END AS "offset",
  (SELECT short_name FROM dsos WHERE id = NULLIF(dso_id, 0)) AS module, id FROM samples
  WHERE evsel_id IN (SELECT id FROM selected_events WHERE sampled_name IS NOT NULL);
)sql";

constexpr const char* kSwitchViews = R"sql(
CREATE VIEW context_switches_view AS SELECT context_switches.id, context_switches.machine_id, context_switches.time, context_switches.cpu,
  th_out.pid AS pid_out, th_out.tid AS tid_out, comm_out.comm AS comm_out, th_in.pid AS pid_in, th_in.tid AS tid_in, comm_in.comm AS comm_in,
  CASE WHEN context_switches.flags = 0 THEN 'in' WHEN context_switches.flags = 1 THEN 'out' WHEN context_switches.flags = 3 THEN 'out preempt'
    ELSE context_switches.flags END AS flags
  FROM context_switches INNER JOIN threads AS th_out ON th_out.id = context_switches.thread_out_id
  INNER JOIN threads AS th_in ON th_in.id = context_switches.thread_in_id INNER JOIN comms AS comm_out ON comm_out.id = context_switches.comm_out_id
  INNER JOIN comms AS comm_in ON comm_in.id = context_switches.comm_in_id;
)sql";

constexpr const char* kWakeReason =
    "CASE WHEN wake_reason=1 THEN 'Interrupt' WHEN wake_reason=2 THEN 'Timer Deadline' WHEN wake_reason=4 THEN 'Monitored Address' "
    "WHEN wake_reason=8 THEN 'HW' ELSE wake_reason END";

/// The view of a table of single events.
std::string event_view(std::string_view table, std::string_view columns) {
  const std::string name(table);
  return "CREATE VIEW " + name + "_view AS SELECT " + name + ".id, time, cpu, " + std::string(columns) + " FROM " + name +
         " INNER JOIN samples ON samples.id = " + name + ".id;\n";
}

/// perf's view of all events of power and frequency; a table that is removed gives no columns.
std::string power_view() {
  const auto column = [](std::string_view event, std::string_view value, std::string_view as) {
    const std::string name(event);
    return ", CASE WHEN selected_events.name='" + name + "' THEN (SELECT " + std::string(value) + " FROM " + name + " WHERE " + name +
           ".id = samples.id) ELSE '' END AS " + std::string(as);
  };
  return "CREATE VIEW power_events_view AS SELECT samples.id, time, cpu, selected_events.name AS event" + column("cbr", "cbr", "cbr") +
         column("cbr", "mhz", "mhz") + column("cbr", "percent", "percent") + column("mwait", "printf('%x', hints)", "hints_hex") +
         column("mwait", "printf('%x', extensions)", "extensions_hex") + column("pwre", "cstate", "cstate") +
         column("pwre", "subcstate", "subcstate") + column("pwre", "hw", "hw") + column("exstop", "exact_ip", "exact_ip") +
         column("pwrx", "deepest_cstate", "deepest_cstate") + column("pwrx", "last_cstate", "last_cstate") +
         column("pwrx", kWakeReason, "wake_reason") +
         " FROM samples INNER JOIN selected_events ON selected_events.id = evsel_id"
         " WHERE selected_events.name IN ('cbr','mwait','exstop','pwre','pwrx');\n";
}

}  // namespace

const char* schema_tables() { return kTables; }

std::string schema_views(const std::set<std::string>& empty, bool fibres) {
  const auto has = [&](const char* table) { return !empty.contains(table); };
  std::string sql = kListViews;
  if (has("samples")) sql += kSampleViews;
  if (has("samples") && has("ptd_branches")) sql += kBranchViews;
  if (has("samples") && has("ptd_samples")) sql += kOtherSampleViews;
  if (has("calls")) sql += kCallViews;
  if (has("calls") && fibres) sql.insert(sql.rfind(" FROM calls;"), ", fibre");
  if (has("context_switches")) sql += kSwitchViews;
  if (has("ptwrite"))
    sql += event_view("ptwrite", "printf('%x', payload) AS payload_hex, CASE WHEN exact_ip=0 THEN 'False' ELSE 'True' END AS exact_ip");
  // The tables of power and frequency are there together, as the view of them all needs.
  const bool power = has("mwait") || has("pwre") || has("exstop") || has("pwrx");
  if (power) {
    sql += event_view("mwait", "printf('%x', hints) AS hints_hex, printf('%x', extensions) AS extensions_hex");
    sql += event_view("pwre", "cstate, subcstate, CASE WHEN hw=0 THEN 'False' ELSE 'True' END AS hw");
    sql += event_view("exstop", "CASE WHEN exact_ip=0 THEN 'False' ELSE 'True' END AS exact_ip");
    sql += event_view("pwrx", std::string("deepest_cstate, last_cstate, ") + kWakeReason + " AS wake_reason");
    sql += power_view();
  }
  if (power || has("cbr")) sql += event_view("cbr", "cbr, mhz, percent");
  for (const std::string& table : empty) {
    if (table == "ptd_branches" || table == "ptd_samples") continue;  // views
    const bool of_power = table == "mwait" || table == "pwre" || table == "exstop" || table == "pwrx" || table == "cbr";
    if (!of_power || !power) sql += "DROP TABLE " + table + ";\n";
  }
  if (!has("calls")) sql += "DROP TABLE call_paths; ALTER TABLE comms DROP COLUMN has_calls;\n";
  return sql;
}

std::vector<std::string> schema_indexes(const std::set<std::string>& empty) {
  std::vector<std::string> sql(std::begin(kListIndexes), std::end(kListIndexes));
  if (!empty.contains("samples")) sql.insert(sql.end(), std::begin(kSampleIndexes), std::end(kSampleIndexes));
  if (!empty.contains("calls")) sql.insert(sql.end(), std::begin(kCallIndexes), std::end(kCallIndexes));
  return sql;
}

}  // namespace ptd::cli
