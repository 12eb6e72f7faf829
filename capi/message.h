// How functions of the C API report failures.
#pragma once

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "ptdecode/error.h"
#include "ptdecode/ptdecode.h"

namespace ptd::capi {

/// Sets *message, which the caller frees, and returns `code`.
inline ptd_code fail(char** message, ptd_code code, const std::string& sentence) {
  if (message != nullptr) {
    *message = static_cast<char*>(std::malloc(sentence.size() + 1));
    if (*message != nullptr) std::memcpy(*message, sentence.c_str(), sentence.size() + 1);
  }
  return code;
}
/// The code of an Error. (The numbers of ErrorCode.)
inline ptd_code code_of(const Error& error) { return 100 * (static_cast<int>(error.kind) + 1); }
inline ptd_code fail(char** message, const Error& error) { return fail(message, code_of(error), error.message); }

/// Runs `body` and turns exceptions into codes; nothing may leave the C API.
template <typename Body>
ptd_code guarded(char** message, const Body& body) {
  if (message != nullptr) *message = nullptr;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(message, 601, "there is not enough memory");
  } catch (const std::exception& error) {
    return fail(message, 600, std::string("internal error: ") + error.what());
  }
}

}  // namespace ptd::capi
