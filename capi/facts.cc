// The C API: what a recording says of its threads, its missing code and its losses, and what contradicts it.
#include <string_view>

#include "analysis/names/finding_name.h"
#include "capi/items.h"
#include "capi/message.h"

using namespace ptd;

namespace ptd::capi {

namespace {

/// Calls `body` with the recording of a handle, unless `out` is NULL.
template <typename Body>
ptd_code with_recording(const ptd_recording* recording, const void* out, char** message, const Body& body) {
  return guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return null_argument(message, "out is NULL");
    const auto opened = find(recording);
    if (!opened) return bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    return body(*opened);
  });
}

/// The same with a struct of the caller, which has a size.
template <typename Struct, typename Body>
ptd_code fill_from(const ptd_recording* recording, Struct* out, char** message, const Body& body) {
  return with_recording(recording, out, message, [&](const OpenedRecording& opened) -> ptd_code {
    if (!is_struct_size(out->size, sizeof(Struct))) return wrong_size(message, "the struct has a size that no version had");
    return body(opened);
  });
}

const uint8_t* start_of(const std::vector<std::byte>& bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

}  // namespace

}  // namespace ptd::capi

ptd_code ptd_comm_at(const ptd_recording* recording, int32_t tid, int64_t time_ns, const char** out) {
  if (out != nullptr) *out = "";
  return capi::with_recording(recording, out, nullptr, [&](const capi::OpenedRecording& opened) -> ptd_code {
    *out = opened.strings.keep(opened.recording->comm_at(tid, capi::from_ns(time_ns, kTimeMax)));
    return PTD_OK;
  });
}

ptd_code ptd_missing_count(const ptd_recording* recording, uint32_t* out) {
  if (out != nullptr) *out = 0;
  return capi::with_recording(recording, out, nullptr, [&](const capi::OpenedRecording& opened) -> ptd_code {
    *out = static_cast<uint32_t>(opened.recording->missing_images().size());
    return PTD_OK;
  });
}

ptd_code ptd_get_missing(const ptd_recording* recording, uint32_t index, ptd_missing* out) {
  return capi::fill_from(recording, out, nullptr, [&](const capi::OpenedRecording& opened) -> ptd_code {
    const std::vector<MissingImage>& missing = opened.recording->missing_images();
    if (index >= missing.size()) return PTD_ERROR_BAD_ARGUMENT;
    out->path = opened.strings.keep(missing[index].path);
    out->build_id = opened.strings.keep(missing[index].build_id);
    out->reason = opened.strings.keep(missing[index].reason);
    return PTD_OK;
  });
}

ptd_code ptd_warning_count(const ptd_recording* recording, uint32_t* out) {
  if (out != nullptr) *out = 0;
  return capi::with_recording(recording, out, nullptr, [&](const capi::OpenedRecording& opened) -> ptd_code {
    *out = static_cast<uint32_t>(opened.recording->warnings().size());
    return PTD_OK;
  });
}

ptd_code ptd_get_warning(const ptd_recording* recording, uint32_t index, const char** out) {
  if (out != nullptr) *out = "";
  return capi::with_recording(recording, out, nullptr, [&](const capi::OpenedRecording& opened) -> ptd_code {
    const std::vector<std::string>& warnings = opened.recording->warnings();
    if (index >= warnings.size()) return PTD_ERROR_BAD_ARGUMENT;
    *out = opened.strings.keep(warnings[index]);
    return PTD_OK;
  });
}

ptd_code ptd_get_lost(const ptd_recording* recording, ptd_lost* out) {
  return capi::fill_from(recording, out, nullptr, [&](const capi::OpenedRecording& opened) -> ptd_code {
    const LostRecords& lost = opened.recording->lost();
    out->lost_records = lost.lost_records;
    out->records = lost.records;
    out->aux_truncated = lost.aux_truncated;
    out->aux_partial = lost.aux_partial;
    out->aux_collision = lost.aux_collision;
    return PTD_OK;
  });
}

ptd_code ptd_finding_count(const ptd_recording* recording, uint32_t* out, char** message) {
  if (out != nullptr) *out = 0;
  return capi::with_recording(recording, out, message, [&](const capi::OpenedRecording& opened) -> ptd_code {
    *out = static_cast<uint32_t>(opened.findings().size());
    return PTD_OK;
  });
}

ptd_code ptd_get_finding(const ptd_recording* recording, uint32_t index, ptd_finding* out, char** message) {
  return capi::fill_from(recording, out, message, [&](const capi::OpenedRecording& opened) -> ptd_code {
    const std::vector<Finding>& findings = opened.findings();
    if (index >= findings.size()) return capi::bad_argument(message, "ptd_get_finding: there is no finding with this index");
    const Finding& finding = findings[index];
    out->kind = name(finding.kind, text_records(*opened.recording)).data();  // a literal, so that data() ends with zero
    out->what = opened.strings.keep(finding.what);
    out->ip = finding.ip.value;
    out->first_ns = capi::to_ns(finding.time.first);
    out->last_ns = capi::to_ns(finding.time.last);
    out->expected = capi::start_of(finding.expected);
    out->expected_bytes = finding.expected.size();
    out->found = capi::start_of(finding.found);
    out->found_bytes = finding.found.size();
    out->space = finding.space.value;
    out->reserved = 0;
    return PTD_OK;
  });
}
