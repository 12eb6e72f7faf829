// AnnounceSocket: where programs that a recorder starts offer their rings, so that none is missed, however short a program lives.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "image/base/fd.h"
#include "ptdecode/error.h"

namespace ptd::announce {

/// A Unix socket in a folder of its own, which only this user may enter. Removed with the object. Not thread-safe.
class AnnounceSocket {
 public:
  /// Makes the socket, and removes those of this user that a killed recorder left in the same folder. Errors: of the system.
  static Result<std::unique_ptr<AnnounceSocket>> create();
  ~AnnounceSocket();
  AnnounceSocket(const AnnounceSocket&) = delete;
  AnnounceSocket& operator=(const AnnounceSocket&) = delete;

  /// A file that a process sent. The kernel says which process and user it is.
  struct Offer {
    int32_t pid = -1;
    uint32_t uid = 0;
    Fd file;
  };
  /// Takes what was sent so far, at most a bounded number.
  void take(const std::function<void(Offer offer)>& on_offer);
  /// Readable when there is an offer.
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Returns the environment variable of programs that are to offer their rings: "NAME=VALUE".
  [[nodiscard]] std::string variable() const { return "PTD_ANNOUNCE=ring,socket=" + path_; }
  /// Of the processes that a fork() leaves with this object: leaves the folder to another one.
  void forget() { owned_ = false; }
  /// Takes the folder over from a process that was killed.
  void own() { owned_ = true; }

 private:
  AnnounceSocket() = default;
  Fd socket_;
  std::string folder_, path_;
  bool owned_ = true;
};

}  // namespace ptd::announce
