// TextBuffer and Output: see output.h.
#include "cli/text/output.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "cli/text/clean_text.h"
#include "image/base/fd.h"
#include "image/base/whole_file.h"
#include "recording/downloads.h"

namespace ptd::cli {

namespace {
constexpr size_t kFlushAt = 1U << 18;
constexpr char kHexDigits[] = "0123456789abcdef";

size_t hex_digits(uint64_t value) {
  size_t digits = 1;
  while (value >>= 4) ++digits;
  return digits;
}
}  // namespace

void TextBuffer::grow(size_t size) {
  const size_t wanted = std::max<size_t>({capacity_ * 2, size_ + size, 4096});
  auto bigger = std::make_unique_for_overwrite<char[]>(wanted);
  if (size_ != 0) std::memcpy(bigger.get(), data_.get(), size_);
  data_ = std::move(bigger);
  capacity_ = wanted;
}

void TextBuffer::text(std::string_view s) {
  if (s.empty()) return;
  std::memcpy(reserve(s.size()), s.data(), s.size());
  size_ += s.size();
}

void TextBuffer::fill(size_t count, char c) {
  if (count == 0) return;
  std::memset(reserve(count), c, count);
  size_ += count;
}

void TextBuffer::hex(uint64_t value) {
  const size_t digits = hex_digits(value);
  char* at = reserve(digits) + digits;
  for (size_t i = 0; i < digits; ++i, value >>= 4) *--at = kHexDigits[value & 15];
  size_ += digits;
}

void TextBuffer::hex_padded(uint64_t value, unsigned width, char padding) {
  const size_t digits = hex_digits(value);
  if (digits < width) fill(width - digits, padding);
  hex(value);
}

void TextBuffer::dec(uint64_t value) {
  char* at = reserve(20);
  commit(std::to_chars(at, at + 20, value).ptr);
}

void TextBuffer::dec_signed(int64_t value) {
  char* at = reserve(21);
  commit(std::to_chars(at, at + 21, value).ptr);
}

void TextBuffer::dec_padded(uint64_t value, unsigned width, char padding) {
  char digits[20];
  const auto length = static_cast<size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits);
  if (length < width) fill(width - length, padding);
  text({digits, length});
}

void TextBuffer::right(std::string_view s, size_t width) {
  if (s.size() < width) fill(width - s.size());
  text(s);
}

void TextBuffer::left(std::string_view s, size_t width) {
  text(s);
  if (s.size() < width) fill(width - s.size());
}

namespace {

std::atomic<bool> interrupt_seen{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

}  // namespace

namespace {

std::atomic<bool> g_error_is_terminal{false};
std::atomic<int> g_interrupt_status{0};

void end_program(int) {
  constexpr std::string_view kText = "\nptdecode: interrupted\n";
  remove_unfinished_files();
  const std::string_view text = kText.substr(g_error_is_terminal ? 0 : 1);  // a terminal shows a line of progress
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) {
  }
  ::_exit(g_interrupt_status);
}

/// Sets the handler, unless Ctrl-C is ignored, as in a program that a shell starts in the background.
void on_interrupt(void (*handler)(int)) {
  struct sigaction action {
  }, before{};
  action.sa_handler = handler;
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) (void)sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void exit_on_interrupt(int status) {
  g_interrupt_status = status;
  g_error_is_terminal = ::isatty(STDERR_FILENO) == 1;
  on_interrupt(end_program);
}

void stop_on_interrupt() {
  stop_downloads_when(interrupted);  // the only operation that waits for another machine
  on_interrupt([](int) {
    interrupt_seen.store(true, std::memory_order_relaxed);
    on_interrupt(end_program);  // of a second one
  });
}

bool interrupted() { return interrupt_seen.load(std::memory_order_relaxed); }

void go_on_after_interrupt() { interrupt_seen.store(false, std::memory_order_relaxed); }

bool Output::write(std::string_view text) {
  if (is_harmless(text)) return write_as_is(text);
  TextBuffer clean;
  put_harmless(clean, text);
  return write_as_is(clean.view());
}

bool Output::write_as_is(std::string_view text) {
  if (closed()) return false;
  bytes_ += text.size();
  if (text.size() >= kFlushAt) return flush() && write_all(text);
  pending_.text(text);
  return pending_.size() < kFlushAt || flush();
}

bool Output::flush() {
  if (closed_) return false;
  const bool ok = write_all(pending_.view());
  pending_.clear();
  return ok;
}

bool Output::write_all(std::string_view text) {
  if (ptd::write_all(fd_, text.data(), text.size())) return true;
  closed_ = true;
  error_ = errno == EPIPE ? 0 : errno;
  return false;
}

Output& standard_output() {
  static Output output(STDOUT_FILENO);
  return output;
}

void say_on_error(std::string_view text) {
  TextBuffer clean;
  put_harmless(clean, text);
  text = clean.view();
  (void)ptd::write_all(STDERR_FILENO, text.data(), text.size());
}

void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free descriptor is `fd`
  }
}

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

}  // namespace ptd::cli
