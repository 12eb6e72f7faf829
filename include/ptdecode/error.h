// Result<T>: a value or an Error. Replaced by std::expected when the project moves to C++23.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace ptd {

/// The kind of a failure. Programs can match on it; the command line derives its exit status from it.
enum class ErrorKind : uint8_t {
  usage,        ///< bad configuration or argument
  unsupported,  ///< valid input that this version does not handle
  file_open,    ///< the operating system refused to open or read
  file_format,  ///< bad magic, bad version or bad record
  file_cut,     ///< the file is shorter than its header says
};

/// A failure reported once, as a value. Trace damage is never an Error: it becomes a Gap.
struct Error {
  ErrorKind kind = ErrorKind::usage;
  std::string message;        ///< one sentence, names the file or option; no trailing newline
  uint64_t offset_bytes = 0;  ///< file offset where that makes sense, else 0
};

/// A value or an Error. value() of an Error throws std::bad_variant_access: check ok() first.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }

 private:
  std::variant<T, Error> state_;
};

/// Result of an action without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace ptd
