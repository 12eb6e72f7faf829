// How functions of the C API report failures, and how they read the structs of their callers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "analysis/table/column.h"
#include "ptdecode/error.h"
#include "ptdecode/ptdecode.h"

namespace ptd::capi {

/// Returns a copy that the caller frees, in which U+FFFD replaces what is not UTF-8. Null: there is no memory. Does not throw.
inline char* copy_text(std::string_view text) {
  try {
    const std::string valid = valid_utf8(text);
    return ::strndup(valid.data(), valid.size());
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

/// Sets *message, which the caller frees, and returns `code`. Does not throw.
inline ptd_code fail(char** message, ptd_code code, std::string_view sentence) {
  if (message != nullptr) *message = copy_text(sentence);
  return code;
}
/// The code of an Error. (The numbers of ErrorCode.)
inline ptd_code code_of(const Error& error) { return static_cast<ptd_code>(error.code); }
inline ptd_code fail(char** message, const Error& error) { return fail(message, code_of(error), error.message); }
inline ptd_code null_argument(char** message, std::string_view sentence) { return fail(message, PTD_ERROR_NULL_ARGUMENT, sentence); }
inline ptd_code bad_argument(char** message, std::string_view sentence) { return fail(message, PTD_ERROR_BAD_ARGUMENT, sentence); }
inline ptd_code out_of_memory(char** message) { return fail(message, PTD_ERROR_OUT_OF_MEMORY, "there is not enough memory"); }
/// PTD_ERROR_INVALID_HANDLE or PTD_ERROR_IN_USE.
inline ptd_code bad_handle(char** message, ptd_code code) {
  const bool in_use = code == PTD_ERROR_IN_USE;
  return fail(message, code, in_use ? "the handle is in use by another call" : "the handle is NULL, freed, or of another type");
}

/// Thrown where a caller's `cancelled` returned nonzero.
struct Cancelled : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "the caller cancelled the operation"; }
};

/// Thrown where a call cannot return its Error.
struct Failure : std::exception {
  explicit Failure(Error reason) : error(std::move(reason)) {}
  [[nodiscard]] const char* what() const noexcept override { return error.message.c_str(); }
  Error error;
};

/// Runs `body` and turns exceptions into codes; nothing may leave the C API.
template <typename Body>
ptd_code guarded(char** message, const Body& body) {
  if (message != nullptr) *message = nullptr;
  try {
    return body();
  } catch (const Cancelled& cancelled) {
    return fail(message, PTD_ERROR_CANCELLED, cancelled.what());
  } catch (const Failure& failure) {
    return fail(message, failure.error);
  } catch (const std::bad_alloc&) {
    return out_of_memory(message);
  } catch (const std::system_error& error) {  // a thread that could not be started
    char text[256];
    std::snprintf(text, sizeof text, "the system refused a resource: %s", error.what());
    return fail(message, PTD_ERROR_RESOURCES, text);
  } catch (const std::exception& error) {
    char text[256];
    std::snprintf(text, sizeof text, "internal error: %s", error.what());
    return fail(message, PTD_ERROR_RESOURCES, text);
  } catch (...) {
    return fail(message, PTD_ERROR_RESOURCES, "internal error");
  }
}

/// Whether a caller's struct may have `size`, if the struct of this version has `last` bytes. A larger one is that of a newer version: its
/// new fields are not read.
constexpr bool is_struct_size(size_t size, size_t last) { return size >= last && size <= 4096 && size % 8 == 0; }

/// The size of the first version of a struct that has grown since; of any other, its size. Versions between the first and the last belong
/// here too.
template <typename Struct>
constexpr size_t kFirstSize = sizeof(Struct);
template <>
inline constexpr size_t kFirstSize<ptd_open_options> = offsetof(ptd_open_options, guestmount);

/// Copies a caller's struct; fields that its version did not have are 0. False: its size is wrong.
template <typename Struct>
[[nodiscard]] bool read_struct(const Struct* from, Struct& to) {
  if (from->size != kFirstSize<Struct> && !is_struct_size(from->size, sizeof(Struct))) return false;
  to = {};
  std::memcpy(&to, from, std::min(from->size, sizeof(Struct)));
  to.size = sizeof(Struct);
  return true;
}

inline ptd_code wrong_size(char** message, std::string_view sentence) { return fail(message, PTD_ERROR_WRONG_SIZE, sentence); }

}  // namespace ptd::capi
