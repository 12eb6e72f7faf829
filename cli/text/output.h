// TextBuffer and Output: fast text assembly and the one writer of standard output.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace ptd::cli {

/// Growing character buffer for hot paths: no locale, no format strings, no per-call check except capacity.
class TextBuffer {
 public:
  TextBuffer() = default;
  TextBuffer(TextBuffer&& other) noexcept { *this = std::move(other); }
  TextBuffer& operator=(TextBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  /// Reserves `size` more characters and returns where they go; follow with commit().
  char* reserve(size_t size) {
    if (capacity_ - size_ < size) grow(size);
    return data_.get() + size_;
  }
  /// Declares everything up to `end` (within the reserved characters) as written.
  void commit(const char* end) { size_ = static_cast<size_t>(end - data_.get()); }

  void text(std::string_view s);
  void ch(char c) { *reserve(1) = c, ++size_; }
  void fill(size_t count, char c = ' ');
  /// Lower-case hex without leading zeros.
  void hex(uint64_t value);
  /// Lower-case hex padded on the left to `width` with `padding`.
  void hex_padded(uint64_t value, unsigned width, char padding = ' ');
  void dec(uint64_t value);
  void dec_signed(int64_t value);
  void dec_padded(uint64_t value, unsigned width, char padding = ' ');
  /// Text padded on the left / right to `width`; longer text is kept whole.
  void right(std::string_view s, size_t width);
  void left(std::string_view s, size_t width);

  [[nodiscard]] std::string_view view() const { return {data_.get(), size_}; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  void clear() { size_ = 0; }
  void truncate(size_t size) { size_ = size < size_ ? size : size_; }

 private:
  void grow(size_t size);
  std::unique_ptr<char[]> data_;
  size_t size_ = 0, capacity_ = 0;
};

/// From now on Ctrl-C ends the program with a message and this exit status, without unfinished output files.
void exit_on_interrupt(int status);
/// From now on the first Ctrl-C ends the output of this program, which then goes on to its summary; the second one ends the program.
void stop_on_interrupt();
/// Returns whether Ctrl-C was pressed since stop_on_interrupt().
[[nodiscard]] bool interrupted();
/// Ends the interruption, so that a summary of what was decoded can be written.
void go_on_after_interrupt();

/// Buffered writer of one file descriptor. A reader that went away (`| head`) closes it silently.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  ~Output() { (void)flush(); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Returns false once the reader is gone or writing failed; nothing more needs to be written then.
  /// Escapes bytes that a terminal would interpret, or that are not text (clean_text.h).
  bool write(std::string_view text);
  /// Writes text without escaping, as it may contain commands for the terminal.
  bool write_as_is(std::string_view text);
  bool flush();
  /// Returns the number of bytes written so far.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool closed() const { return closed_ || interrupted(); }
  /// errno of the write that failed, 0 if none did or if the reader just went away.
  [[nodiscard]] int error() const { return error_; }

 private:
  bool write_all(std::string_view text);
  int fd_;
  int error_ = 0;
  bool closed_ = false;
  uint64_t bytes_ = 0;
  TextBuffer pending_;
};

/// Returns the writer of standard output, which all commands share.
Output& standard_output();
/// Writes to standard error, escaped as Output::write() does. A failed write is ignored.
void say_on_error(std::string_view text);
/// Opens /dev/null for each of descriptors 0 to 2 that the caller closed, to write for standard input and to read for the others. Using
/// them fails, and no file that is opened later gets their number and with it the data of a standard stream.
void occupy_standard_descriptors();
/// Returns whether the descriptor is a terminal, which may show colours and progress.
[[nodiscard]] bool is_terminal(int fd);

}  // namespace ptd::cli
