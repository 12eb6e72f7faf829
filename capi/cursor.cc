// The C API: cursors.
#include <memory>
#include <numeric>
#include <utility>

#include "capi/forked.h"
#include "capi/items.h"
#include "capi/message.h"
#include "recording/bundle/plan.h"

using namespace ptd;

namespace ptd::capi {

namespace {

/// The object of a ptd_cursor handle.
struct OpenCursor {
  Control control;
  std::shared_ptr<const OpenedRecording> recording;
  std::unique_ptr<ItemSource> items;  // uses what is above
  bool over = false;
  Origin origin;
  bool has_threads = false;  ///< to decode
  ptd_code failed = PTD_OK;  ///< the error that ended it: its parts may be in any state
  /// Moves to the next item; false at the end.
  bool next(ptd_item& item) {
    if (over || items->next(item)) return !over;
    over = true;
    control.finish();
    return false;
  }
};

ptd_code read_options(const ptd_cursor_options* options, ptd_cursor_options& given, OpenCursor& cursor, CursorRequest& request,
                      char** message) {
  if (options != nullptr && !read_struct(options, given)) return wrong_size(message, "ptd_cursor_options has a size that no version had");
  if (!cursor.control.set(given.control)) return wrong_size(message, "ptd_control has a size that no version had");
  const auto& streams = request.recording->recording->streams();
  if (given.stream != PTD_NONE && given.stream >= streams.size()) {
    const std::string sentence = "ptd_cursor_options.stream is " + std::to_string(given.stream) + ", and the recording has " +
                                 std::to_string(streams.size()) + " streams";
    return bad_argument(message, sentence);
  }
  if (given.reserved != 0) return bad_argument(message, "ptd_cursor_options.reserved is not 0");
  request.streams = {given.stream};
  if (given.stream == PTD_NONE) {
    request.streams.resize(streams.size());
    std::iota(request.streams.begin(), request.streams.end(), 0U);
  }
  if (!read_range(given.first_ns, given.last_ns, request.time))
    return bad_argument(message, "ptd_cursor_options: first_ns is after last_ns, or one of them is negative");
  request.threads = given.threads;
  return PTD_OK;
}

}  // namespace

}  // namespace ptd::capi

ptd_code ptd_cursor_open(const ptd_recording* recording, const ptd_cursor_options* options, ptd_cursor** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return capi::null_argument(message, "ptd_cursor_open: out is NULL");
    *out = nullptr;
    auto cursor = std::make_shared<capi::OpenCursor>();
    cursor->recording = capi::find(recording);
    if (!cursor->recording) return capi::bad_handle(message, PTD_ERROR_INVALID_HANDLE);
    capi::CursorRequest request;
    request.recording = cursor->recording;
    ptd_cursor_options given = PTD_CURSOR_OPTIONS_INIT;
    if (const ptd_code code = capi::read_options(options, given, *cursor, request, message); code != PTD_OK) return code;
    if (Status status = check_units(*request.recording->recording); !status)
      return capi::fail(message, cursor->recording->cause_of(status.error()));
    if (request.streams.empty()) {
      cursor->over = true;  // RecordingCursor takes none for all
    } else if (given.kind == PTD_CURSOR_FLOW) {
      cursor->items = capi::make_flow_items(request, cursor->control);
    } else if (given.kind == PTD_CURSOR_BRANCHES) {
      cursor->items = capi::make_branch_items(request, cursor->control);
    } else if (given.kind == PTD_CURSOR_CALLS) {
      cursor->items = capi::make_call_items(request, cursor->control);
      cursor->has_threads = request.threads != 1;
    } else {
      return capi::bad_argument(message, "ptd_cursor_options.kind is not a ptd_cursor_kind");
    }
    capi::OpenCursor& made = *cursor;
    const uintptr_t handle = capi::add_handle(capi::HandleType::cursor, std::move(cursor));
    made.control.set_owner(handle);
    *out = reinterpret_cast<ptd_cursor*>(handle);
    return PTD_OK;
  });
}

ptd_code ptd_cursor_next(ptd_cursor* cursor, ptd_item* item, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (item == nullptr) return capi::null_argument(message, "ptd_cursor_next: item is NULL");
    const capi::ExclusiveUse use(capi::HandleType::cursor, reinterpret_cast<uintptr_t>(cursor));
    if (use.code() != PTD_OK) return capi::bad_handle(message, use.code());
    if (!capi::is_struct_size(item->size, sizeof(ptd_item))) return capi::wrong_size(message, "ptd_item has a size that no version had");
    auto& open = use.object<capi::OpenCursor>();
    if (open.failed != PTD_OK) return capi::fail(message, open.failed, "an earlier call with this cursor failed");
    const ptd_code code = capi::guarded(message, [&]() -> ptd_code {
      if (open.has_threads && open.origin.is_forked()) return capi::fail(message, PTD_ERROR_RESOURCES, capi::kForkedSentence);
      if (open.control.cancelled()) throw capi::Cancelled();
      bool more = false;
      try {
        more = open.next(*item);
      } catch (const capi::Failure& failure) {
        throw capi::Failure(open.recording->cause_of(failure.error));
      }
      if (const auto error = open.recording->shrunk_error(!more)) throw capi::Failure(*error);
      return more ? PTD_OK : PTD_END;
    });
    if (code > PTD_END) open.failed = code;
    return code;
  });
}

ptd_code ptd_cursor_free(ptd_cursor* cursor) {
  if (cursor == nullptr) return PTD_OK;
  return capi::guarded(nullptr, [&] { return capi::remove_handle(capi::HandleType::cursor, reinterpret_cast<uintptr_t>(cursor)); });
}
