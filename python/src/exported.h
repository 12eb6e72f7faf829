// What the consumer of an Arrow stream from Python owns.
#pragma once

#include <nanobind/nanobind.h>

#include <cerrno>
#include <memory>
#include <string>

#include "control.h"

namespace ptd_python {

/// What ended a stream: the library that reads a capsule raises an exception of its own.
struct StreamFailure {
  ptd_code code = PTD_OK;
  std::string message;
};

/// What the stream of a capsule owns: the library's stream, read with signals and progress. Limitation: capsules take no part in garbage
/// collection. If the progress callback refers to the owner of the capsule, both live until the stream is released.
struct Exported {
  std::unique_ptr<Control> control;
  ArrowArrayStream inner{};
  nb::object on_empty;
  bool has_rows = false;
  std::string error;
  std::shared_ptr<StreamFailure> failure;

  int next(ArrowArray* out) {
    const int status = inner.get_next(&inner, out);
    if (status == 0 || status == EBUSY) return status;
    const char* const text = inner.get_last_error(&inner);
    *failure = {ptd_stream_code(&inner), text != nullptr ? text : ""};
    return status;
  }
};

/// The type and the text of an exception. A __repr__ may fail, and its text may have surrogates, as names of files have.
inline std::string shown(const nb::python_error& raised) {
  const nb::object text = nb::steal(PyObject_Repr(raised.value().ptr()));
  const nb::object bytes = nb::steal(text.is_valid() ? PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace") : nullptr);
  const char* const found = bytes.is_valid() ? PyBytes_AsString(bytes.ptr()) : nullptr;
  PyErr_Clear();
  return found == nullptr ? std::string() : found;
}

/// Passes the status of a batch on. The end of a stream without rows calls on_empty, which raises if warnings are errors.
inline int finish_batch(Exported& data, int status, const ArrowArray& out) {
  data.has_rows = data.has_rows || (status == 0 && out.release != nullptr && out.length != 0);
  if (status != 0 || out.release != nullptr || data.has_rows || !data.on_empty.is_valid() || data.on_empty.is_none()) return status;
  const nb::gil_scoped_acquire locked;
  try {
    (void)data.on_empty();
    return status;
  } catch (const nb::python_error& raised) {
    data.error = shown(raised);
    return ECANCELED;
  }
}

}  // namespace ptd_python
