// The C API: plans, which divide a recording into units that are decoded on their own, and the results of units (docs/FLEET.md).
#pragma once

#include "ptdecode/ptdecode.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ptd_plan_options {
  size_t size;
  uint64_t unit_bytes;          /* about so many bytes of trace in a unit; 0: 128 MiB */
  uint32_t units;               /* or about so many units in all; 0: by size */
  uint32_t reserved;            /* 0 */
  const ptd_open_options* open; /* how to open the recording; NULL: the defaults */
} ptd_plan_options;

/* Opens the recording `path`, reads its trace once without decoding it, and writes its plan to `output`, which is replaced only on success.
 * `options` may be NULL. Errors: those of ptd_open, PTD_ERROR_BAD_OUTPUT, and those of files. */
PTD_C_API ptd_code ptd_plan_write(const char* path, const char* output, const ptd_plan_options* options, char** message);

#define PTD_PLAN_WITHOUT_TRACE 1 /* only to read results of units: the trace files are not opened */
/* Opens a plan. `traces`: where its trace files are, in the order of the plan, ending with NULL; NULL: at their recorded paths. A file may
 * be sparse: a unit reads its own ranges only. The handle works like that of any recording. Errors: those of ptd_open; PTD_ERROR_TRUNCATED
 * and PTD_ERROR_WRONG_RECORDING if a trace file has another size than when it was planned. The bytes of a unit are checked when it is
 * decoded. ptd_open() opens a plan too, and checks all units. So does a table or cursor that decodes the whole plan:
 * PTD_ERROR_WRONG_RECORDING. */
PTD_C_API ptd_code ptd_plan_open(const char* path, const char* const* traces, uint64_t flags, ptd_recording** out, char** message);
/* Sets *out to a description of the plan as a JSON object: id, utc_offset_ns, files, and units with their byte ranges (docs/FLEET.md). Free
 * it with ptd_free(). */
PTD_C_API ptd_code ptd_plan_json(const ptd_recording* plan, char** out, char** message);
/* Decodes unit `unit` and writes the steps of its calls to `output` and "OUTPUT.all", which appear when they are complete. `control` may be
 * NULL; it is used during the call only. Errors: PTD_ERROR_WRONG_RECORDING if the trace is not the one that was planned,
 * PTD_ERROR_CANCELLED, and those of files. */
PTD_C_API ptd_code ptd_unit_steps(const ptd_recording* plan, uint32_t unit, const char* output, const ptd_control* control, char** message);
/* Decodes unit `unit` once, for several tables and its steps.
 * `tables`: edges, block_counts, events, gaps or calls, ending with NULL; `calls` once at most. `options`: one for each table, or NULL;
 * filters are ignored.
 * `steps`: as `output` of ptd_unit_steps(), without "OUTPUT.all"; NULL: none. `out`: an array with a stream for each table.
 * Reading a stream decodes what it needs, while rows of the other streams wait in memory. Read `calls` first, if it is one of them. The
 * steps are complete when one stream has ended. `calls` has those calls that begin and end in one group of the unit (docs/FLEET.md); its
 * depth counts from the outermost call of the group.
 * The streams share the decode. Use and release all of them on one thread at a time, and not in a callback of one of them. While a stream
 * is read, only the callbacks of its own options are called. If it is cancelled, the others can still be read.
 * Errors: those of ptd_unit_steps() and ptd_plan_table(). On an error, no stream is set. */
PTD_C_API ptd_code ptd_unit_tables(const ptd_recording* plan, uint32_t unit, const char* const* tables,
                                   const ptd_table_options* const* options, const char* steps, struct ArrowArrayStream* out,
                                   char** message);
/* Same as ptd_table(), for a plan. `unit`: only what this unit owns, for tables of the flow; PTD_NONE: all. `steps`: files from
 * ptd_unit_steps(), of all units in any order, ending with NULL: calls, functions and threads are made from them, and nothing is decoded;
 * NULL: decode. Two more tables are made from steps: open_calls, the calls that no unit has in its table `calls`, and call_groups (unit,
 * group, depth: how many calls are open around a group of that table). The table calls also reads "FILE.all" for each file. The other
 * tables read it only if a group must be followed step by step, which is rare. Errors: those of
 * ptd_table() and ptd_unit_steps(); PTD_ERROR_MISSING_PART if the steps of a unit are missing. */
PTD_C_API ptd_code ptd_plan_table(const ptd_recording* plan, const char* table, uint32_t unit, const char* const* steps,
                                  const ptd_table_options* options, struct ArrowArrayStream* out, char** message);

#ifdef __cplusplus
}
#endif
