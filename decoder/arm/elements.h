// Elements: the meaning of ETMv4 and ETE packets in program order, held until they are committed.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/arm/vector_push.h"
#include "ptdecode/arm/packet.h"

namespace ptd::arm {

/// [ETMv4] "Trace elements".
enum class ElementKind : uint8_t {
  atoms,              ///< P0, one each
  exception,          ///< P0; an address, and perhaps a context, follow
  q,                  ///< P0: instructions without atoms
  source_address,     ///< P0: the branch at this address was taken
  unseen,             ///< P0, `count` of them: traced before the synchronisation point
  function_return,    ///< P0, M profile
  exception_return,   ///< P0 on Armv7-M
  transaction_start,  ///< P0 in some configurations
  address,
  context,
  trace_on,
  trace_info,
  timestamp,
  cycles,
  event,
  marker,
  instrumentation,
  transaction_commit,
  transaction_fail,
  transaction_state,
  pe_reset,
  data,  ///< conditional or data trace, which does not affect the flow
};

struct Element {
  ElementKind kind = ElementKind::atoms;
  bool p0 = false;
  bool with_address = false;  ///< q
  uint8_t isa = 0;            ///< of an address
  uint8_t flags = 0;          ///< the packet's kFlag* bits
  uint32_t count = 0;         ///< atoms left; unseen elements left
  uint32_t cycles = 0;
  uint64_t value = 0;  ///< by kind: atoms, the oldest in bit 0; an address; a payload
  uint64_t aux = 0;
  uint64_t offset_bytes = 0;  ///< of its packet
  PacketContext context;
};

/// The frequent kinds of packets.
constexpr bool is_plain(ElementKind kind) {
  return kind == ElementKind::atoms || kind == ElementKind::address || kind == ElementKind::timestamp || kind == ElementKind::cycles ||
         kind == ElementKind::marker;
}

/// The content of an address packet or of a packet that does not affect the path, stored so that it is read only once. 16 bytes.
struct Noted {
  uint64_t value = 0;
  uint32_t cycles = 0;
  PacketKind kind = PacketKind::commit;
  uint8_t isa = 0, flags = 0;
  uint8_t size_bytes = 0;
};
/// Returns the element for `noted`; a commit has none.
[[nodiscard]] Element element_of(const Noted& noted, uint64_t offset_bytes);

/// A position in packets that were examined but are not executed yet.
struct PlaceAhead {
  uint64_t offset_bytes = 0;     ///< offset of the current packet
  uint64_t end_bytes = 0;        ///< end of the last packet
  uint8_t taken = 0;             ///< atoms of the current packet that were executed
  const Noted* noted = nullptr;  ///< the first packet from here on that is not an atom packet
};

/// Unresolved elements, oldest first. Bounded by kMost; beyond it push() fails.
class ElementQueue {
 public:
  static constexpr size_t kMost = 1U << 18;

  [[nodiscard]] bool push(const Element& element);
  /// The oldest element contains atoms, or is unseen: removes `count` of them.
  void take(uint32_t count);
  [[nodiscard]] bool empty() const { return first_ == elements_.size(); }
  [[nodiscard]] size_t size() const { return elements_.size() - first_; }
  [[nodiscard]] Element& front() { return elements_[first_]; }
  /// Returns the element `index` places after the oldest; null if there is none.
  [[nodiscard]] Element* at(size_t index) { return first_ + index < elements_.size() ? &elements_[first_ + index] : nullptr; }
  void pop_front();
  void clear();
  /// Starts another trace.
  void restart() {
    clear();
    passed_ = 0;
  }
  /// Returns whether an element needs an address after it and may have none.
  [[nodiscard]] bool holds_unbound() const { return bound_ != 0 && (loose_ || waits_ != Waits::no); }

  /// Returns the number of elements that need an address after them.
  [[nodiscard]] size_t bound() const { return bound_; }
  /// Returns whether cancels and mispredictions skipped more surviving elements than any trace unit writes in `bytes` of trace.
  [[nodiscard]] bool is_unwieldy(uint64_t bytes) const { return passed_ > kLeastPassed + kPassedPerByte * bytes; }
  /// Removes the newest `count` P0 elements and their dependent elements; time, events and values of software stay. Returns the number of
  /// removed P0 elements.
  uint64_t cancel(uint64_t count);
  /// Inverts the newest atom and removes the addresses after it, which were speculative. Returns false if there is no atom.
  bool mispredict();

 private:
  void keep_bound(const Element& element);
  void unbind() { loose_ = loose_ || bound_ != 0; }
  static bool is_bound(const Element& element) { return element.kind == ElementKind::exception || element.kind == ElementKind::q; }
  static constexpr uint64_t kLeastPassed = 1U << 22, kPassedPerByte = 16;
  std::vector<Element> elements_;
  uint64_t passed_ = 0;  // elements that cancels and mispredictions skipped, without those that they removed
  size_t first_ = 0;
  size_t bound_ = 0;    // elements that need an address after them, optionally preceded by a context
  bool loose_ = false;  // some of them may have no address
  enum class Waits : uint8_t { no, for_context_or_address, for_address };
  Waits waits_ = Waits::no;  // what the newest bound element still waits for; only its context may follow it in the queue
};

}  // namespace ptd::arm
