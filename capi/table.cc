// The C API: tables.
#include <string>
#include <utility>

#include "analysis/table/table.h"
#include "capi/arrow_stream.h"
#include "capi/handle.h"
#include "capi/message.h"

using namespace ptd;

namespace {

/// Returns the options of a caller of any version; fields that its version does not have get their defaults.
ptd_table_options known_options(const ptd_table_options* given) {
  ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
  if (given != nullptr) std::memcpy(&options, given, std::min(given->size, sizeof(options)));
  return options;
}

void add_list(const char* const* from, std::vector<std::string>& to) {
  for (; from != nullptr && *from != nullptr; ++from) to.emplace_back(*from);
}

TableRequest request_of(const ptd_table_options& options) {
  TableRequest request;
  add_list(options.columns, request.columns);
  add_list(options.functions, request.functions);
  if (options.stream != PTD_NONE) request.streams = {options.stream};
  request.cpu = options.cpu;
  request.pid = options.pid;
  request.tid = options.tid;
  if (options.first_ns != 0) request.time.first = TimeNs{static_cast<uint64_t>(options.first_ns)};
  if (options.last_ns != 0) request.time.last = TimeNs{static_cast<uint64_t>(options.last_ns)};
  if (options.batch_rows != 0) request.batch_rows = options.batch_rows;
  request.threads = options.threads;
  if (const ptd_control* control = options.control; control != nullptr) {
    if (control->cancelled != nullptr) request.cancelled = [control] { return control->cancelled(control->user) != 0; };
    if (control->progress != nullptr)
      request.progress = [control](uint64_t done, uint64_t total) { control->progress(control->user, done, total); };
  }
  return request;
}

}  // namespace

ptd_code ptd_table(const ptd_recording* recording, const char* table, const ptd_table_options* options, ArrowArrayStream* out,
                   char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (table == nullptr || out == nullptr) return capi::fail(message, PTD_ERROR_NULL_ARGUMENT, "ptd_table: table or out is NULL");
    auto opened = capi::find(recording);
    if (!opened) return capi::fail(message, PTD_ERROR_INVALID_HANDLE, "ptd_table: this is not an open recording");
    if (options != nullptr && (options->size < sizeof(size_t) || options->size > 4096))
      return capi::fail(message, PTD_ERROR_WRONG_SIZE, "ptd_table: options->size is not the size of ptd_table_options");
    TableRequest request = request_of(known_options(options));
    request.path = opened->options.path;
    if (request.time.empty() || request.time.first.value > INT64_MAX)
      return capi::fail(message, PTD_ERROR_BAD_ARGUMENT, "ptd_table: first_ns is after last_ns");
    auto opened_table = open_table(*opened->recording, table, request);
    if (!opened_table) return capi::fail(message, opened_table.error());
    capi::export_stream(std::move(opened), std::move(opened_table.value()), *out);
    return PTD_OK;
  });
}

const char* ptd_table_names() {
  static const std::string names = [] {
    std::string text;
    for (const std::string_view name : table_names()) text += (text.empty() ? "" : "\n") + std::string(name);
    return text;
  }();
  return names.c_str();
}
