// The C API: recordings from memory.
#include <memory>
#include <utility>

#include "capi/builder_parts.h"
#include "capi/items.h"
#include "capi/message.h"
#include "capi/open_recording.h"

using namespace ptd;

namespace ptd::capi {

namespace {

/// The object of a ptd_builder handle.
struct OpenBuilder {
  BuilderParts parts;
  bool sealed = false;
};

Bytes bytes_of(const void* bytes, size_t size) { return {static_cast<const std::byte*>(bytes), size}; }

/// Checks the handle and the bytes, then runs `body` with the parts; its Status becomes the code.
template <typename Body>
ptd_code with_parts(ptd_builder* builder, const void* bytes, size_t size, char** message, const Body& body) {
  return guarded(message, [&]() -> ptd_code {
    const ExclusiveUse use(HandleType::builder, reinterpret_cast<uintptr_t>(builder));
    if (use.code() != PTD_OK) return bad_handle(message, use.code());
    auto& open = use.object<OpenBuilder>();
    if (open.sealed) return fail(message, PTD_ERROR_SEALED, "the builder was opened: nothing may be added");
    if (bytes == nullptr && size != 0) return null_argument(message, "the bytes are NULL");
    if (size > PTRDIFF_MAX) return bad_argument(message, "the size is larger than any object");
    const Status status = body(open.parts);
    if (status) return PTD_OK;
    return status.error().kind() == ErrorKind::usage ? bad_argument(message, status.error().message) : fail(message, status.error());
  });
}

}  // namespace

}  // namespace ptd::capi

ptd_code ptd_builder_new(ptd_builder** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return capi::null_argument(message, "ptd_builder_new: out is NULL");
    *out = nullptr;
    *out = reinterpret_cast<ptd_builder*>(capi::add_handle(capi::HandleType::builder, std::make_shared<capi::OpenBuilder>()));
    return PTD_OK;
  });
}

ptd_code ptd_builder_free(ptd_builder* builder) {
  if (builder == nullptr) return PTD_OK;
  return capi::guarded(nullptr, [&] { return capi::remove_handle(capi::HandleType::builder, reinterpret_cast<uintptr_t>(builder)); });
}

ptd_code ptd_builder_add_attr(ptd_builder* builder, const void* attr, size_t attr_bytes, const uint64_t* ids, size_t id_count,
                              const char* name, char** message) {
  return capi::with_parts(builder, attr, attr_bytes, message, [&](capi::BuilderParts& parts) -> Status {
    constexpr size_t kMostIds = 1U << 20;
    if (id_count > kMostIds || (ids == nullptr && id_count != 0)) return Error{ErrorCode::invalid_argument, "ids is NULL or too long", 0};
    return parts.add_attr(capi::bytes_of(attr, attr_bytes), std::vector<uint64_t>(ids, ids + id_count), name == nullptr ? "" : name);
  });
}

ptd_code ptd_builder_add_records(ptd_builder* builder, uint32_t ring, const void* bytes, size_t size_bytes, char** message) {
  return capi::with_parts(builder, bytes, size_bytes, message,
                          [&](capi::BuilderParts& parts) { return parts.add_records(ring, capi::bytes_of(bytes, size_bytes)); });
}

ptd_code ptd_builder_add_aux(ptd_builder* builder, int32_t cpu, int32_t tid, uint64_t offset_bytes, const void* bytes, size_t size_bytes,
                             char** message) {
  static_assert(PTD_AUX_NEXT == capi::BuilderParts::kNext);
  return capi::with_parts(builder, bytes, size_bytes, message, [&](capi::BuilderParts& parts) {
    return parts.add_aux(cpu, tid, offset_bytes, capi::bytes_of(bytes, size_bytes));
  });
}

ptd_code ptd_builder_add_code(ptd_builder* builder, int32_t pid, uint64_t address, const void* bytes, size_t size_bytes, int64_t from_ns,
                              const char* name, char** message) {
  return capi::with_parts(builder, bytes, size_bytes, message, [&](capi::BuilderParts& parts) {
    const Bytes given = capi::bytes_of(bytes, size_bytes);
    const auto copy = std::make_shared<const std::vector<std::byte>>(given.begin(), given.end());
    return parts.add_code({pid, Ip{address}, {copy, *copy}, capi::from_ns(from_ns, kTimeMin), name == nullptr ? "" : name});
  });
}

ptd_code ptd_builder_set_feature(ptd_builder* builder, uint32_t feature, const void* bytes, size_t size_bytes, char** message) {
  return capi::with_parts(builder, bytes, size_bytes, message,
                          [&](capi::BuilderParts& parts) { return parts.set_feature(feature, capi::bytes_of(bytes, size_bytes)); });
}

ptd_code ptd_builder_set_pt(ptd_builder* builder, const ptd_pt_config* config, char** message) {
  ptd_pt_config given = PTD_INIT(ptd_pt_config);
  if (config != nullptr && !capi::read_struct(config, given)) {
    if (message != nullptr) *message = nullptr;
    return capi::wrong_size(message, "ptd_pt_config has a size that no version had");
  }
  return capi::with_parts(builder, config, 1, message, [&](capi::BuilderParts& parts) -> Status {
    capi::PtSettings settings{true,
                              given.snapshot != 0,
                              given.pmu_type,
                              given.time_mult,
                              given.tsc_ctc_ratio_n,
                              given.tsc_ctc_ratio_d,
                              given.max_nonturbo_ratio,
                              given.time_shift,
                              given.time_zero,
                              given.cpuid == nullptr ? "" : given.cpuid,
                              given.filter == nullptr ? "" : given.filter};
    constexpr size_t kMostText = 4096;
    if (settings.cpuid.size() > kMostText || settings.filter.size() > kMostText)
      return Error{ErrorCode::invalid_argument, "ptd_pt_config.cpuid or filter is longer than 4096 bytes", 0};
    parts.set_pt(std::move(settings));
    return {};
  });
}

ptd_code ptd_builder_open(ptd_builder* builder, const ptd_open_options* options, ptd_recording** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (out == nullptr) return capi::null_argument(message, "ptd_builder_open: out is NULL");
    *out = nullptr;
    const capi::ExclusiveUse use(capi::HandleType::builder, reinterpret_cast<uintptr_t>(builder));
    if (use.code() != PTD_OK) return capi::bad_handle(message, use.code());
    auto& open = use.object<capi::OpenBuilder>();
    if (open.sealed) return capi::fail(message, PTD_ERROR_SEALED, "the builder was opened already");
    OpenRequest request;
    capi::Control control;
    if (const ptd_code code = capi::read_open_options(options, request, control, message); code != PTD_OK) return code;
    if (request.raw) return capi::bad_argument(message, "ptd_open_options.modules is for a trace of a Windows process");
    open.sealed = true;
    capi::BuilderParts parts = std::move(open.parts);
    open.parts = {};
    const auto file = std::make_shared<capi::MemoryFile>();
    if (file->fd() < 0) return capi::fail(message, PTD_ERROR_RESOURCES, "the system gives no file in memory (memfd_create)");
    control.check();
    if (const Status status = parts.write(file->fd()); !status) return capi::fail(message, status.error());
    request.path = file->path();
    request.given_code = parts.take_code();
    request.lost_input = parts.take_lost();
    return capi::open_handle(request, control, file, "the recording from memory", out, message);
  });
}
