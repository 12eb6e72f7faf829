// The C API: plans, their units, and the results of units.
#include "recording/bundle/plan.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/table/flow/unit_pass.h"
#include "analysis/table/table.h"
#include "analysis/walk/recorded_steps.h"
#include "capi/arrow_stream.h"
#include "capi/control.h"
#include "capi/open_recording.h"
#include "capi/table_request.h"
#include "ptdecode/ptdecode_plan.h"
#include "ptdecode/survey.h"

using namespace ptd;

namespace {

std::vector<std::string> list_of(const char* const* strings) {
  std::vector<std::string> list;
  for (; strings != nullptr && *strings != nullptr; ++strings) list.emplace_back(*strings);
  return list;
}

/// PTD_OK if the recording is a plan with this unit, and its trace is there.
ptd_code check_planned(const capi::OpenedRecording& opened, uint32_t unit, char** message) {
  if (!is_plan(*opened.recording)) return capi::bad_argument(message, "the recording is not a plan");
  if (unit >= units_of(*opened.recording).size()) return capi::bad_argument(message, "the plan has no such unit");
  if (const auto error = opened.shrunk_error(true)) return capi::fail(message, *error);
  const Status status = check_unit(*opened.recording, units_of(*opened.recording)[unit]);
  return status ? PTD_OK : capi::fail(message, status.error());
}

}  // namespace

ptd_code ptd_plan_write(const char* path, const char* output, const ptd_plan_options* options, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (path == nullptr || output == nullptr) return capi::null_argument(message, "ptd_plan_write: path or output is NULL");
    ptd_plan_options given = PTD_INIT(ptd_plan_options);
    if (options != nullptr && !capi::read_struct(options, given))
      return capi::wrong_size(message, "ptd_plan_options has a size that no version had");
    if (given.reserved != 0) return capi::bad_argument(message, "ptd_plan_options.reserved is not 0");
    OpenRequest request;
    capi::Control control;
    if (const ptd_code code = capi::read_open_options(given.open, request, control, message); code != PTD_OK) return code;
    request.path = path;
    if (request.raw) request.raw->winipt_path = path;
    request.check = [&control] { control.check(); };
    request.progress = [&control](uint64_t done, uint64_t total) {
      control.progress(done, total);
      control.check();
    };
    PlanOptions plan;
    plan.output_path = output;
    plan.unit_bytes = given.unit_bytes;
    plan.units = given.units;
    const Result<PlanReport> report = write_plan(request, plan);
    return report ? PTD_OK : capi::fail(message, report.error());
  });
}

ptd_code ptd_plan_open(const char* path, const char* const* traces, uint64_t flags, ptd_recording** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (path == nullptr || out == nullptr) return capi::null_argument(message, "ptd_plan_open: path or out is NULL");
    *out = nullptr;
    if ((flags & ~uint64_t{PTD_PLAN_WITHOUT_TRACE}) != 0)
      return capi::bad_argument(message, "ptd_plan_open: flags has a bit that this version does not know");
    OpenRequest request;
    capi::Control control;
    request.path = path;
    request.trace_files = list_of(traces);
    request.without_trace = (flags & PTD_PLAN_WITHOUT_TRACE) != 0;
    request.unit_by_unit = true;
    ptd_recording* handle = nullptr;
    if (const ptd_code code = capi::open_handle(request, control, nullptr, {}, &handle, message); code != PTD_OK) return code;
    const auto opened = capi::find(handle);
    if (opened && is_plan(*opened->recording)) {
      *out = handle;
      return PTD_OK;
    }
    (void)ptd_close(handle);
    return capi::bad_argument(message, std::string(path) + ": the recording is not a plan");
  });
}

ptd_code ptd_plan_json(const ptd_recording* plan, char** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return capi::null_argument(message, "ptd_plan_json: out is NULL");
    *out = nullptr;
    const auto opened = capi::find(plan);
    if (!opened) return capi::bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    if (!is_plan(*opened->recording)) return capi::bad_argument(message, "the recording is not a plan");
    *out = capi::copy_text(plan_json(*opened->recording));
    return *out == nullptr ? capi::out_of_memory(message) : PTD_OK;
  });
}

ptd_code ptd_unit_steps(const ptd_recording* plan, uint32_t unit, const char* output, const ptd_control* control, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (output == nullptr) return capi::null_argument(message, "ptd_unit_steps: output is NULL");
    const auto opened = capi::find(plan);
    if (!opened) return capi::bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    if (const ptd_code code = check_planned(*opened, unit, message); code != PTD_OK) return code;
    capi::Control stop;
    if (!stop.set(control)) return capi::wrong_size(message, "ptd_control has a size that no version had");
    const Status status = write_unit_steps(*opened->recording, unit, output, [&stop] { return stop.cancelled(); });
    return status ? PTD_OK : capi::fail(message, opened->cause_of(status.error()));
  });
}

ptd_code ptd_unit_tables(const ptd_recording* plan, uint32_t unit, const char* const* tables, const ptd_table_options* const* options,
                         const char* steps, ArrowArrayStream* out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (tables == nullptr || tables[0] == nullptr || out == nullptr)
      return capi::null_argument(message, "ptd_unit_tables: tables or out is NULL");
    const auto opened = capi::find(plan);
    if (!opened) return capi::bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    if (const ptd_code code = check_planned(*opened, unit, message); code != PTD_OK) return code;
    std::vector<std::shared_ptr<capi::Control>> controls;
    std::vector<UnitTable> wanted;
    for (size_t i = 0; tables[i] != nullptr; ++i) {
      const auto& control = controls.emplace_back(std::make_shared<capi::Control>());
      TableRequest& request = wanted.emplace_back(tables[i], TableRequest()).second;
      if (const ptd_code code = capi::read_table_options(options == nullptr ? nullptr : options[i], *opened, control, request, message);
          code != PTD_OK)
        return code;
      control->set_owner(reinterpret_cast<uintptr_t>(opened.get()));  // a callback of one of the streams must not read another one
    }
    auto opened_tables = open_unit_tables(*opened->recording, unit, wanted, steps == nullptr ? "" : steps, false);
    if (!opened_tables) return capi::fail(message, opened->cause_of(opened_tables.error()));
    for (size_t i = 0; i < controls.size(); ++i) capi::export_stream(opened, std::move((*opened_tables)[i]), controls[i], out[i]);
    return PTD_OK;
  });
}

ptd_code ptd_plan_table(const ptd_recording* plan, const char* table, uint32_t unit, const char* const* steps,
                        const ptd_table_options* options, ArrowArrayStream* out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (table == nullptr || out == nullptr) return capi::null_argument(message, "ptd_plan_table: table or out is NULL");
    auto opened = capi::find(plan);
    if (!opened) return capi::bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    const auto control = std::make_shared<capi::Control>();
    TableRequest request;
    if (const ptd_code code = capi::read_table_options(options, *opened, control, request, message); code != PTD_OK) return code;
    if (!is_plan(*opened->recording)) return capi::bad_argument(message, "the recording is not a plan");
    if (unit != PTD_NONE) {
      if (const ptd_code code = check_planned(*opened, unit, message); code != PTD_OK) return code;
      request.unit = units_of(*opened->recording)[unit];
      request.streams = {request.unit->stream};
    }
    if (steps != nullptr) {
      auto collected = collect_steps(*opened->recording, list_of(steps));
      if (!collected) return capi::fail(message, collected.error());
      request.steps = std::make_shared<StepFiles>(std::move(*collected));
    }
    auto opened_table = open_table(*opened->recording, table, request);
    if (!opened_table) return capi::fail(message, opened->cause_of(opened_table.error()));
    capi::export_stream(std::move(opened), std::move(opened_table.value()), control, *out);
    return PTD_OK;
  });
}
