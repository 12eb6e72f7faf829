// The C API: tables.
#include "analysis/table/table.h"

#include <memory>
#include <string>
#include <utility>

#include "capi/arrow_stream.h"
#include "capi/control.h"
#include "capi/handle.h"
#include "capi/items.h"
#include "capi/message.h"
#include "capi/table_request.h"

using namespace ptd;

namespace {

void add_list(const char* const* from, std::vector<std::string>& to) {
  for (; from != nullptr && *from != nullptr; ++from) to.emplace_back(*from);
}

TableRequest table_request(const ptd_table_options& options, const std::shared_ptr<capi::Control>& control) {
  TableRequest request;
  add_list(options.columns, request.columns);
  add_list(options.functions, request.functions);
  if (options.stream != PTD_NONE) request.streams = {options.stream};
  request.cpu = options.cpu;
  request.pid = options.pid;
  request.tid = options.tid;
  if (options.batch_rows != 0) request.batch_rows = options.batch_rows;
  request.threads = options.threads;
  request.cancelled = [control] { return control->cancelled(); };
  request.progress = [control](uint64_t done, uint64_t total) { control->progress(done, total); };
  return request;
}

}  // namespace

ptd_code capi::read_table_options(const ptd_table_options* options, const OpenedRecording& opened, const std::shared_ptr<Control>& control,
                                  TableRequest& request, char** message) {
  ptd_table_options given = PTD_TABLE_OPTIONS_INIT;
  if (options != nullptr && !read_struct(options, given)) return wrong_size(message, "ptd_table_options has a size that no version had");
  if (!control->set(given.control)) return wrong_size(message, "ptd_control has a size that no version had");
  control->set_owner(control->number());
  const auto is_empty = [](const char* const* list) { return list != nullptr && *list == nullptr; };
  if (is_empty(given.columns) || is_empty(given.functions))
    return bad_argument(message, "ptd_table_options: columns or functions is an empty list; NULL: the default columns, all functions");
  request = table_request(given, control);
  request.path = opened.options.path;
  request.unchanged = [&opened]() -> Status {
    const auto error = opened.replaced_error();
    return error ? Status(*error) : Status{};
  };
  if (!read_range(given.first_ns, given.last_ns, request.time))
    return bad_argument(message, "ptd_table_options: first_ns is after last_ns, or one of them is negative");
  return PTD_OK;
}

ptd_code ptd_table(const ptd_recording* recording, const char* table, const ptd_table_options* options, ArrowArrayStream* out,
                   char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (table == nullptr || out == nullptr) return capi::null_argument(message, "ptd_table: table or out is NULL");
    auto opened = capi::find(recording);
    if (!opened) return capi::bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    const auto control = std::make_shared<capi::Control>();
    TableRequest request;
    if (const ptd_code code = capi::read_table_options(options, *opened, control, request, message); code != PTD_OK) return code;
    auto opened_table = open_table(*opened->recording, table, request);
    if (!opened_table) return capi::fail(message, opened->cause_of(opened_table.error()));
    capi::export_stream(std::move(opened), std::move(opened_table.value()), control, *out);
    return PTD_OK;
  });
}

const char* ptd_table_names() {
  static char names[512];  // larger than the names of all tables; filled once
  static const bool filled = [] {
    size_t at = 0;
    for (const std::string_view name : table_names()) {
      if (at != 0) names[at++] = '\n';
      at += name.copy(names + at, sizeof names - 1 - at);
    }
    return true;
  }();
  return filled ? names : "";
}
