// SHA-256 of file contents, which names a file in the stash.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ptdecode/types.h"

namespace ptd::stash {

constexpr size_t kHashDigits = 64;  ///< length of a hash as text

/// Hashes data in parts, through libcrypto. Not thread-safe.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(Bytes bytes);
  /// Finishes and returns the hash as kHashDigits lower-case hexadecimal digits.
  [[nodiscard]] std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
[[nodiscard]] std::string hash_of(Bytes bytes);
/// Returns whether `text` has the form of a hash: kHashDigits lower-case hexadecimal digits.
[[nodiscard]] bool is_hash(std::string_view text);

}  // namespace ptd::stash
