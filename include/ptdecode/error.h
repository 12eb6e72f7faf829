// Result<T>: a value or an Error. Replaced by std::expected when the project moves to C++23.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "ptdecode/export.h"

namespace ptd {

/// The group of an ErrorCode: what a program does about it. The exit status of the command line depends only on this.
enum class ErrorKind : uint8_t {
  usage,        ///< bad configuration or argument
  unsupported,  ///< valid input that this version or this machine does not handle
  file_open,    ///< the operating system refused to open, read or write
  file_format,  ///< bad magic, bad version or bad record
  file_cut,     ///< the file is shorter than its header says
  resources,    ///< memory or another resource of this process is exhausted
  cancelled,    ///< the caller requested to stop
};

/// The cause of a failure, for programs to match on. The numbers never change and are never reused, and the C API has the same. The
/// hundreds are the ErrorKind. A later version may add codes: treat an unknown code as its kind. docs/ERRORS.md lists them.
enum class ErrorCode : uint16_t {
  invalid_argument = 100,         ///< an argument that no other code of this group describes
  bad_option = 101,               ///< the value of an option is malformed or out of range
  contradictory_options = 102,    ///< options that exclude each other, or one without the other that it needs
  bad_time_window = 103,          ///< a time range that is malformed, or in which the recording has nothing
  no_such_stream = 104,           ///< the recording has no such trace stream
  no_such_thread = 105,           ///< no such process or thread
  no_such_function = 106,         ///< no such symbol, or it was not called
  bad_image_piece = 107,          ///< a piece of a raw recording's image does not fit its file or the address space
  bad_output = 108,               ///< the output cannot go there: the input itself, a terminal, or another kind of file
  wrong_recording = 109,          ///< the file belongs to another recording
  not_recorded = 110,             ///< the recording lacks what the request needs, such as time or line tables
  already_exists = 111,           ///< something of that name exists
  no_such_session = 112,          ///< no live session of that name
  unsupported = 200,              ///< valid, and no other code of this group describes it
  unsupported_version = 201,      ///< the file has a version that this program does not read
  unsupported_byte_order = 202,   ///< the file has the other byte order
  unsupported_compression = 203,  ///< the file uses an unknown compression, or the compressor refused
  unsupported_trace = 204,        ///< a trace of a kind that this version does not decode
  too_large = 205,                ///< larger than a limit of this program
  no_hardware = 206,              ///< this machine lacks the trace hardware, or its kernel the driver
  missing_program = 207,          ///< a program or plugin that the request needs is not installed
  open_failed = 300,              ///< refused for a reason that no other code of this group describes
  not_found = 301,                ///< no such file or directory
  permission_denied = 302,        ///< no permission
  is_directory = 303,             ///< a directory where a file is needed
  not_regular_file = 304,         ///< a device, pipe or socket where a regular file is needed
  read_failed = 305,              ///< the file was opened and could not be read
  write_failed = 306,             ///< the output could not be created or written
  no_space = 307,                 ///< the file system or the quota is full, or the file would be too long
  busy = 308,                     ///< another process uses it: try again later
  untrusted_file = 309,           ///< another user owns it or may write to it
  start_failed = 310,             ///< a program or a background process could not be started
  outside_folder = 311,           ///< a file that the recording names is outside of the recording's folder
  bad_format = 400,               ///< malformed in a way that no other code of this group describes
  unknown_format = 401,           ///< not a file of any known format
  bad_magic = 402,                ///< the file does not begin as its format requires
  bad_version = 403,              ///< a version that the format does not have
  bad_header = 404,               ///< the header is malformed
  contradictory_record = 405,     ///< a record contradicts itself, another one or the size of its file
  bad_checksum = 406,             ///< the content differs from its checksum or its hash
  bad_compression = 407,          ///< the compressed data is damaged
  missing_part = 408,             ///< a part of the file, or a file that it names, is missing
  no_trace = 409,                 ///< the recording holds no trace
  changed = 410,                  ///< the file changed, or became shorter, while it was read
  truncated = 500,                ///< the file ends early
  empty_file = 501,               ///< the file is empty
  truncated_header = 502,         ///< the file ends inside its header
  resources = 600,                ///< a resource that no other code of this group describes
  out_of_memory = 601,            ///< no memory, or no address space
  too_many_files = 602,           ///< too many open files
  cancelled = 700,                ///< the caller's function stopped the call; only the C API returns it
};

/// Returns the kind of a code, also of one that a later version adds to a known group.
[[nodiscard]] constexpr ErrorKind kind_of(ErrorCode code) { return static_cast<ErrorKind>(static_cast<uint16_t>(code) / 100 - 1); }
/// Returns the name of a code as it is written here, for example "no_such_stream"; "" for any other number. Thread-safe; the text
/// is static.
[[nodiscard]] PTD_API std::string_view name_of(ErrorCode code);

/// A failure reported once, as a value. Trace damage is never an Error: it becomes a Gap. A plain value: copies are independent.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;        ///< one sentence, names the file or option; no trailing newline
  uint64_t offset_bytes = 0;  ///< file offset where that makes sense, else 0

  [[nodiscard]] ErrorKind kind() const { return kind_of(code); }
};

/// A value or an Error. value() of an Error throws std::bad_variant_access, and error() of a value too: check ok() first. Not synchronised.
/// References it returns are valid as long as the Result.
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

/// Result of an action without a value. error() may be called only if ok() is false, and its reference is valid as long as the Status. Not
/// synchronised.
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
