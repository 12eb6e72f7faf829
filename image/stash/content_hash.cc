// SHA-256 through libcrypto, which uses the processor's SHA instructions.
#include "image/stash/content_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "image/source/build_id.h"

namespace ptd::stash {

struct Hasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool good = context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1;
  State() = default;
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

void Hasher::add(Bytes bytes) {
  if (state_->good && !bytes.empty()) state_->good = EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1;
}

std::string Hasher::finish() {
  std::array<std::byte, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  auto* to = reinterpret_cast<unsigned char*>(digest.data());
  state_->good = state_->good && EVP_DigestFinal_ex(state_->context, to, &size) == 1 && size * 2 == kHashDigits;
  // Out of memory: return a name that no content has, so that nothing is found or considered verified.
  return state_->good ? hex_of(Bytes(digest).first(size)) : std::string(kHashDigits, '?');
}

std::string hash_of(Bytes bytes) {
  Hasher hasher;
  hasher.add(bytes);
  return hasher.finish();
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace ptd::stash
