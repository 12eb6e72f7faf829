// GuestChannel: the frames between the recorder and the program that runs in the emulated machine, over a virtio serial port.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ptd::emulate {

/// What a frame carries.
enum class GuestFrame : uint8_t {
  // To the machine:
  input = 1,  ///< bytes of standard input
  input_end,  ///< standard input ended
  signal,     ///< a signal for the program: its number as one byte
  window,     ///< the terminal's new size: rows, columns, as little-endian u16
  // From the machine:
  output = 32,   ///< bytes of standard output
  error_output,  ///< bytes of standard error
  input_taken,   ///< the program took so many bytes of its input: a little-endian u32
  started,       ///< the program is about to be started
  message,       ///< a line for the user
  failed,        ///< a line that says why there is no recording
  exited,        ///< the program's exit status as a little-endian u32; 128 + signal if one ended it
  finished,      ///< the recording is complete in the working folder
};

/// The port's name in the machine, and how many bytes of input may be on the way.
inline constexpr const char* kGuestPort = "ptdecode";
inline constexpr size_t kInputWindowBytes = size_t{64} << 10;

/// One end of the channel. send() may be called by any thread; take() by one.
class GuestChannel {
 public:
  /// `fd` stays the caller's.
  explicit GuestChannel(int fd) : fd_(fd) {}

  /// Writes a frame as a whole; false if the other end is gone. A payload may have any length: longer ones become several frames.
  bool send(GuestFrame kind, std::string_view payload);
  /// Reads what the descriptor has, waiting until it has something, and calls `on_frame` for each whole frame. False if the other end is
  /// gone, or sends what is no frame.
  bool take(const std::function<void(GuestFrame, std::string_view)>& on_frame);

 private:
  static constexpr size_t kHeadBytes = 5, kMostPayload = size_t{16} << 10;
  bool write_all(std::string_view bytes) const;
  int fd_;
  std::mutex sending_;
  std::string pending_;
};

/// Numbers of frames, little-endian.
[[nodiscard]] std::string number_bytes(uint32_t value);
[[nodiscard]] uint32_t number_in(std::string_view bytes);

}  // namespace ptd::emulate
