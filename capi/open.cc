// The C API: opening and closing recordings, and what they say of themselves.
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "capi/items.h"
#include "capi/open_recording.h"
#include "ptdecode/survey.h"
#include "recording/bundle/plan.h"
#include "recording/data/other_events.h"
#include "recording/image/image_files.h"
#include "recording/survey_json.h"

using namespace ptd;

namespace ptd::capi {

namespace {

std::vector<std::string> list_of(const char* const* strings) {
  std::vector<std::string> list;
  for (; strings != nullptr && *strings != nullptr; ++strings) list.emplace_back(*strings);
  return list;
}

const char* protocol_name(arm::Protocol protocol) {
  switch (protocol) {
    case arm::Protocol::none:
      return "intel_pt";
    case arm::Protocol::etmv3:
      return "etmv3";
    case arm::Protocol::ptm:
      return "ptm";
    case arm::Protocol::etmv4:
      return "etmv4";
    case arm::Protocol::ete:
      return "ete";
    default:
      return "unknown";
  }
}

}  // namespace

ptd_code read_open_options(const ptd_open_options* options, OpenRequest& request, Control& control, char** message) {
  request.stashes = usual_stashes();
  if (options == nullptr) return PTD_OK;
  ptd_open_options given = PTD_INIT(ptd_open_options);
  if (!read_struct(options, given)) return wrong_size(message, "ptd_open_options has a size that no version had");
  if (!control.set(given.control)) return wrong_size(message, "ptd_control has a size that no version had");
  constexpr uint64_t kKnownFlags = 2 * PTD_OPEN_ALLOW_OUTSIDE - 1;
  if ((given.flags & ~kKnownFlags) != 0) return bad_argument(message, "ptd_open_options.flags has a bit that this version does not know");
  const auto has = [&](uint64_t flag) { return (given.flags & flag) != 0; };
  request.symfs = list_of(given.symfs);
  if (has(PTD_OPEN_ALLOW_OUTSIDE)) request.symfs.emplace_back("/");
  if (given.debug_dirs != nullptr) request.debug_dirs = list_of(given.debug_dirs);
  if (given.stashes != nullptr) request.stashes = list_of(given.stashes);
  request.kcore_after = list_of(given.kcore_after);
  for (const auto& [text, to] :
       {std::pair(given.guestmount, &request.guestmount), std::pair(given.guestkallsyms, &request.guestkallsyms),
        std::pair(given.guestmodules, &request.guestmodules), std::pair(given.guestvmlinux, &request.guestvmlinux)}) {
    if (text != nullptr) *to = text;
  }
  if (given.build_id_cache != nullptr) request.build_id_cache = given.build_id_cache;
  if (given.running_kernel != nullptr) request.running_kernel = given.running_kernel;
  if (given.modules != nullptr) {
    request.raw.emplace();
    request.raw->modules_path = given.modules;
  }
  for (const std::string& text : list_of(given.images)) {
    const Result<RawImage> image = parse_image(text);
    if (!image) return bad_argument(message, "ptd_open_options.images: " + image.error().message);
    request.images.push_back(*image);
  }
  request.slack_ns = given.slack_ns;
  if (given.clock_hz > 1'000'000'000'000) return bad_argument(message, "ptd_open_options.clock_hz is more than 10^12");
  request.clock_hz = given.clock_hz;
  request.debuginfod = has(PTD_OPEN_DEBUGINFOD);
  request.use_time = !has(PTD_OPEN_IGNORE_TIME);
  request.freeze = has(PTD_OPEN_FREEZE);
  request.exact_only = has(PTD_OPEN_EXACT_ONLY);
  request.anchors = !has(PTD_OPEN_NO_ANCHORS);
  return PTD_OK;
}

ptd_code open_handle(OpenRequest& request, Control& control, std::shared_ptr<const void> memory, std::string_view name, ptd_recording** out,
                     char** message) {
  auto opened = std::make_shared<OpenedRecording>();
  opened->memory = std::move(memory);
  opened->options = request;
  std::error_code no_directory;  // samples are read later: the path must name the same file in another directory
  if (request.path != "-") opened->options.path = std::filesystem::absolute(request.path, no_directory);
  if (no_directory) opened->options.path = request.path;
  opened->stamp = stamp_of(opened->options.path);
  if (request.raw) {
    request.raw->winipt_path = request.path;
    opened->options.path.clear();  // it has no records
  }
  request.check = [&control] { control.check(); };
  request.progress = [&control](uint64_t done, uint64_t total) {
    control.progress(done, total);
    control.check();
  };
  control.check();
  auto recording = open_recording(request);
  if (!recording.ok()) {
    Error error = recording.error();
    const size_t at = name.empty() ? std::string::npos : error.message.find(request.path);
    if (at != std::string::npos) error.message.replace(at, request.path.size(), name);
    return fail(message, error);
  }
  opened->recording = std::move(recording.value());
  if (const auto error = opened->shrunk_error(true)) return fail(message, *error);
  *out = add(std::move(opened));
  return PTD_OK;
}

}  // namespace ptd::capi

ptd_code ptd_open(const char* path, const ptd_open_options* options, ptd_recording** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (path == nullptr || out == nullptr) return capi::null_argument(message, "ptd_open: path or out is NULL");
    *out = nullptr;
    OpenRequest request;
    capi::Control control;
    if (const ptd_code code = capi::read_open_options(options, request, control, message); code != PTD_OK) return code;
    request.path = path;
    return capi::open_handle(request, control, nullptr, {}, out, message);
  });
}

ptd_code ptd_close(ptd_recording* recording) {
  if (recording == nullptr) return PTD_OK;
  return capi::guarded(nullptr, [&]() -> ptd_code { return capi::remove(recording) ? PTD_OK : PTD_ERROR_INVALID_HANDLE; });
}

ptd_code ptd_stream_count(const ptd_recording* recording, uint32_t* out) {
  return capi::guarded(nullptr, [&]() -> ptd_code {
    if (out == nullptr) return PTD_ERROR_NULL_ARGUMENT;
    *out = 0;
    const auto opened = capi::find(recording);
    if (!opened) return PTD_ERROR_INVALID_HANDLE;
    *out = static_cast<uint32_t>(opened->recording->streams().size());
    return PTD_OK;
  });
}

ptd_code ptd_get_stream(const ptd_recording* recording, uint32_t stream, ptd_stream_info* out) {
  return capi::guarded(nullptr, [&]() -> ptd_code {
    if (out == nullptr) return PTD_ERROR_NULL_ARGUMENT;
    if (!capi::is_struct_size(out->size, sizeof(ptd_stream_info))) return PTD_ERROR_WRONG_SIZE;
    const auto opened = capi::find(recording);
    if (!opened) return PTD_ERROR_INVALID_HANDLE;
    const auto& streams = opened->recording->streams();
    if (stream >= streams.size()) return PTD_ERROR_BAD_ARGUMENT;
    const StreamInfo& info = streams[stream];
    out->cpu = info.cpu;
    out->tid = info.tid;
    out->size_bytes = info.size_bytes;
    out->first_ns = capi::to_ns(info.time.first);
    out->last_ns = capi::to_ns(info.time.last);
    out->protocol = capi::protocol_name(info.protocol);
    out->source = opened->strings.keep(info.source);
    return PTD_OK;
  });
}

ptd_code ptd_info_json(const ptd_recording* recording, char** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return capi::null_argument(message, "ptd_info_json: out is NULL");
    *out = nullptr;
    const auto opened = capi::find(recording);
    if (!opened) return capi::bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    OpenOptions options = opened->options;
    options.debuginfod = false;  // opening has queried the servers already
    if (const auto error = opened->replaced_error()) return capi::fail(message, *error);
    Result<Survey> facts = is_read_once(options.path) || options.path.empty() || is_plan(*opened->recording)
                               ? Result<Survey>(survey_of(*opened->recording))
                               : survey(options);
    if (!facts) return capi::fail(message, opened->cause_of(facts.error()));
    if (const auto error = opened->shrunk_error(true)) return capi::fail(message, *error);
    *out = capi::copy_text(survey_json(*facts));
    return *out == nullptr ? capi::out_of_memory(message) : PTD_OK;
  });
}

void ptd_free(void* memory) { std::free(memory); }

const char* ptd_code_name(ptd_code code) {
  struct Name {
    ptd_code code;
    const char* name;
  };
  static constexpr Name kNames[] = {
      {PTD_OK, "ok"},
      {PTD_END, "end"},
      {PTD_ERROR_NULL_ARGUMENT, "null_argument"},
      {PTD_ERROR_INVALID_HANDLE, "invalid_handle"},
      {PTD_ERROR_WRONG_SIZE, "wrong_size"},
      {PTD_ERROR_IN_USE, "in_use"},
      {PTD_ERROR_SEALED, "sealed"},
      {PTD_ERROR_BAD_ARGUMENT, "bad_argument"},
  };
  for (const Name& known : kNames) {
    if (known.code == code) return known.name;
  }
  // The names are literals, so that data() ends with zero.
  const std::string_view name = code > 0 && code <= UINT16_MAX ? name_of(static_cast<ErrorCode>(code)) : std::string_view();
  return name.empty() ? "unknown" : name.data();
}
