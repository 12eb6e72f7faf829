// Names of files as Python has them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace ptd_python {

/// A path as the operating system takes it. In Python it is a str, whose surrogates stand for bytes that its encoding lacks
/// (os.fsencode()).
struct FilePath {
  std::string bytes;
  const char* c_str() const { return bytes.c_str(); }
};

}  // namespace ptd_python

namespace nanobind::detail {

template <>
struct type_caster<ptd_python::FilePath> {
  NB_TYPE_CASTER(ptd_python::FilePath, const_name("str"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    const object encoded = steal(PyUnicode_Check(source.ptr()) ? PyUnicode_EncodeFSDefault(source.ptr()) : nullptr);
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (!encoded.is_valid() || PyBytes_AsStringAndSize(encoded.ptr(), &data, &size) != 0) {
      PyErr_Clear();
      return false;
    }
    value.bytes.assign(data, static_cast<size_t>(size));
    return true;
  }
  static handle from_cpp(const ptd_python::FilePath& path, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeFSDefaultAndSize(path.bytes.data(), static_cast<Py_ssize_t>(path.bytes.size()));
  }
};

}  // namespace nanobind::detail
